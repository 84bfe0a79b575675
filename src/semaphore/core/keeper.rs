//! The keeper: a task that sends pending releases even if no other call is made. The keeper ends
//! when no release is left.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::Cmd;
use tokio::time::Instant;

use super::Core;
use crate::context::Remaining;
use crate::error::{Error, cause_of};
use crate::releases::{Ending, Entry, ReleaseCall};
use crate::runtime::{Deadline, reached};
use crate::server::{Backoff, CallError, Failure};

pub(super) struct Keeper {
    core: Arc<Core>,
    is_done: bool,
    backoff: Backoff,
    /// After a failure, no call is sent before this time.
    paused_until: Option<Instant>,
    /// Why the last failed call of each script failed.
    failures: HashMap<&'static str, String>,
    was_refused: bool,
}

impl Core {
    pub(super) fn keep_releases(self: &Arc<Self>, needs_keeper: bool) {
        if needs_keeper {
            let backoff = Backoff::of_connections(self.context.settings.response_timeout);
            let keeper = Keeper {
                core: self.clone(),
                is_done: false,
                backoff,
                paused_until: None,
                failures: HashMap::new(),
                was_refused: false,
            };
            self.context.spawn_tracked(keeper.run());
        }
    }
}

impl Keeper {
    async fn run(mut self) {
        let (core, releases) = (self.core.clone(), self.core.releases.clone());
        let mut calls = FuturesUnordered::new();
        // If the program makes another call during this pause, that call also sends the releases.
        tokio::task::yield_now().await;
        loop {
            let mut change = pin!(releases.change());
            change.as_mut().enable();
            self.leave_expired();
            let next = self.paused_until.filter(|at| *at > Instant::now());
            if next.is_none() {
                let Some(new) = releases.work() else { break };
                calls.extend(new.into_iter().map(|call| attempt(&core, call)));
            }
            tokio::select! {
                biased;
                Some(ended) = calls.next() => self.ended(ended),
                () = change => {}
                () = reached(next) => {}
            }
        }
        self.is_done = true;
    }

    fn ended(&mut self, (mut call, response): Ended) {
        let (response, failure) = match response {
            Ok(reply) => (Ok(reply), None),
            Err(failure) => (Err(failure.error.clone()), Some(failure)),
        };
        if call.confirm(response) {
            self.backoff = Backoff::of_connections(self.core.context.settings.response_timeout);
            return;
        }
        self.paused_until = Some(Instant::now() + self.backoff.next());
        let Some(failure) = failure else { return };
        let server = failure.server.as_ref().map_or(String::new(), |server| format!("{server}: "));
        let reason = server + &cause_of(&failure.error).reason();
        self.failures.insert(call.script(), reason);
        // The rejection is logged once, because the retries may continue for days if the lease is
        // long.
        if !failure.is_transient() && !std::mem::replace(&mut self.was_refused, true) {
            let rejected = Failure::Rejected(failure.error);
            let error = self.core.error(call.ending.operation(), rejected);
            tracing::warn!(%error, "a background call was rejected; it is retried");
        }
    }

    /// Gives up releases that the server has not confirmed in time. By then, the leases of their
    /// permits have expired.
    fn leave_expired(&self) {
        let expired = self.core.releases.expired();
        if expired.is_empty() {
            return;
        }
        expired.iter().for_each(|entry| entry.given_up.left_to_lease(entry.ending));
        // Canceled requests need no warning. If this client sends no more heartbeats, the server
        // skips these requests. Otherwise the grant message makes this client release the permit.
        let permits = expired.iter().filter(|entry| entry.given_up.is_permit());
        let (left, unreleased): (Vec<_>, Vec<_>) =
            permits.partition(|entry| entry.ending == Ending::LetExpire);
        let text = "permits could not be released before their leases expired";
        self.warn(&unreleased, Ending::RETURN, text);
        let text = "the last refresh of permits left to expire failed; these permits expire early";
        self.warn(&left, Ending::LetExpire, text);
    }

    fn warn(&self, expired: &[&Arc<Entry>], ending: Ending, text: &str) {
        if !expired.is_empty() {
            let error = self.failures.get(ending.script());
            let (semaphore, permits) = (&self.core.name, expired.len());
            tracing::warn!(semaphore, permits, error, "{text}");
        }
    }
}

type Ended = (ReleaseCall, Result<Vec<i64>, CallError>);

async fn attempt(core: &Core, call: ReleaseCall) -> Ended {
    let (servers, limit) = (&core.context.servers, core.context.settings.response_timeout);
    let write = |cmd: &mut Cmd| call.write(cmd);
    let response = servers.attempt(core.slot, &call.alone(), call.script(), write, limit).await;
    (call, response)
}

impl Drop for Keeper {
    /// If the runtime ends before the work is done, delivers the remaining releases, and releases
    /// all waiting requests of this process. A permit that is dropped later starts another keeper.
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        self.core.context.end_all();
        let calls = self.core.releases.abandon();
        let requests = calls.iter().map(ReleaseCall::len).sum();
        if requests > 0 {
            let calls = deliver(self.core.clone(), calls).boxed();
            self.core.context.at_the_end(Remaining { requests, calls });
        }
    }
}

/// Makes these calls over a new connection: see
/// [`Context::at_the_end`](crate::context::Context::at_the_end). So the end of `main`, which drops
/// permits and then the runtime, loses no call if Redis replies in time.
async fn deliver(core: Arc<Core>, calls: Vec<ReleaseCall>) -> Result<(), Error> {
    let (servers, patience) = (&core.context.servers, core.context.settings.response_timeout);
    for call in &calls {
        let write = |cmd: &mut Cmd| call.write(cmd);
        let deadline = Deadline::after(patience);
        let response = servers.run(core.slot, &call.alone(), call.script(), write, deadline).await;
        let _: (Instant, Vec<i64>) =
            response.map_err(|failure| core.error(call.ending.operation(), failure))?;
    }
    Ok(())
}
