//! P8 and P9: the server's time for a call while few or many other permits are held, or while few
//! or many other requests wait.

use crate::support::Result;
use crate::support::design::Design;
use crate::support::figure::Figure;
use crate::support::line::Line;
use crate::support::rounds::{Rounds, rounds_of};
use crate::support::scripts::{GRANTED, Scripts, numbered_id};
use crate::support::server::{Server, unique_name};

const ROUNDS: usize = 9;
/// The number of calls measured in a round.
const CALLS: u64 = 200;
const FEW: u64 = 10;
const MANY: u64 = 100_000;

pub async fn p8() -> Result<Vec<Figure>> {
    let (mut few, mut many) =
        (Scripts::with_holders(FEW).await?, Scripts::with_holders(MANY).await?);
    let mut rounds = Rounds::default();
    for round in 0..rounds_of(ROUNDS) as u64 {
        let ids: Vec<_> = (0..CALLS).map(|call| numbered_id(MANY + round * CALLS + call)).collect();
        rounds.add((time_acquires(&mut few, &ids).await?, time_acquires(&mut many, &ids).await?));
    }
    few.remove().await?;
    many.remove().await?;
    let what = "server time of an acquire, 10 or 100,000 holders";
    Ok(vec![Figure::of("P8", what, "us", &rounds).ratio_at_most(1.5)])
}

pub async fn p9() -> Result<Vec<Figure>> {
    let (mut few, mut many) = (line(FEW).await?, line(MANY).await?);
    let mut rounds = Rounds::default();
    for _ in 0..rounds_of(ROUNDS) {
        rounds.add((time_hand_offs(&mut few).await?, time_hand_offs(&mut many).await?));
    }
    few.scripts.remove().await?;
    many.scripts.remove().await?;
    let what = "server time of a release, 10 or 100,000 waiters";
    Ok(vec![Figure::of("P9", what, "us", &rounds).ratio_at_most(1.5)])
}

/// Returns the server's time for an acquire, in µs.
async fn time_acquires(scripts: &mut Scripts, ids: &[String]) -> Result<f64> {
    let mut server = Server::connect()?;
    let before = server.scripts()?;
    for id in ids {
        scripts.acquire(u32::MAX, std::slice::from_ref(id), GRANTED).await?;
    }
    let time = server.scripts()?.time_of_a_call_since(before);
    scripts.release(ids).await?;
    Ok(time)
}

async fn line(waiters: u64) -> Result<Line> {
    let mut line = Line::open(&unique_name("p9"), 1).await?;
    line.fill(waiters).await?;
    Ok(line)
}

/// Returns the server's time for a release that grants the permit to the first waiter, in µs.
async fn time_hand_offs(line: &mut Line) -> Result<f64> {
    let mut server = Server::connect()?;
    let mut time = 0;
    for _ in 0..CALLS {
        let before = server.scripts()?.usec;
        line.release(()).await?;
        time += server.scripts()?.usec - before;
        line.acquire().await?;
    }
    Ok(time as f64 / CALLS as f64)
}
