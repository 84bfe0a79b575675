//! A buffer with room for three: producers wait for a space, consumers for something to consume.
//!
//! The textbook has a third semaphore around the buffer itself. A list in Redis needs none.

use std::time::Duration;

use redis_semaphore::redis::cmd;

use crate::ROUNDS;
use crate::start::Result;
use crate::table::{Table, p, v};

pub const ROLES: [&str; 4] = ["producer-1", "producer-2", "consumer-1", "consumer-2"];
pub const SIGNALS: [&str; 2] = ["spaces", "products"];

const ROOM: u32 = 3;
/// Longer than a producer needs, so the buffer fills up.
const CONSUMING: Duration = Duration::from_millis(10);

pub async fn play(role: &str, table: &mut Table) -> Result<()> {
    let (spaces, products) = (table.signal("spaces", ROOM)?, table.signal("products", 0)?);
    for round in 1..=ROUNDS {
        if role.starts_with("producer") {
            p(&spaces).await?;
            let mut push = cmd("RPUSH");
            push.arg(table.key("buffer")).arg(format!("{role}/{round}"));
            let length: u32 = table.tell(&format!("{role} adds {role}/{round}"), push).await?;
            if length > ROOM {
                return Err(format!("{length} in a buffer with room for {ROOM}").into());
            }
            v(&products).await?;
        } else {
            p(&products).await?;
            let mut pop = cmd("LPOP");
            pop.arg(table.key("buffer"));
            let product: Option<String> = table.tell(&format!("{role} takes one"), pop).await?;
            println!("{role} has {}", product.ok_or("the buffer was empty")?);
            v(&spaces).await?;
            tokio::time::sleep(CONSUMING).await;
        }
    }
    Ok(())
}
