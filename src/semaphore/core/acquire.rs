//! The acquire request, which is sent in batches, and the handling of its replies.

use std::sync::Arc;

use redis::{Cmd, RedisError};
use tokio::time::Instant;

use super::batching::{Batcher, Request};
use super::{Core, Job};
use crate::error::Error;
use crate::protocol::{Acquired, acquired, id, millis, too_heavy, wake_in_of};
use crate::semaphore::lease::Grant;
use crate::semaphore::ledger::{self, Acquisition, Calls, Kinds};
use crate::server::Failure;

/// The effect of a request that cannot be granted immediately.
#[derive(Debug, Clone, Copy)]
pub(crate) enum IfFull {
    /// Ends the request without a permit. The value is the name of the method that the caller used.
    Refuse(&'static str),
    /// Queues the request.
    Queue,
    /// Keeps the request in the queue: a heartbeat.
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
    /// Whether the script has stopped at its bound for the work of one call. Another call continues
    /// the work.
    pub(crate) has_more: bool,
    pub(crate) acquired: Acquired,
}

impl Request for Acquire {
    const SCRIPT: &'static str = "acquire";
    const KIND: Kinds = ledger::ACQUIRE;
    type Reply = AcquireReply;

    fn batcher(core: &Core) -> &Batcher<Self> {
        &core.acquire_batcher
    }

    fn operation(&self) -> &'static str {
        match self.if_full {
            IfFull::Refuse(operation) => operation,
            IfFull::Queue | IfFull::Stay => "acquire",
        }
    }

    fn calls(&self) -> &Calls {
        &self.acquisition.calls
    }

    fn is_unneeded(&self, core: &Core) -> bool {
        let is_resolved = matches!(self.if_full, IfFull::Stay) && !self.acquisition.is_waiting();
        self.acquisition.is_ended() || is_resolved || core.closing.is_ended()
    }

    /// Requests that are heavier than the configured limit are batched separately. In a shared
    /// batch, the server would reject the whole call because of one such request. The lighter
    /// requests would then be sent again, behind requests that arrived later.
    fn joins(&self, first: &Self, core: &Core) -> bool {
        let limit = core.settings.limit.number();
        (self.acquisition.weight > limit) == (first.acquisition.weight > limit)
    }

    /// Enters the requests into the ledger before they are sent, because the grant message may
    /// overtake the reply.
    fn sending<'a>(core: &Core, requests: impl Iterator<Item = &'a Self>) {
        let may_be_queued = |request: &&Self| matches!(request.if_full, IfFull::Queue);
        core.ledger.enter(requests.filter(may_be_queued).map(|request| &request.acquisition));
    }

    fn replied<'a>(
        core: &Arc<Core>,
        sent: Instant,
        responses: impl Iterator<Item = (&'a Self, &'a AcquireReply)> + Clone,
    ) {
        let (mut granted, mut is_any_queued) = (Vec::new(), false);
        for (Self { acquisition, .. }, reply) in responses {
            let is_lost = acquisition.lease().is_some_and(|lease| lease.is_lost());
            match reply.acquired {
                Acquired::NotGranted => {}
                // The permit was lost during the call, and the server may have granted another
                // permit to the same ID.
                _ if is_lost => core.give_back(acquisition),
                Acquired::Granted { token } => {
                    acquisition.resolve(Ok(Grant { token, since: sent }));
                    granted.push(acquisition);
                }
                Acquired::Queued(place) => {
                    acquisition.queued(sent, reply.server_time, place);
                    is_any_queued = true;
                }
            }
        }
        core.hold(granted.into_iter(), sent);
        if is_any_queued {
            core.plan(Job::Beat, Instant::now() + core.context.settings.heartbeat_interval());
        }
    }

    fn write_first(&self, core: &Core, cmd: &mut Cmd) {
        core.write_configuration(cmd);
        cmd.arg(millis(core.context.settings.heartbeat_timeout));
    }

    fn write(&self, _core: &Core, cmd: &mut Cmd) {
        self.acquisition.calls.set_written();
        cmd.arg(&self.acquisition.id);
        match (self.if_full, self.acquisition.place()) {
            (IfFull::Refuse(_), _) => cmd.arg("try"),
            (_, Some(place)) => cmd.arg(place.ticket),
            (_, None) => match id::head_start_of(&self.acquisition.id) {
                0 => cmd.arg("wait"),
                head_start => cmd.arg(format!("+{head_start}")),
            },
        };
    }

    fn read(core: &Arc<Core>, reply: &[i64], count: usize) -> Vec<AcquireReply> {
        let [server_time, wake_in, declared_before, ref responses @ ..] = *reply else {
            return Vec::new();
        };
        let responses = acquired(responses, count);
        if responses.len() != count {
            return Vec::new();
        }
        core.note_declared(declared_before);
        if wake_in == 0 || responses.iter().any(|response| matches!(response, Acquired::Queued(_)))
        {
            core.plan_wake(wake_in_of(wake_in));
        }
        let reply = |acquired| AcquireReply { server_time, has_more: wake_in == 0, acquired };
        responses.into_iter().map(reply).collect()
    }

    /// Returns whether the error is about this request. If an earlier reply or message was lost, a
    /// request that is too heavy now may already hold a permit. The request still fails, and its
    /// permit is released. The alternative, a separate call for each request, would delay all other
    /// requests.
    fn is_meant(&self, error: &RedisError) -> bool {
        too_heavy(error).is_none_or(|(_, limit)| self.acquisition.weight > limit)
    }

    fn error(&self, core: &Core, failure: Failure) -> Error {
        match core.error(self.operation(), failure) {
            // The server's error names only one request of the batch.
            Error::TooHeavy { semaphore, limit, .. } => {
                Error::TooHeavy { semaphore, weight: self.acquisition.weight, limit }
            }
            error => error,
        }
    }
}
