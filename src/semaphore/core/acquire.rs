//! Acquiring: the request that goes out in batches, and what becomes of the answers.

use std::sync::Arc;

use redis::{Cmd, RedisError};
use tokio::time::Instant;

use super::Core;
use crate::batching::{Batcher, InFlight, Kinds, Owner, Request};
use crate::error::Error;
use crate::protocol::{Acquired, ReleaseMode, acquired, millis, too_heavy, wake_in_of};
use crate::semaphore::acquisition::{self, Acquisition};
use crate::semaphore::lease::Grant;
use crate::server::Failure;

/// What becomes of a request that finds no permit free.
#[derive(Debug, Clone, Copy)]
pub(crate) enum IfFull {
    /// For a caller who knows it by that name.
    Refuse(&'static str),
    /// With a head start, in ms.
    Queue { head_start: u32 },
    /// It is in the queue: a heartbeat.
    Stay,
}

pub(crate) struct Acquire {
    pub(crate) acquisition: Arc<Acquisition>,
    pub(crate) if_full: IfFull,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct AcquireReply {
    /// The server's clock, in ms.
    pub(crate) server_time: i64,
    /// The script stopped at its bound: another call goes on from there.
    pub(crate) has_more: bool,
    pub(crate) acquired: Acquired,
}

impl Request for Acquire {
    const SCRIPT: &'static str = "acquire";
    const KIND: Kinds = acquisition::ACQUIRE;
    type Owner = Core;
    type Reply = AcquireReply;

    fn batcher(core: &Core) -> &Batcher<Self> {
        &core.acquires
    }

    fn operation(&self) -> &'static str {
        match self.if_full {
            IfFull::Refuse(operation) => operation,
            IfFull::Queue { .. } | IfFull::Stay => "acquire",
        }
    }

    fn in_flight(&self) -> &InFlight {
        &self.acquisition.in_flight
    }

    fn is_unneeded(&self, core: &Core) -> bool {
        let is_resolved = matches!(self.if_full, IfFull::Stay) && self.acquisition.is_resolved();
        self.acquisition.is_over() || is_resolved || core.closing.is_ended()
    }

    /// Those that may be too heavy go by themselves. In one call with them the others would fail,
    /// too, and go out again, behind those that came meanwhile.
    fn joins(&self, first: &Self, core: &Core) -> bool {
        let limit = core.settings.limit.number();
        (self.acquisition.weight > limit) == (first.acquisition.weight > limit)
    }

    /// Listen first, then queue: the message may overtake the reply.
    fn sending<'a>(core: &Core, requests: impl Iterator<Item = &'a Self>) {
        let mut waits = core.waits();
        for request in requests {
            if matches!(request.if_full, IfFull::Queue { .. }) && !request.acquisition.is_over() {
                waits.insert(request.acquisition.number, request.acquisition.clone());
            }
        }
    }

    fn answered<'a>(
        core: &Arc<Core>,
        sent: Instant,
        answers: impl Iterator<Item = (&'a Self, &'a AcquireReply)> + Clone,
    ) {
        let granted = answers.clone().filter_map(|(request, reply)| {
            matches!(reply.acquired, Acquired::Granted { .. }).then_some(&request.acquisition)
        });
        // In this order, so that a message finds each of them in one of the two tables.
        core.hold(granted.clone(), sent);
        let mut waits = core.waits();
        for acquisition in granted {
            waits.remove(&acquisition.number);
        }
        drop(waits);
        for (request, reply) in answers {
            if matches!(request.if_full, IfFull::Stay) {
                apply(core, &request.acquisition, sent, reply);
            }
        }
    }

    fn write_first(&self, core: &Core, cmd: &mut Cmd) {
        core.write_configuration(cmd);
        cmd.arg(millis(core.context.settings.heartbeat_timeout));
    }

    fn write(&self, _core: &Core, cmd: &mut Cmd) {
        self.acquisition.set_sent();
        cmd.arg(&self.acquisition.id);
        match (self.if_full, self.acquisition.place()) {
            (IfFull::Refuse(_), _) => cmd.arg("try"),
            (_, Some(place)) => cmd.arg(place.ticket),
            (IfFull::Queue { head_start: head_start @ 1.. }, None) => {
                cmd.arg(format!("+{head_start}"))
            }
            (_, None) => cmd.arg("wait"),
        };
    }

    fn read(core: &Arc<Core>, reply: &[i64], count: usize) -> Vec<AcquireReply> {
        let [server_time, wake_in, declared_before, ref answers @ ..] = *reply else {
            return Vec::new();
        };
        let answers = acquired(answers, count);
        if answers.len() != count {
            return Vec::new();
        }
        core.note_declared(declared_before);
        if wake_in == 0 || answers.iter().any(|answer| matches!(answer, Acquired::Queued(_))) {
            core.plan_wake(wake_in_of(wake_in));
        }
        let reply = |acquired| AcquireReply { server_time, has_more: wake_in == 0, acquired };
        answers.into_iter().map(reply).collect()
    }

    /// One that is too heavy may hold all the same, if its reply or message was lost. It fails
    /// nevertheless, and is given back: asking for each by itself would hold up all the others.
    fn is_meant(&self, error: &RedisError) -> bool {
        too_heavy(error).is_none_or(|(_, limit)| self.acquisition.weight > limit)
    }

    fn error(&self, core: &Core, failure: Failure) -> Error {
        match core.error(self.operation(), failure) {
            // The server names one request of the batch.
            Error::TooHeavy { semaphore, limit, .. } => {
                Error::TooHeavy { semaphore, weight: self.acquisition.weight, limit }
            }
            error => error,
        }
    }

    fn set_in_doubt(&self) {
        self.acquisition.set_in_doubt();
    }
}

/// The answer to a heartbeat: it counts though it came so late that whoever asked has given up.
fn apply(core: &Arc<Core>, acquisition: &Arc<Acquisition>, sent: Instant, reply: &AcquireReply) {
    let is_lost = acquisition.lease().is_some_and(|lease| lease.is_lost());
    match reply.acquired {
        Acquired::NotGranted => {}
        // It was lost while we asked: the server may have it anew.
        _ if is_lost => core.give_back(acquisition, ReleaseMode::Return),
        // The message of a hand-off that followed has overtaken this.
        Acquired::Queued(_) if acquisition.is_resolved() => {}
        Acquired::Granted { token } => acquisition.resolve(Ok(Grant { token, since: sent })),
        Acquired::Queued(place) => acquisition.queued(sent, reply.server_time, place),
    }
}
