//! Each script as a function: arguments in, reply out. `docs/protocol.md` tells what they mean.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, ErrorKind, FromRedisValue, Value};

use crate::Error;
use crate::claim::{Claim, Place};
use crate::gate::{Gate, Limit};
use crate::link::{Answer, Failure};

/// The most requests in one call.
pub(crate) const MAX_BATCH: usize = 1000;

/// Where a request goes that finds no room.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Otherwise {
    Refuse,
    Queue,
}

/// The answer to one request to acquire.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Acquired {
    Granted { token: u64 },
    Queued(Place),
    Refused,
}

#[derive(Debug)]
pub(crate) struct AcquireReply {
    /// The server's clock, in ms.
    pub(crate) server_time: i64,
    /// When `wake` is worth a call.
    pub(crate) wake_in: Option<Duration>,
    pub(crate) requests: Vec<Acquired>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum How {
    Return,
    /// The permit is used up: its weight comes off the limit.
    Consume,
}

pub(crate) enum LimitAction {
    Declare(u32),
    Initial(u32),
    Set(u32),
    Add(u32),
    Clear,
}

pub(crate) struct Limits {
    pub(crate) in_force: i64,
    pub(crate) before: i64,
    pub(crate) declared_before: i64,
}

impl Gate {
    async fn call<T: FromRedisValue>(
        &self,
        script: &'static str,
        patience: Duration,
        write: impl Fn(&mut Cmd),
    ) -> Result<Answer<T>, Error> {
        let with_keys = |cmd: &mut Cmd| {
            cmd.arg(self.keys.0.len()).arg(&self.keys.0);
            write(cmd);
        };
        let answer = self.shared().link.run(script, with_keys, patience).await;
        answer.map_err(|failure| self.error(script, failure))
    }

    fn error(&self, operation: &'static str, failure: Failure) -> Error {
        let semaphore = self.name.clone();
        match failure {
            Failure::NoAnswer { elapsed, last } => {
                Error::Unavailable { semaphore, operation, elapsed, source: last }
            }
            Failure::Refused(source) => match too_heavy(&source) {
                Some((weight, limit)) => Error::TooHeavy { semaphore, weight, limit },
                None => Error::Refused { semaphore, operation, source },
            },
        }
    }

    /// Declares the limit of the configuration, the first time.
    pub(crate) async fn declare(self: &Arc<Self>, patience: Duration) -> Result<(), Error> {
        let started = Instant::now();
        let declared = self.declared.get_or_try_init(|| self.declare_now(patience));
        // Whoever comes while another one tries waits for that, but no longer than for itself.
        let declared = tokio::time::timeout(patience, declared).await.unwrap_or_else(|_| {
            let last = (ErrorKind::Io, "the limit could not be declared").into();
            Err(self.error("limit", Failure::NoAnswer { elapsed: started.elapsed(), last }))
        });
        declared.map(|_| ())
    }

    async fn declare_now(self: &Arc<Self>, patience: Duration) -> Result<(), Error> {
        let (action, ours) = match self.settings.limit {
            Limit::Declared(limit) => (LimitAction::Declare(limit), i64::from(limit)),
            // Whatever was declared before does not count beside a limit at run time.
            Limit::Initial(permits) => (LimitAction::Initial(permits), -1),
        };
        let limits = self.limit(action, patience).await?;
        if ours >= 0 && ![-1, ours].contains(&limits.declared_before) {
            tracing::warn!(
                semaphore = self.name,
                declared = ours,
                before = limits.declared_before,
                "another client declared another limit; the newest one is in force"
            );
        }
        Ok(())
    }

    /// Asks for claims that are new or wait in the queue, at most 1,000.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        claims: &[Arc<Claim>],
        otherwise: Otherwise,
        patience: Duration,
    ) -> Result<Answer<AcquireReply>, Error> {
        let shared = self.shared();
        let limit = self.settings.limit;
        let kind = match limit {
            Limit::Declared(_) => "declared",
            Limit::Initial(_) => "initial",
        };
        let lease = self.settings.first_lease();
        let answer: Answer<Vec<i64>> = self
            .call("acquire", patience, |cmd| {
                cmd.arg(kind).arg(limit.number()).arg(&shared.channel).arg("publish");
                cmd.arg(millis(shared.settings.liveness));
                for claim in claims {
                    cmd.arg(&claim.id).arg(claim.weight).arg(millis(lease));
                    match (otherwise, claim.place()) {
                        (Otherwise::Refuse, _) => cmd.arg("try"),
                        (Otherwise::Queue, Some(place)) => cmd.arg(place.ticket),
                        (Otherwise::Queue, None) => cmd.arg("wait"),
                    };
                }
            })
            .await?;
        let reply = AcquireReply {
            server_time: answer.reply[0],
            wake_in: wake_in(answer.reply[1]),
            requests: answer.reply[2..].chunks_exact(3).map(acquired).collect(),
        };
        Ok(answer.with(reply))
    }

    /// A script that stopped at its bound wants `wake` at once.
    fn heed_bound(self: &Arc<Self>, wake_in: i64) {
        if wake_in == 0 {
            self.wake_at(Instant::now());
        }
    }

    /// Answers for each id whether it held a permit.
    pub(crate) async fn release(
        self: &Arc<Self>,
        ids: &[String],
        how: How,
        patience: Duration,
    ) -> Result<Answer<Vec<bool>>, Error> {
        let answer: Answer<Vec<i64>> = self
            .call("release", patience, |cmd| {
                cmd.arg(match how {
                    How::Return => "return",
                    How::Consume => "consume",
                });
                cmd.arg(ids);
            })
            .await?;
        self.heed_bound(answer.reply[1]);
        let reply = answer.reply[2..].iter().map(|status| *status == 1).collect();
        Ok(answer.with(reply))
    }

    /// Answers for each id whether it is still held.
    pub(crate) async fn refresh(
        self: &Arc<Self>,
        leases: &[(&str, Duration)],
        patience: Duration,
    ) -> Result<Answer<Vec<bool>>, Error> {
        let answer: Answer<Vec<i64>> = self
            .call("refresh", patience, |cmd| {
                for (id, duration) in leases {
                    cmd.arg(id).arg(millis(*duration));
                }
            })
            .await?;
        self.heed_bound(answer.reply[1]);
        let reply = answer.reply[2..].iter().map(|end| *end > 0).collect();
        Ok(answer.with(reply))
    }

    /// Answers when to call again, and the length of the queue.
    pub(crate) async fn wake(&self) -> Result<(Option<Duration>, u64), Error> {
        let patience = self.shared().settings.patience();
        let answer: Answer<(i64, i64, u64)> = self.call("wake", patience, |_| {}).await?;
        let (_, next, queued) = answer.reply;
        Ok((wake_in(next), queued))
    }

    pub(crate) async fn limit(
        self: &Arc<Self>,
        action: LimitAction,
        patience: Duration,
    ) -> Result<Limits, Error> {
        // One id for all attempts: a repeated "add" counts once.
        let id = uuid::Uuid::new_v4().simple().to_string();
        let answer: Answer<(i64, i64, i64, i64, i64, i64)> = self
            .call("limit", patience, |cmd| {
                match action {
                    LimitAction::Declare(limit) => cmd.arg("declare").arg(limit),
                    LimitAction::Initial(limit) => cmd.arg("initial").arg(limit),
                    LimitAction::Set(limit) => cmd.arg("set").arg(limit),
                    LimitAction::Add(permits) => cmd.arg("add").arg(permits).arg(&id),
                    LimitAction::Clear => cmd.arg("clear"),
                };
            })
            .await?;
        let (_, next, in_force, before, _, declared_before) = answer.reply;
        self.heed_bound(next);
        Ok(Limits { in_force, before, declared_before })
    }

    pub(crate) async fn inspect_page(
        &self,
        holders: (u64, u64),
        waiters: (u64, u64),
    ) -> Result<InspectReply, Error> {
        let patience = self.shared().settings.patience();
        let write = |cmd: &mut Cmd| {
            cmd.arg(holders.0).arg(holders.1).arg(waiters.0).arg(waiters.1);
        };
        Ok(self.call("inspect", patience, write).await?.reply)
    }
}

/// As the script answers: time, limit, declared, runtime, held, members, queued, sequence, then the
/// holders and the waiters.
pub(crate) type InspectReply = (i64, i64, i64, i64, i64, u64, u64, u64, Vec<Value>, Vec<Value>);

fn wake_in(reply: i64) -> Option<Duration> {
    u64::try_from(reply).ok().map(Duration::from_millis)
}

fn acquired(reply: &[i64]) -> Acquired {
    match *reply {
        [1, token, _] => Acquired::Granted { token: token as u64 },
        [2, ticket, position] => {
            Acquired::Queued(Place { ticket: ticket as u64, position: position as u64 })
        }
        _ => Acquired::Refused,
    }
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis().clamp(1, u64::MAX.into()) as u64
}

/// Reads weight and limit off `SEM_TOO_HEAVY ARGV[7] (weight) is 8, the limit is 5`.
fn too_heavy(error: &redis::RedisError) -> Option<(u32, u32)> {
    if error.code() != Some("SEM_TOO_HEAVY") {
        return None;
    }
    let (weight, limit) = error.detail()?.split_once(" is ")?.1.split_once(", the limit is ")?;
    let limit = limit.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((weight.parse().ok()?, limit.parse().ok()?))
}
