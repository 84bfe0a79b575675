//! Readers and writers: a reader takes one permit, a writer all of them.
//!
//! The textbook counts the readers in a variable with a semaphore of its own, and a writer may wait
//! for ever while readers come and go. Here the order of arrival is kept: readers that come after a
//! writer wait for it.

use std::time::Duration;

use redis_semaphore::redis::{Cmd, cmd};

use crate::ROUNDS;
use crate::start::Result;
use crate::table::Table;

pub const ROLES: [&str; 6] =
    ["reader-1", "reader-2", "reader-3", "reader-4", "writer-1", "writer-2"];

const READERS: u32 = 4;
const READING: Duration = Duration::from_millis(3);

pub async fn play(role: &str, table: &mut Table) -> Result<()> {
    let access = table.semaphore("access", READERS)?;
    // The two numbers are to be the same, always.
    let command = |command, key| -> Cmd {
        let mut command = cmd(command);
        command.arg(key);
        command
    };
    let (left, right) = (table.key("left"), table.key("right"));
    let (weight, what) = if role.starts_with("writer") { (READERS, "INCR") } else { (1, "GET") };
    for _ in 0..ROUNDS {
        let permit = access.acquire_many(weight).await?;
        let begins = format!("{role} begins");
        let first: Option<u32> = table.tell(&begins, command(what, &left)).await?;
        tokio::time::sleep(READING).await;
        let second: Option<u32> =
            table.tell(&format!("{role} ends"), command(what, &right)).await?;
        if first != second {
            return Err(format!("half of a write was seen: {first:?} and {second:?}").into());
        }
        permit.release().await?;
    }
    Ok(())
}
