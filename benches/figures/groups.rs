//! G1 to G5: the server's time for a call with groups, compared with the same call without groups
//! or with fewer groups.

use crate::calls::{Calls, Case};
use crate::support::Result;
use crate::support::figure::Figure;
use crate::support::line::Line;
use crate::support::rounds::{Rounds, rounds_of};
use crate::support::server::{Server, client, unique_name};

const ROUNDS: usize = 9;

pub async fn g1_and_g2() -> Result<Vec<Figure>> {
    let mut calls = Calls::to(&client()?).await?;
    let mut figures = Vec::new();
    for (id, what, case, target) in [
        ("G1", "a grant", Case::Grants { weight: 1, in_a_call: 1 }, 1.25),
        ("G2", "a release", Case::Releases { in_a_call: 1 }, 1.4),
    ] {
        let mut rounds = Rounds::default();
        for _ in 0..rounds_of(ROUNDS) {
            let mut without = calls.semaphore(&unique_name("groups"));
            let mut with = calls.semaphore(&unique_name("groups")).with_groups();
            let baseline = calls.time(&mut without, 0, case).await?;
            calls.group = "tenant-00000,2,1000:";
            let value = calls.time(&mut with, 0, case).await;
            calls.group = "";
            rounds.add((baseline, value?));
        }
        let what = format!("server time: {what}, without or with a group");
        figures.push(Figure::of(id, what, "us", &rounds).ratio_at_most(target));
    }
    Ok(figures)
}

pub async fn g3_to_g5() -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (id, what, in_a_call, waiters, groups, target) in [
        ("G3", "a handoff, without groups or with one", 1, 1_000, [0, 1], 1.8),
        ("G4", "a handoff, 100 or 10,000 groups", 1, 10_000, [100, 10_000], 1.1),
        ("G5", "500 handoffs in a call, 1 or 500 groups", 500, 500, [1, 500], 2.0),
    ] {
        let case = HandOffs { in_a_call, waiters };
        let (mut few, mut more) = (case.line(groups[0]).await?, case.line(groups[1]).await?);
        let mut rounds = Rounds::default();
        for _ in 0..rounds_of(ROUNDS) {
            rounds.add((case.time(&mut few).await?, case.time(&mut more).await?));
        }
        few.scripts.remove().await?;
        more.scripts.remove().await?;
        let what = format!("server time: {what}");
        figures.push(Figure::of(id, what, "us", &rounds).ratio_at_most(target));
    }
    Ok(figures)
}

/// The number of permits that a call hands to waiters, and the number of waiters.
#[derive(Clone, Copy)]
struct HandOffs {
    in_a_call: u32,
    waiters: u64,
}

impl HandOffs {
    async fn line(self, groups: u64) -> Result<Line> {
        let mut line = Line::with_groups(&unique_name("groups"), self.in_a_call, groups).await?;
        line.fill(self.waiters).await?;
        Ok(line)
    }

    /// Returns the server's time for a call in µs.
    async fn time(self, line: &mut Line) -> Result<f64> {
        let mut server = Server::connect()?;
        // A call of 500 grants all waiters, so each of these calls has its own measurement.
        let (measurements, calls) = if self.in_a_call == 1 { (1, 200) } else { (4, 1) };
        let mut total = 0.0;
        for _ in 0..measurements {
            let before = server.scripts()?;
            line.hand_off(calls * u64::from(self.in_a_call), self.in_a_call as usize).await?;
            total += server.scripts()?.time_of_a_call_since(before);
            line.fill(self.waiters).await?;
        }
        Ok(total / f64::from(measurements))
    }
}
