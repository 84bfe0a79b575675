//! P3 to P6: the utilization, the fairness of the waits, and the number of calls. The limit is 10,
//! and 1,000 tasks work for 5 ms each.

use std::time::Duration;

use crate::support::Result;
use crate::support::figure::Figure;
use crate::support::ours::Ours;
use crate::support::rounds::{Rounds, rounds_of};
use crate::support::rush::Rush;
use crate::support::server::Server;

const ROUNDS: usize = 5;
/// In a round, each task has about six turns.
const RUSH: Rush = Rush {
    limit: 10,
    tasks: 1000,
    work: Duration::from_millis(5),
    warm_up: Duration::ZERO,
    time: Duration::from_secs(4),
};

pub async fn p3_to_p6() -> Result<Vec<Figure>> {
    let [mut busy, mut waits, mut turns, mut calls] = <[Rounds; 4]>::default();
    for _ in 0..rounds_of(ROUNDS) {
        let mut server = Server::connect()?;
        let before = server.scripts()?.calls;
        let course = RUSH.run::<Ours>().await?;
        let made = server.scripts()?.calls - before;
        busy.add((1.0, course.busy));
        waits.add(course.ideal_and_longest_wait());
        turns.add((course.turns[0] as f64, course.turns[course.turns.len() - 1] as f64));
        calls.add((2.0, made as f64 / course.turns.iter().sum::<usize>() as f64));
    }
    let waits_of = "contention: slowest wait against the ideal one";
    let turns_of = "contention: turns of the luckiest and unluckiest task";
    let busy_of = "contention: time held of what the limit allows";
    // Two calls for each turn are not a lower bound, because requests are batched.
    let calls_of = "contention: calls for each acquire and release";
    Ok(vec![
        Figure::of("P3", busy_of, "", &busy).ratio_at_least(0.93),
        Figure::of("P4", waits_of, "ms", &waits).ratio_at_most(1.3),
        Figure::of("P5", turns_of, "turns", &turns).ratio_at_most(1.5),
        Figure::of("P6", calls_of, "calls", &calls).value_at_most(2.1),
    ])
}
