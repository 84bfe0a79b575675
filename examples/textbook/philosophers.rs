//! Five philosophers, five forks, and a room that lets in four at once. If all five could reach for
//! their left fork, all would wait for the right one for ever.

use std::time::Duration;

use redis_semaphore::redis::{Cmd, cmd};

use crate::ROUNDS;
use crate::start::Result;
use crate::table::Table;

pub const ROLES: [&str; 5] =
    ["philosopher-1", "philosopher-2", "philosopher-3", "philosopher-4", "philosopher-5"];

const REACHING: Duration = Duration::from_millis(2);
const EATING: Duration = Duration::from_millis(2);

pub async fn play(role: &str, table: &mut Table) -> Result<()> {
    let place = ROLES.iter().position(|name| *name == role).ok_or("not one of the five")?;
    let room = table.semaphore("room", ROLES.len() as u32 - 1)?;
    let left = table.semaphore(&format!("fork-{place}"), 1)?;
    let right = table.semaphore(&format!("fork-{}", (place + 1) % ROLES.len()), 1)?;
    for _ in 0..ROUNDS {
        let seat = room.acquire().await?;
        let left = left.acquire().await?;
        tokio::time::sleep(REACHING).await;
        let right = right.acquire().await?;

        let meals: u32 = table.tell(&format!("{role} begins"), count(table, role, 0)).await?;
        tokio::time::sleep(EATING).await;
        let now: u32 = table.tell(&format!("{role} ends"), count(table, role, 1)).await?;
        if now != meals + 1 {
            return Err(format!("{role} had {now} meals after {meals}").into());
        }

        for permit in [right, left, seat] {
            permit.release().await?;
        }
    }
    Ok(())
}

fn count(table: &Table, role: &str, meals: u32) -> Cmd {
    let mut count = cmd("HINCRBY");
    count.arg(table.key("meals")).arg(role).arg(meals);
    count
}
