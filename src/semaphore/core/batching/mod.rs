//! Batching: sends the requests of this process to one script of one semaphore.
//!
//! Requests that arrive at the same moment are sent in one call, in order of arrival, even if other
//! calls are under way: see [`dispatch`]. A task of the I/O runtime makes the calls. So a caller
//! that is dropped, or not polled for a while, delays no other caller.
//!
//! With several calls under way, three rules keep the order:
//!
//! - Two requests of one kind for the same acquisition are never under way at the same time. The
//!   release of an acquisition is sent after its acquire has ended, and so never overtakes the
//!   acquire.
//! - Requests are numbered as they arrive. Failed requests are put back in the order of their
//!   numbers, and no new request is sent before them.
//! - Each request keeps its own deadline. A request under way fails at its deadline, even if its
//!   call continues for other requests.
//!
//! The task that makes a call enters all acquisitions of the call into the semaphore's ledger. If
//! each request had its own task, the ledger's memory would move between CPU cores.

mod call;
mod dispatch;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use redis::{Cmd, RedisError};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::error::Error;
use crate::lock::Lock;
use crate::protocol::MAX_BATCH;
use crate::runtime::{Deadline, is_current};
use crate::semaphore::ledger::{ACQUIRE, Calls, Kinds};
use crate::server::{CallError, Failure};

use super::Core;
use dispatch::Dispatch;

/// One request to a script that takes many requests.
pub(crate) trait Request: Send + Sync + Sized + 'static {
    const SCRIPT: &'static str;
    /// The bit that stands for this kind of request.
    const KIND: Kinds;
    /// A request is not sent while its acquisition has a request of these kinds under way.
    const AFTER: Kinds = Self::KIND;
    /// The maximum number of calls that are under way at the same time.
    const MAX_CALLS: usize = 64;
    /// The name of these calls in metrics.
    const CALLED: &'static str = Self::SCRIPT;
    type Reply: Send + 'static;

    /// The name of the operation in errors.
    fn operation(&self) -> &'static str {
        Self::SCRIPT
    }

    fn batcher(core: &Core) -> &Batcher<Self>;

    /// The state of the acquisition's calls, which [`AFTER`](Self::AFTER) refers to.
    fn calls(&self) -> &Calls;

    /// Whether this request may be in the same call as `first`.
    fn joins(&self, _first: &Self, _core: &Core) -> bool {
        true
    }

    /// Whether the request can be omitted: no caller needs the reply, and the omission does no
    /// harm.
    fn is_unneeded(&self, _core: &Core) -> bool {
        false
    }

    /// Called when these requests are sent.
    fn sending<'a>(_core: &Core, _requests: impl Iterator<Item = &'a Self>) {}

    /// Writes the arguments that precede the arguments of the requests.
    fn write_first(&self, _core: &Core, _cmd: &mut Cmd) {}

    fn write(&self, core: &Core, cmd: &mut Cmd);

    /// The timeout of a call.
    fn longest_call(core: &Core) -> Duration {
        core.context.settings.response_timeout
    }

    /// Makes a call. The releases of the permits and requests that were given up before `mark` are
    /// sent first.
    fn attempt(
        core: &Core,
        mark: u64,
        write: impl Fn(&mut Cmd) + Send + Sync,
        limit: Duration,
    ) -> impl Future<Output = Result<Vec<i64>, CallError>> + Send {
        core.attempt(mark, Self::SCRIPT, write, limit)
    }

    /// Reads the reply to a batch of `count` requests: one result for each request.
    fn read(core: &Arc<Core>, reply: &[i64], count: usize) -> Vec<Self::Reply>;

    /// Called with the replies to a call that was sent at `sent`. A caller may have dropped its
    /// request.
    fn replied<'a>(
        _core: &Arc<Core>,
        _sent: Instant,
        _responses: impl Iterator<Item = (&'a Self, &'a Self::Reply)> + Clone,
    ) {
    }

    /// Whether the server's error is about this request. Most errors are about all requests.
    fn is_meant(&self, _error: &RedisError) -> bool {
        true
    }

    fn error(&self, core: &Core, failure: Failure) -> Error {
        core.error(self.operation(), failure)
    }
}

pub(crate) struct Batcher<R: Request> {
    state: Lock<State<R>>,
    /// Notifies the dispatcher of a change.
    changed: Notify,
}

struct State<R: Request> {
    /// The waiting requests, sorted by number.
    waiting: VecDeque<Waiting<R>>,
    /// The number of requests so far.
    arrivals: u64,
    /// Whether the dispatcher wants a notification of the next request.
    wants_next: bool,
    /// Whether a task makes calls.
    is_dispatching: bool,
}

/// A reply, and the time when its call was sent. A holder counts its lease from this time.
pub(crate) struct Response<T> {
    pub(crate) sent: Instant,
    pub(crate) reply: T,
    /// Whether an earlier attempt got no reply, and may have been executed, too.
    pub(crate) is_repeated: bool,
}

enum Outcome<R: Request> {
    Response(Response<R::Reply>),
    /// In a box, because every outcome is as large as the largest variant.
    Failed(Box<Error>),
}

struct Waiting<R: Request> {
    /// The number in the order of arrival.
    number: u64,
    request: R,
    deadline: Deadline,
    /// Whether an earlier attempt may have been executed.
    is_repeated: bool,
    /// The error of the last attempt that a deadline did not cut short.
    last: Option<Box<CallError>>,
    reply: oneshot::Sender<Outcome<R>>,
}

/// The next step of the dispatcher.
enum Next<R: Request> {
    Send(Batch<R>),
    /// Wait until a call ends, a pause ends, or [`Batcher::changed`] sends a notification.
    Rest,
    Done,
}

/// Requests that are under way until the batch is dropped.
struct Batch<R: Request> {
    core: Arc<Core>,
    /// The releases of everything that was given up before this mark precede the batch. The mark is
    /// taken after the requests have arrived, because the program may have given something up
    /// before. The mark is taken before the requests are under way. So a batch never waits for the
    /// release of one of its own requests, and no two batches wait for each other.
    mark: u64,
    requests: Vec<Waiting<R>>,
}

impl<R: Request> Default for Batcher<R> {
    fn default() -> Self {
        let state = Lock::new(State {
            waiting: VecDeque::new(),
            arrivals: 0,
            wants_next: false,
            is_dispatching: false,
        });
        Self { state, changed: Notify::new() }
    }
}

impl Core {
    /// Sends a request, alone or with others, and retries it after transient failures until the
    /// deadline. A task of the I/O runtime makes the calls.
    pub(crate) async fn ask<R: Request>(
        self: &Arc<Self>,
        request: R,
        deadline: Deadline,
    ) -> Result<Response<R::Reply>, Error> {
        let (reply, response) = oneshot::channel();
        let (is_repeated, last) = (false, None);
        Batcher::enter(self, Waiting { number: 0, request, deadline, is_repeated, last, reply })?;
        match response.await {
            Ok(Outcome::Response(response)) => Ok(response),
            Ok(Outcome::Failed(error)) => Err(*error),
            // The request was omitted, or the I/O runtime has ended.
            Err(_) => Err(Error::Shutdown),
        }
    }
}

impl<R: Request> Batcher<R> {
    /// Adds a request, and starts the dispatcher unless it runs.
    fn enter(core: &Arc<Core>, mut waiting: Waiting<R>) -> Result<(), Error> {
        let batcher = R::batcher(core);
        let mut state = batcher.state.lock();
        // `check_process` makes a system call, which would be too slow for every request. The check
        // can be omitted only if a dispatcher runs. In a forked process, `is_dispatching` may stay
        // true without a dispatcher, but callers are never in the I/O runtime.
        if !state.is_dispatching || !is_current(core.context.runtime()) {
            core.context.check_process()?;
        }
        state.arrivals += 1;
        waiting.number = state.arrivals;
        state.waiting.push_back(waiting);
        let was_dispatching = std::mem::replace(&mut state.is_dispatching, true);
        let is_wanted = std::mem::take(&mut state.wants_next);
        drop(state);
        if !was_dispatching {
            core.context.spawn(Dispatch::<R>::new(core).run().boxed());
        } else if is_wanted {
            batcher.changed.notify_one();
        }
        Ok(())
    }

    /// Returns the next step. `may_send` is true if a call may be sent now. `is_idle` is true if no
    /// call is under way.
    fn next(&self, core: &Arc<Core>, may_send: bool, is_idle: bool) -> Next<R> {
        // Dropped after the lock: see `abandon`.
        let mut unneeded = Vec::new();
        let mut state = self.state.lock();
        if may_send {
            let mark = core.releases.mark();
            let requests = state.take(core, &mut unneeded);
            if !requests.is_empty() {
                return Next::Send(Batch { core: core.clone(), mark, requests });
            }
        }
        if is_idle && state.waiting.is_empty() {
            state.is_dispatching = false;
            return Next::Done;
        }
        state.wants_next = may_send;
        Next::Rest
    }

    /// Notifies the dispatcher: requests that were kept back may be sent now.
    pub(crate) fn kept_may_go(&self) {
        self.changed.notify_one();
    }

    /// Puts requests back in the order of arrival.
    fn put_back(&self, requests: Vec<Waiting<R>>) {
        let mut state = self.state.lock();
        state.waiting.extend(requests);
        // Requests with higher numbers may already have failed and been put back.
        state.waiting.make_contiguous().sort_by_key(|waiting| waiting.number);
    }

    /// Removes and returns the requests that must not wait longer.
    fn sort_out(&self, waits_on: impl Fn(&Waiting<R>) -> bool) -> VecDeque<Waiting<R>> {
        let mut state = self.state.lock();
        let all = std::mem::take(&mut state.waiting);
        let (waiting, out) = all.into_iter().partition(waits_on);
        state.waiting = waiting;
        out
    }

    /// Ends all requests, because the I/O runtime has ended.
    fn abandon(&self) {
        let mut state = self.state.lock();
        state.is_dispatching = false;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        // Dropping the senders wakes the callers. Their wakers may run any code, so the lock was
        // released first.
        drop(waiting);
    }
}

impl<R: Request> State<R> {
    /// Takes the requests of one call, in order of arrival. Moves requests that can be omitted to
    /// `unneeded`.
    fn take(&mut self, core: &Core, unneeded: &mut Vec<Waiting<R>>) -> Vec<Waiting<R>> {
        let mut batch: Vec<Waiting<R>> = Vec::with_capacity(self.waiting.len().min(MAX_BATCH));
        let mut kept = Vec::new();
        while batch.len() < MAX_BATCH {
            let joins = |next: &Waiting<R>| {
                batch.first().is_none_or(|first| next.request.joins(&first.request, core))
            };
            if !self.waiting.front().is_some_and(joins) {
                break;
            }
            let Some(next) = self.waiting.pop_front() else { break };
            let calls = next.request.calls();
            if next.request.is_unneeded(core) {
                // If it began, the release of its ID would be kept back until it ends.
                unneeded.push(next);
            } else if !calls.begin(R::KIND, R::AFTER) {
                kept.push(next);
            } else if next.request.is_unneeded(core) {
                // This check is repeated after `begin`, because a caller first gives up its request,
                // and then checks whether the request is under way.
                if calls.end(R::KIND) {
                    core.kept_may_go();
                }
                unneeded.push(next);
            } else {
                batch.push(next);
            }
        }
        for next in kept.into_iter().rev() {
            self.waiting.push_front(next);
        }
        batch
    }
}

impl<R: Request> Batch<R> {
    /// Records that the call got no valid reply. It may still reach the server, and may then create
    /// requests or permits.
    fn set_in_doubt(&self) {
        if R::KIND == ACQUIRE {
            self.requests.iter().for_each(|waiting| waiting.request.calls().set_in_doubt());
        }
    }

    fn end(mut self) -> Vec<Waiting<R>> {
        self.end_all();
        std::mem::take(&mut self.requests)
    }

    fn end_all(&self) {
        let mut was_one_kept = false;
        for Waiting { request, .. } in &self.requests {
            was_one_kept |= request.calls().end(R::KIND);
        }
        if was_one_kept {
            self.core.kept_may_go();
        }
    }
}

impl<R: Request> Drop for Batch<R> {
    fn drop(&mut self) {
        self.set_in_doubt();
        self.end_all();
    }
}

impl<R: Request> Waiting<R> {
    /// Returns the outcome for a request whose deadline has passed. The outcome contains the last
    /// recorded failure of this request, or `failure` if none was recorded.
    fn out_of_patience(&self, core: &Core, failure: &CallError) -> Outcome<R> {
        let last = self.last.as_deref().unwrap_or(failure).clone();
        self.failed(core, Failure::NoResponse { elapsed: self.deadline.elapsed(), last })
    }

    fn failed(&self, core: &Core, failure: Failure) -> Outcome<R> {
        Outcome::Failed(Box::new(self.request.error(core, failure)))
    }
}
