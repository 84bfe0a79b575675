//! Types for the replies and the errors of scripts.

use std::collections::BTreeSet;

use redis::{FromRedisValue, RedisError, Value};

use super::name_of;
use test_support::scripts;

/// The reply of `acquire` for one request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Outcome {
    Granted { token: i64, end: i64 },
    Queued { ticket: i64, position: i64 },
    Refused,
}

use Outcome::{Granted, Queued, Refused};

impl Outcome {
    pub(super) fn token(self) -> i64 {
        let Granted { token, .. } = self else { panic!("{self:?} is not granted") };
        token
    }

    pub(super) fn ticket(self) -> i64 {
        let Queued { ticket, .. } = self else { panic!("{self:?} is not queued") };
        ticket
    }

    pub(super) fn position(self) -> i64 {
        let Queued { position, .. } = self else { panic!("{self:?} is not queued") };
        position
    }

    pub(super) fn is_granted(self) -> bool {
        matches!(self, Granted { .. })
    }
}

pub(super) fn outcomes(reply: &[i64]) -> Vec<Outcome> {
    let outcome = |integers: &[i64]| match *integers {
        [1, token, end] => Granted { token, end },
        [2, ticket, position] => Queued { ticket, position },
        [0, 0, 0] => Refused,
        _ => panic!("{integers:?} is no reply to a request"),
    };
    reply[3..].chunks(3).map(outcome).collect()
}

/// The reply of `inspect`. Each holder has a name, a weight and the rest of its lease. Each waiter
/// has a name, a weight and a waiting time. Idempotency keys are omitted.
#[derive(Debug, PartialEq)]
pub(super) struct Inspection {
    pub(super) now: i64,
    pub(super) limit: i64,
    pub(super) declared: i64,
    pub(super) runtime: i64,
    pub(super) held: i64,
    pub(super) members: i64,
    pub(super) queued: i64,
    pub(super) last: i64,
    pub(super) holders: Vec<(String, i64, i64)>,
    pub(super) waiters: Vec<(String, i64, i64)>,
    /// For each waiter, the time until its client counts as dead.
    pub(super) received: Vec<i64>,
}

impl FromRedisValue for Inspection {
    fn from_redis_value(value: Value) -> Result<Self, redis::ParsingError> {
        type Holders = Vec<(String, i64)>;
        type Waiters = Vec<(String, i64, i64)>;
        type Reply = (i64, i64, i64, i64, i64, i64, i64, i64, Holders, Waiters);
        let (now, limit, declared, runtime, held, members, queued, last, holders, waiters) =
            Reply::from_redis_value(value)?;
        let weighed =
            |(id, time): (String, i64)| (name_of(&id).to_owned(), scripts::weight(&id), time);
        let received = waiters.iter().map(|(_, _, received)| *received).collect();
        let waiters = waiters.into_iter().map(|(id, waited, _)| weighed((id, waited)));
        let waiters = waiters.collect();
        let holders = holders.into_iter().map(weighed).filter(|(_, weight, _)| *weight > 0);
        let holders = holders.collect();
        Ok(Self {
            now,
            limit,
            declared,
            runtime,
            held,
            members,
            queued,
            last,
            holders,
            waiters,
            received,
        })
    }
}

impl Inspection {
    pub(super) fn holder_ids(&self) -> BTreeSet<&str> {
        self.holders.iter().map(|(id, _, _)| id.as_str()).collect()
    }

    pub(super) fn waiter_ids(&self) -> Vec<&str> {
        self.waiters.iter().map(|(id, _, _)| id.as_str()).collect()
    }
}

#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) code: String,
    pub(super) detail: String,
}

impl From<RedisError> for Refusal {
    fn from(error: RedisError) -> Self {
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        Self { code: text(error.code()), detail: text(error.detail()) }
    }
}
