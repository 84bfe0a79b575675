//! S1 to S7: the server's time for a call, if many calls follow each other immediately. The
//! baseline is a script that does nothing. Its arguments are the arguments of the crate's first
//! scripts, so that the baseline never changes.

use redis::aio::{MultiplexedConnection, PubSub};
use redis::{Client, Cmd};
use redis_semaphore::ScriptRegistry;

use crate::support::Result;
use crate::support::figure::{Better, Figure};
use crate::support::rounds::{Rounds, rounds_of};
use crate::support::server::{Server, client, connection_to, load, unique_name};

const ROUNDS: usize = 9;
/// The number of requests measured in a round.
const REQUESTS: u64 = 200;
const CLIENT: &str = "bench-host.4711.k3f9zq";
const NO_LIMIT: u32 = u32::MAX;
pub const LEASE: u32 = 30_000; // ms

pub async fn s1_to_s7() -> Result<Vec<Figure>> {
    let mut calls = Calls::to(&client()?).await?;
    let mut figures = Vec::new();
    for (id, what, case, target) in [
        ("S1", "server time: a grant", Case::Grants { weight: 1, in_a_call: 1 }, 4.8),
        ("S2", "server time: a release, nobody waits", Case::Releases { in_a_call: 1 }, 3.3),
        ("S3", "server time: a release that hands on", Case::HandOffs, 8.0),
        ("S4", "server time: queueing behind others", Case::Queued, 6.0),
        ("S5", "server time: a grant of weight 2", Case::Grants { weight: 2, in_a_call: 1 }, 6.0),
        ("S6", "server time: a try that is refused", Case::Refused, 5.0),
        ("S7", "server time: 16 grants in a call", Case::Grants { weight: 1, in_a_call: 16 }, 4.5),
        ("S7a", "server time: 256 grants", Case::Grants { weight: 1, in_a_call: 256 }, 6.2),
        ("S7b", "server time: 16 releases in a call", Case::Releases { in_a_call: 16 }, 4.2),
        ("S7c", "server time: 256 releases", Case::Releases { in_a_call: 256 }, 5.8),
    ] {
        let mut rounds = Rounds::default();
        for _ in 0..rounds_of(ROUNDS) {
            rounds.add(
                calls.baseline(case).await?,
                calls.time(&unique_name("calls"), 0, case).await?,
            );
        }
        let (medians, ratio) = rounds.medians();
        figures.push(Figure::new(id, what, "us", medians, ratio, Better::AtMost(target)));
    }
    Ok(figures)
}

#[derive(Debug, Clone, Copy)]
pub enum Case {
    Grants {
        weight: u32,
        in_a_call: u64,
    },
    Releases {
        in_a_call: u64,
    },
    /// Releases, each of which grants the permit to the first waiter.
    HandOffs,
    Queued,
    Refused,
}

/// Calls the scripts directly, in pipelines, so that only the server's time counts.
pub struct Calls {
    server: Server,
    connection: MultiplexedConnection,
    acquire: String,
    release: String,
    nothing: String,
    next: u64,
    /// This subscriber receives the grant messages.
    _listener: PubSub,
}

impl Calls {
    pub async fn to(client: &Client) -> Result<Self> {
        let mut connection = connection_to(client).await?;
        let scripts = ScriptRegistry::embedded();
        let source = |name| scripts.script(name).expect("it is one of ours").source();
        let acquire = load(&mut connection, source("acquire")).await?;
        let release = load(&mut connection, source("release")).await?;
        let nothing = load(&mut connection, "return {1, 2, 1, 3, 4}").await?;
        let mut listener = client.get_async_pubsub().await?;
        listener.subscribe(format!("sem:wake:{CLIENT}")).await?;
        let server = Server { connection: client.get_connection()? };
        Ok(Self { server, connection, acquire, release, nothing, next: 0, _listener: listener })
    }

    /// Returns the server's time for a call in µs. The semaphore has no waiters, and the weight
    /// `held` is held. This function leaves the semaphore unchanged.
    pub async fn time(&mut self, name: &str, held: u64, case: Case) -> Result<f64> {
        let one_more = held as u32 + 1;
        let others = self.ids(10, 1, LEASE);
        let mine = match case {
            Case::Grants { weight, in_a_call } => {
                self.ids(REQUESTS.max(4 * in_a_call), weight, LEASE)
            }
            Case::Releases { in_a_call } => self.ids(REQUESTS.max(4 * in_a_call), 1, LEASE),
            _ => self.ids(REQUESTS, 1, LEASE),
        };
        let everybody = [&others[..1], &mine].concat();
        // The preparing calls, the measured calls, and the expected reply.
        let (before, calls, answer) = match case {
            Case::Grants { in_a_call, .. } => {
                let before = self.acquires(name, NO_LIMIT, &others, 10, "wait");
                (before, self.acquires(name, NO_LIMIT, &mine, in_a_call, "wait"), (3, 1))
            }
            Case::Releases { in_a_call } => {
                let before = self.acquires(name, NO_LIMIT, &everybody, 1, "wait");
                (before, self.releases(name, &mine, in_a_call), (2, 1))
            }
            Case::HandOffs => {
                let before = self.acquires(name, one_more, &everybody, 1, "wait");
                (before, self.releases(name, &everybody[..mine.len()], 1), (2, 1))
            }
            Case::Queued => {
                let before = self.acquires(name, one_more, &others[..2], 1, "wait");
                (before, self.acquires(name, one_more, &mine, 1, "wait"), (3, 2))
            }
            Case::Refused => {
                let before = self.acquires(name, one_more, &others[..1], 1, "wait");
                (before, self.acquires(name, one_more, &mine, 1, "try"), (3, 0))
            }
        };
        self.send(&before).await?;
        let time = self.time_of(&calls, Some(answer)).await?;
        let after = self.releases(name, &[others, mine].concat(), 100);
        self.send(&after).await?;
        Ok(time)
    }

    /// Adds `count` holders of this weight, for a lease of `lease` ms. Returns their IDs.
    pub async fn hold(
        &mut self,
        name: &str,
        count: u64,
        weight: u32,
        lease: u32,
    ) -> Result<Vec<String>> {
        let ids = self.ids(count, weight, lease);
        let calls = self.acquires(name, NO_LIMIT, &ids, count, "wait");
        self.time_of(&calls, Some((3, 1))).await?;
        Ok(ids)
    }

    pub async fn give_back(&mut self, name: &str, ids: &[String]) -> Result<()> {
        let calls = self.releases(name, ids, ids.len() as u64);
        self.time_of(&calls, Some((2, 1))).await?;
        Ok(())
    }

    async fn baseline(&mut self, case: Case) -> Result<f64> {
        let (request, fixed, in_a_call): (&[&str], &[&str], u64) = match case {
            Case::Releases { in_a_call } => (&[], &["return"], in_a_call),
            Case::HandOffs => (&[], &["return"], 1),
            Case::Grants { in_a_call, .. } => (&["1", "30000", "wait"], FIXED, in_a_call),
            Case::Queued | Case::Refused => (&["1", "30000", "wait"], FIXED, 1),
        };
        let calls: Vec<_> = (0..REQUESTS.max(4 * in_a_call) / in_a_call)
            .map(|call| {
                let mut cmd = self.call(&self.nothing, "baseline");
                cmd.arg(fixed);
                for number in 0..in_a_call {
                    cmd.arg(format!("bench-host:4711:{:032x}", call << 32 | number)).arg(request);
                }
                cmd
            })
            .collect();
        self.time_of(&calls, None).await
    }

    fn ids(&mut self, count: u64, weight: u32, lease: u32) -> Vec<String> {
        self.next += count;
        let numbers = self.next - count..self.next;
        numbers.map(|number| format!("P:{CLIENT}:{weight}:{lease}:{number:022}")).collect()
    }

    fn acquires(
        &self,
        name: &str,
        limit: u32,
        ids: &[String],
        in_a_call: u64,
        place: &str,
    ) -> Vec<Cmd> {
        let call = |ids: &[String]| {
            let mut cmd = self.call(&self.acquire, name);
            cmd.arg("declare_if_unset").arg(limit).arg(15000);
            for id in ids {
                cmd.arg(id).arg(place);
            }
            cmd
        };
        ids.chunks(in_a_call as usize).map(call).collect()
    }

    fn releases(&self, name: &str, ids: &[String], in_a_call: u64) -> Vec<Cmd> {
        let call = |ids: &[String]| {
            let mut cmd = self.call(&self.release, name);
            cmd.arg("return").arg(ids);
            cmd
        };
        ids.chunks(in_a_call as usize).map(call).collect()
    }

    fn call(&self, script: &str, name: &str) -> Cmd {
        let mut cmd = redis::cmd("EVALSHA");
        let keys = ["permits", "queue", "clients", "state"];
        cmd.arg(script).arg(keys.len()).arg(&keys.map(|key| format!("sem:{{{name}}}:{key}")));
        cmd
    }

    /// Returns the time in µs for each call. Fails unless each reply has this value at this index.
    /// In the short form of a reply, index 3 is the result of all requests.
    async fn time_of(&mut self, calls: &[Cmd], answer: Option<(usize, i64)>) -> Result<f64> {
        let before = self.server.scripts()?;
        let replies = self.send(calls).await?;
        let after = self.server.scripts()?;
        let (index, code) = answer.unwrap_or((0, replies[0][0]));
        match replies.iter().find(|reply| ![code, 3].contains(&reply[index])) {
            None => Ok((after.usec - before.usec) as f64 / (after.calls - before.calls) as f64),
            Some(other) => Err(format!("a script answered {other:?}").into()),
        }
    }

    async fn send(&mut self, calls: &[Cmd]) -> Result<Vec<Vec<i64>>> {
        let mut pipe = redis::pipe();
        for call in calls {
            pipe.add_command(call.clone());
        }
        Ok(pipe.query_async(&mut self.connection).await?)
    }
}

/// The first arguments of an acquire, before its requests.
const FIXED: &[&str] =
    &["declare_if_unset", "1000", "sem:wake:4f1c7e0a9b2d4c6e8f0a1b2c3d4e5f60", "publish", "15000"];
