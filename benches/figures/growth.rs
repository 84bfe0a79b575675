//! P8 and P9: the server's time for a call while few or many other permits are held, or while few
//! or many other requests wait.

use crate::support::Result;
use crate::support::figure::{Better, Figure};
use crate::support::rounds::{Rounds, rounds_of};
use crate::support::scripts::{GRANTED, QUEUED, Scripts, batches, numbered_id};
use crate::support::server::{Server, unique_name};

const ROUNDS: usize = 9;
/// The number of calls measured in a round.
const CALLS: u64 = 200;
const FEW: u64 = 10;
const MANY: u64 = 100_000;
const LIMIT: u32 = 10_000_000;

pub async fn p8() -> Result<Figure> {
    let (mut few, mut many) = (Holders::add(FEW).await?, Holders::add(MANY).await?);
    let mut rounds = Rounds::default();
    for _ in 0..rounds_of(ROUNDS) {
        rounds.add(few.acquire().await?, many.acquire().await?);
    }
    few.scripts.remove().await?;
    many.scripts.remove().await?;
    figure("P8", "server time of an acquire, 10 or 100,000 holders", rounds)
}

pub async fn p9() -> Result<Figure> {
    let (mut few, mut many) = (Waiters::add(FEW).await?, Waiters::add(MANY).await?);
    let mut rounds = Rounds::default();
    for _ in 0..rounds_of(ROUNDS) {
        rounds.add(few.release().await?, many.release().await?);
    }
    few.scripts.remove().await?;
    many.scripts.remove().await?;
    figure("P9", "server time of a release, 10 or 100,000 waiters", rounds)
}

fn figure(id: &'static str, what: &'static str, rounds: Rounds) -> Result<Figure> {
    let (medians, ratio) = rounds.medians();
    Ok(Figure::new(id, what, "us", medians, ratio, Better::AtMost(1.5)))
}

struct Holders {
    scripts: Scripts,
    server: Server,
    next: u64,
}

impl Holders {
    async fn add(count: u64) -> Result<Self> {
        let mut scripts = Scripts::open(&unique_name("p8")).await?;
        for ids in batches(0..count) {
            scripts.acquire(LIMIT, &ids, GRANTED).await?;
        }
        Ok(Self { scripts, server: Server::connect()?, next: count })
    }

    async fn acquire(&mut self) -> Result<f64> {
        let ids: Vec<_> = (self.next..self.next + CALLS).map(numbered_id).collect();
        self.next += CALLS;
        let before = self.server.scripts()?.usec;
        for id in &ids {
            self.scripts.acquire(LIMIT, std::slice::from_ref(id), GRANTED).await?;
        }
        let time = self.server.scripts()?.usec - before;
        self.scripts.release(&ids).await?;
        Ok(time as f64 / CALLS as f64)
    }
}

/// One holder, and waiters in the order of their numbers.
struct Waiters {
    scripts: Scripts,
    server: Server,
    holder: u64,
    count: u64,
}

impl Waiters {
    async fn add(count: u64) -> Result<Self> {
        let mut scripts = Scripts::open(&unique_name("p9")).await?;
        scripts.acquire(1, &[numbered_id(0)], GRANTED).await?;
        for ids in batches(1..1 + count) {
            scripts.acquire(1, &ids, QUEUED).await?;
        }
        Ok(Self { scripts, server: Server::connect()?, holder: 0, count })
    }

    /// Returns the server's time for a release that hands off to the first waiter, in µs.
    async fn release(&mut self) -> Result<f64> {
        let mut time = 0;
        for _ in 0..CALLS {
            let before = self.server.scripts()?.usec;
            self.scripts.release(&[numbered_id(self.holder)]).await?;
            time += self.server.scripts()?.usec - before;
            self.holder += 1;
            let last = numbered_id(self.holder + self.count);
            self.scripts.acquire(1, &[last], QUEUED).await?;
        }
        Ok(time as f64 / CALLS as f64)
    }
}
