//! A plate that holds one fruit. Who takes waits for a signal of who puts, and the other way round.

use redis_semaphore::redis::cmd;

use crate::ROUNDS;
use crate::start::Result;
use crate::table::{Table, p, v};

pub const ROLES: [&str; 4] = ["father", "mother", "daughter", "son"];
pub const SIGNALS: [&str; 3] = ["empty", "apple", "orange"];

pub async fn play(role: &str, table: &mut Table) -> Result<()> {
    let empty = table.signal("empty", 1)?;
    let (fruit, puts) = match role {
        "father" => ("apple", true),
        "mother" => ("orange", true),
        "daughter" => ("apple", false),
        "son" => ("orange", false),
        _ => return Err(format!("nobody here is called {role}").into()),
    };
    let is_there = table.signal(fruit, 0)?;
    for _ in 0..ROUNDS {
        if puts {
            p(&empty).await?;
            put(table, role, fruit).await?;
            v(&is_there).await?;
        } else {
            p(&is_there).await?;
            take(table, role, fruit).await?;
            v(&empty).await?;
        }
    }
    Ok(())
}

async fn put(table: &mut Table, role: &str, fruit: &str) -> Result<()> {
    let mut set = cmd("SET");
    set.arg(table.key("plate")).arg(fruit).arg("NX");
    let is_done = table.tell::<Option<String>>(&format!("{role} puts an {fruit}"), set).await?;
    is_done.map(drop).ok_or("the plate was not empty".into())
}

async fn take(table: &mut Table, role: &str, fruit: &str) -> Result<()> {
    let mut get = cmd("GETDEL");
    get.arg(table.key("plate"));
    match table.tell::<Option<String>>(&format!("{role} takes an {fruit}"), get).await? {
        Some(taken) if taken == fruit => Ok(()),
        other => Err(format!("the plate held {other:?} and not an {fruit}").into()),
    }
}
