//! The requests that go out in batches: to acquire, release and refresh. `docs/protocol.md` tells
//! what arguments and replies mean.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, RedisError};

use crate::batching::{Lane, Lanes, Out, Owner, Request};
use crate::error::Error;
use crate::protocol::{Acquired, Acquires, millis, released, too_heavy, wake_in_of};
use crate::semaphore::claim::{self, Claim};
use crate::semaphore::gate::Gate;
use crate::semaphore::lease::Grant;
use crate::semaphore::worker::Task;
use crate::server::Failure;

/// Where a request goes that finds no room.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Otherwise {
    Refuse,
    /// With a head start, in ms.
    Queue {
        ahead: u32,
    },
    /// Stays in the queue: a sign of life.
    Stay,
}

pub(crate) struct Acquire {
    pub(crate) claim: Arc<Claim>,
    pub(crate) otherwise: Otherwise,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct AcquireReply {
    /// The server's clock, in ms.
    pub(crate) server_time: i64,
    /// The script stopped at its bound: there is more to purge.
    pub(crate) has_more: bool,
    pub(crate) acquired: Acquired,
}

impl Request for Acquire {
    const SCRIPT: &'static str = "acquire";
    const LANE: Lanes = claim::ACQUIRE;
    const AFTER: Lanes = claim::ACQUIRE;
    type Owner = Gate;
    type Reply = AcquireReply;

    fn lane(gate: &Gate) -> &Lane<Self> {
        &gate.acquires
    }

    fn operation(&self) -> &'static str {
        match self.otherwise {
            Otherwise::Refuse => "try_acquire",
            Otherwise::Queue { .. } | Otherwise::Stay => "acquire",
        }
    }

    fn out(&self) -> &Out {
        &self.claim.out
    }

    fn is_abandoned(&self) -> bool {
        self.claim.is_over()
    }

    fn is_over(&self, gate: &Gate) -> bool {
        let is_settled = matches!(self.otherwise, Otherwise::Stay) && self.claim.is_settled();
        self.claim.is_over() || is_settled || gate.client.is_closed()
    }

    /// Listen first, then queue: the message may overtake the reply.
    fn sending<'a>(gate: &Gate, requests: impl Iterator<Item = &'a Self>) {
        let mut waits = gate.shared().waits();
        for request in requests {
            if matches!(request.otherwise, Otherwise::Queue { .. }) && !request.claim.is_over() {
                waits.insert(request.claim.number, request.claim.clone());
            }
        }
    }

    fn answered<'a>(
        gate: &Arc<Gate>,
        sent: Instant,
        answers: impl Iterator<Item = (&'a Self, &'a AcquireReply)> + Clone,
    ) {
        let granted = answers.clone().filter_map(|(request, reply)| {
            matches!(reply.acquired, Acquired::Granted { .. }).then_some(&request.claim)
        });
        // In this order, so that a message finds each of them in one of the two tables.
        gate.hold(granted.clone());
        let mut waits = gate.shared().waits();
        for claim in granted {
            waits.remove(&claim.number);
        }
        drop(waits);
        for (request, reply) in answers {
            if matches!(request.otherwise, Otherwise::Stay) {
                heed(&request.claim, sent, reply);
            }
        }
    }

    fn write_first(&self, gate: &Gate, cmd: &mut Cmd) {
        gate.write_configuration(cmd);
        cmd.arg(millis(gate.shared().settings.liveness));
    }

    fn write(&self, _gate: &Gate, cmd: &mut Cmd) {
        cmd.arg(&self.claim.word);
        match (self.otherwise, self.claim.place()) {
            (Otherwise::Refuse, _) => cmd.arg("try"),
            (_, Some(place)) => cmd.arg(place.ticket),
            (Otherwise::Queue { ahead: ahead @ 1.. }, None) => cmd.arg(format!("+{ahead}")),
            (_, None) => cmd.arg("wait"),
        };
    }

    fn read(gate: &Arc<Gate>, reply: &[i64], count: usize) -> Vec<AcquireReply> {
        let Some(Acquires { server_time, wake_in, declared_before, answers }) =
            Acquires::read(reply, count)
        else {
            return Vec::new();
        };
        gate.was_declared(declared_before);
        gate.plan_wake(wake_in_of(wake_in), &answers);
        let reply = |acquired| AcquireReply { server_time, has_more: wake_in == 0, acquired };
        answers.into_iter().map(reply).collect()
    }

    /// One that is too heavy may hold all the same, if its reply or message was lost. It fails
    /// nevertheless, and is given back: asking for each by itself would hold up all the others.
    fn is_meant(&self, error: &RedisError) -> bool {
        too_heavy(error).is_none_or(|(_, limit)| self.claim.weight > limit)
    }

    fn error(&self, gate: &Gate, failure: Failure) -> Error {
        match gate.error(self.operation(), failure) {
            // The server names one request of the batch.
            Error::TooHeavy { semaphore, limit, .. } => {
                Error::TooHeavy { semaphore, weight: self.claim.weight, limit }
            }
            error => error,
        }
    }

    fn in_doubt(&self) {
        self.claim.set_in_doubt();
    }
}

/// The answer for a claim that waits, and was asked for again: it counts though it came so late
/// that whoever asked has given up.
fn heed(claim: &Arc<Claim>, sent: Instant, reply: &AcquireReply) {
    let is_lost = claim.lease().is_some_and(|lease| lease.is_lost());
    match reply.acquired {
        Acquired::Refused => {}
        // It was lost while we asked: the server may have it anew.
        _ if is_lost => {
            claim.gate.give_back(claim, How::Return);
        }
        // The message of a hand-off that followed has overtaken this.
        Acquired::Queued(_) if claim.is_settled() => {}
        Acquired::Granted { token } => claim.settle(Ok(Grant { token, since: sent })),
        Acquired::Queued(place) => claim.queued(sent, reply.server_time, place),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum How {
    Return,
    /// The permit is used up: its weight comes off the limit.
    Consume,
}

pub(crate) struct Release {
    pub(crate) claim: Arc<Claim>,
    pub(crate) how: How,
}

impl Request for Release {
    const SCRIPT: &'static str = "release";
    const LANE: Lanes = claim::RELEASE;
    const AFTER: Lanes = claim::ACQUIRE | claim::RELEASE;
    type Owner = Gate;
    /// Whether it held a permit.
    type Reply = bool;

    fn lane(gate: &Gate) -> &Lane<Self> {
        &gate.releases
    }

    fn operation(&self) -> &'static str {
        match self.how {
            How::Return => "release",
            How::Consume => "forget",
        }
    }

    fn out(&self) -> &Out {
        &self.claim.out
    }

    fn is_abandoned(&self) -> bool {
        self.claim.is_over()
    }

    fn joins(&self, first: &Self) -> bool {
        self.how == first.how
    }

    fn write_first(&self, _gate: &Gate, cmd: &mut Cmd) {
        cmd.arg(match self.how {
            How::Return => "return",
            How::Consume => "consume",
        });
    }

    fn write(&self, _gate: &Gate, cmd: &mut Cmd) {
        cmd.arg(&self.claim.word);
    }

    /// They were held until now: a message that comes late may not take a permit that is to be
    /// consumed. What may still reach the server has done so, or never will, when they are released
    /// again.
    fn answered<'a>(
        gate: &Arc<Gate>,
        _sent: Instant,
        answers: impl Iterator<Item = (&'a Self, &'a bool)> + Clone,
    ) {
        gate.hold_no_more(answers.clone().map(|(request, _)| &*request.claim));
        for (request, _) in answers.filter(|(request, _)| request.claim.take_doubt()) {
            gate.client.send(Task::ReleaseAgain(request.claim.clone()));
        }
    }

    fn read(gate: &Arc<Gate>, reply: &[i64], count: usize) -> Vec<bool> {
        released(statuses(gate, reply), count)
    }
}

pub(crate) struct Refresh {
    pub(crate) claim: Arc<Claim>,
    pub(crate) duration: Duration,
    /// It may be part of an acquire.
    pub(crate) operation: &'static str,
}

impl Request for Refresh {
    const SCRIPT: &'static str = "refresh";
    const LANE: Lanes = claim::REFRESH;
    const AFTER: Lanes = claim::REFRESH;
    type Owner = Gate;
    /// Whether it is still held.
    type Reply = bool;

    fn lane(gate: &Gate) -> &Lane<Self> {
        &gate.refreshes
    }

    fn operation(&self) -> &'static str {
        self.operation
    }

    fn out(&self) -> &Out {
        &self.claim.out
    }

    fn is_abandoned(&self) -> bool {
        self.claim.is_over()
    }

    fn write_first(&self, _gate: &Gate, _cmd: &mut Cmd) {}

    fn write(&self, _gate: &Gate, cmd: &mut Cmd) {
        cmd.arg(&self.claim.word).arg(millis(self.duration));
    }

    fn read(gate: &Arc<Gate>, reply: &[i64], _count: usize) -> Vec<bool> {
        statuses(gate, reply).iter().map(|end| *end > 0).collect()
    }
}

/// What follows server time and `wake_in`, which is heeded.
fn statuses<'a>(gate: &Arc<Gate>, reply: &'a [i64]) -> &'a [i64] {
    let [_, wake_in, statuses @ ..] = reply else {
        return &[];
    };
    gate.heed_bound(*wake_in);
    statuses
}
