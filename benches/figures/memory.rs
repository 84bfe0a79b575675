//! P10: the server's memory for a permit and for a waiter, compared with a member of a sorted set.

use crate::support::Result;
use crate::support::figure::{Better, Figure};
use crate::support::memory::{member, permit, waiter};
use crate::support::rounds::{median, rounds_of};
use crate::support::server::Server;

const ROUNDS: usize = 5;
const MANY: u64 = 100_000;

pub async fn p10() -> Result<Vec<Figure>> {
    let mut server = Server::connect()?;
    let (mut members, mut permits, mut waiters) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds_of(ROUNDS) {
        members.push(member(&mut server, MANY).await?);
        permits.push(permit(&mut server, MANY).await?);
        waiters.push(waiter(&mut server, MANY).await?);
    }
    let (member, permit, waiter) =
        (median(&mut members), median(&mut permits), median(&mut waiters));
    let figure = |id, what, value, target| {
        let at_most = Better::AtMost(target);
        Figure::of_value(id, what, "B", (member, value), at_most)
    };
    Ok(vec![
        figure("P10", "memory on the server: a permit", permit, 165.0),
        figure("P10w", "memory on the server: a waiter", waiter, 200.0),
    ])
}
