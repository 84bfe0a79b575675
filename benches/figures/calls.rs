//! S1 to S7: the server's time for a call, if many calls follow each other immediately. The
//! baseline is a script that does nothing. The script gets the arguments that this crate's first
//! version sent, so that the baseline never changes.

use redis::aio::{MultiplexedConnection, PubSub};
use redis::{Client, Cmd};

use crate::support::Result;
use crate::support::figure::Figure;
use crate::support::rounds::{Rounds, rounds_of};
use crate::support::scripts::{Check, GRANTED, NOT_GRANTED, QUEUED, RELEASED, Scripts, UNCHECKED};
use crate::support::server::{Server, client, connection_to, evalsha, keys_of, load, unique_name};

const ROUNDS: usize = 9;
/// The smallest number of requests measured in a round.
const REQUESTS: usize = 200;
const CLIENT: &str = "bench-host.4711.k3f9zq";
pub const NO_LIMIT: u32 = u32::MAX;
pub const IDS: &[&str] = &["S1", "S2", "S3", "S4", "S5", "S6", "S7", "S7a", "S7b", "S7c"];
pub const LEASE: u32 = 30_000; // ms

pub async fn s1_to_s7() -> Result<Vec<Figure>> {
    let mut calls = Calls::to(&client()?).await?;
    let mut figures = Vec::new();
    for (id, what, case) in [
        ("S1", "server time: a grant", Case::Grants { weight: 1, in_a_call: 1 }),
        ("S2", "server time: a release without waiters", Case::Releases { in_a_call: 1 }),
        ("S3", "server time: a release that hands off", Case::HandOffs),
        ("S4", "server time: queuing behind others", Case::Queued),
        ("S5", "server time: a grant of weight 2", Case::Grants { weight: 2, in_a_call: 1 }),
        ("S6", "server time: a try that is not granted", Case::NotGranted),
        ("S7", "server time: 16 grants in a call", Case::Grants { weight: 1, in_a_call: 16 }),
        ("S7a", "server time: 256 grants", Case::Grants { weight: 1, in_a_call: 256 }),
        ("S7b", "server time: 16 releases in a call", Case::Releases { in_a_call: 16 }),
        ("S7c", "server time: 256 releases", Case::Releases { in_a_call: 256 }),
    ] {
        let mut rounds = Rounds::default();
        for _ in 0..rounds_of(ROUNDS) {
            let baseline = calls.baseline(case).await?;
            let mut semaphore = calls.semaphore(&unique_name("calls"));
            rounds.add((baseline, calls.time(&mut semaphore, 0, case).await?));
        }
        figures.push(Figure::of(id, what, "us", &rounds));
    }
    Ok(figures)
}

#[derive(Debug, Clone, Copy)]
pub enum Case {
    Grants {
        weight: u32,
        in_a_call: usize,
    },
    Releases {
        in_a_call: usize,
    },
    /// Releases, each of which grants the permit to the first waiter.
    HandOffs,
    Queued,
    NotGranted,
}

impl Case {
    fn in_a_call(self) -> usize {
        match self {
            Self::Grants { in_a_call, .. } | Self::Releases { in_a_call } => in_a_call,
            _ => 1,
        }
    }

    /// Returns the number of requests in a round.
    fn requests(self) -> usize {
        REQUESTS.max(4 * self.in_a_call())
    }
}

/// Calls the scripts directly. Pipelines make the calls follow each other immediately.
pub struct Calls {
    server: Server,
    connection: MultiplexedConnection,
    scripts: Scripts,
    nothing: String,
    /// The group of all further IDs: an empty text, or `GROUP,SHARE,CAP:`.
    pub group: &'static str,
    next: u64,
    /// This subscriber receives the grant messages.
    _listener: PubSub,
}

impl Calls {
    pub async fn to(client: &Client) -> Result<Self> {
        let mut connection = connection_to(client).await?;
        let scripts = Scripts::at(client, "calls").await?;
        let nothing = load(&mut connection, "return {1, 2, 1, 3, 4}").await?;
        let mut listener = client.get_async_pubsub().await?;
        listener.subscribe(format!("sem:wake:{CLIENT}")).await?;
        let server = Server { connection: client.get_connection()? };
        let group = "";
        Ok(Self { server, connection, scripts, nothing, group, next: 0, _listener: listener })
    }

    pub fn semaphore(&self, name: &str) -> Scripts {
        self.scripts.another(name)
    }

    /// Returns the server's time for a call in µs. Before the measurement, permits with the total
    /// weight `held` must be held, and no request may wait. This function releases all permits that
    /// it acquires.
    pub async fn time(&mut self, semaphore: &mut Scripts, held: u64, case: Case) -> Result<f64> {
        let one_more = held as u32 + 1;
        let weight = if let Case::Grants { weight, .. } = case { weight } else { 1 };
        let others = self.ids(10, 1, LEASE);
        let mine = self.ids(case.requests(), weight, LEASE);
        let everyone = [&others[..1], &mine].concat();
        let acquires = |limit, ids: &[String]| semaphore.acquires(limit, ids, 1, "wait");
        let in_a_call = case.in_a_call();
        // The preparing calls, the measured calls, and the check of their replies.
        let (before, calls, check): (_, _, Check) = match case {
            Case::Grants { .. } => {
                let before = semaphore.acquires(NO_LIMIT, &others, 10, "wait");
                (before, semaphore.acquires(NO_LIMIT, &mine, in_a_call, "wait"), GRANTED)
            }
            Case::Releases { .. } => {
                (acquires(NO_LIMIT, &everyone), semaphore.releases(&mine, in_a_call), RELEASED)
            }
            Case::HandOffs => {
                let releases = semaphore.releases(&everyone[..mine.len()], 1);
                (acquires(one_more, &everyone), releases, RELEASED)
            }
            Case::Queued => (acquires(one_more, &others[..2]), acquires(one_more, &mine), QUEUED),
            Case::NotGranted => {
                let tries = semaphore.acquires(one_more, &mine, 1, "try");
                (acquires(one_more, &others[..1]), tries, NOT_GRANTED)
            }
        };
        semaphore.send(before, UNCHECKED).await?;
        let statistics = self.server.scripts()?;
        semaphore.send(calls, check).await?;
        let time = self.server.scripts()?.time_of_a_call_since(statistics);
        let after = semaphore.releases(&[others, mine].concat(), 100);
        semaphore.send(after, UNCHECKED).await?;
        Ok(time)
    }

    async fn baseline(&mut self, case: Case) -> Result<f64> {
        let (request, fixed): (&[&str], &[&str]) = match case {
            Case::Releases { .. } | Case::HandOffs => (&[], &["return"]),
            _ => (&["1", "30000", "wait"], FIXED),
        };
        let in_a_call = case.in_a_call();
        let mut pipe = redis::pipe();
        for call in 0..case.requests() / in_a_call {
            let mut cmd: Cmd = evalsha(&self.nothing, &keys_of("baseline"));
            cmd.arg(fixed);
            for number in 0..in_a_call {
                cmd.arg(format!("bench-host:4711:{:032x}", call << 32 | number)).arg(request);
            }
            pipe.add_command(cmd);
        }
        let statistics = self.server.scripts()?;
        pipe.exec_async(&mut self.connection).await?;
        Ok(self.server.scripts()?.time_of_a_call_since(statistics))
    }

    /// Returns new IDs, with this weight and a lease in ms.
    pub fn ids(&mut self, count: usize, weight: u32, lease: u32) -> Vec<String> {
        let first = self.next;
        self.next += count as u64;
        let start = format!("P:{CLIENT}:{weight}:{lease}:{}", self.group);
        (first..self.next).map(|number| format!("{start}{number:022}")).collect()
    }
}

/// The first arguments of an acquire, before its requests.
const FIXED: &[&str] =
    &["declare_if_unset", "1000", "sem:wake:4f1c7e0a9b2d4c6e8f0a1b2c3d4e5f60", "publish", "15000"];
