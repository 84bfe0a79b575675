//! Batching: what this process asks of one script of one semaphore.
//!
//! What is asked for at the same moment goes out as one call, in the order of arrival, beside the
//! calls that are under way: see [`dispatch`]. A request that comes alone is driven by its caller,
//! which saves a task and the wake-up of a thread. As soon as anybody else depends on it, a task
//! takes over: a caller that is dropped, or that is not polled for a while, holds nobody up.
//!
//! With several calls under way, order is kept by three rules. Requests of one kind of one
//! acquisition are never out at the same time, and its release goes out when its acquire is back,
//! so that none overtakes the other. Requests are numbered as they arrive: calls that fail are put
//! back in that order, and nothing new goes out past them. And each keeps its own patience: whoever
//! has none left hears so, also in the middle of a call that goes on for others.
//!
//! The requests of a call are entered into the semaphore's tables at once. One by one, each by its
//! own task, they would have the tables change from core to core.

mod call;
mod dispatch;
mod driver;
mod owner;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::{Cmd, RedisError};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::error::Error;
use crate::metrics::CallMeter;
use crate::runtime::Deadline;
use crate::server::{Answer, CallError, Failure};

pub(crate) use owner::{InFlight, Kinds, Owner};

/// The most requests in one call.
pub(crate) const MAX_BATCH: usize = 1000;

/// One request of a script that takes many.
pub(crate) trait Request: Send + Sync + Sized + 'static {
    const SCRIPT: &'static str;
    /// The bit of its batcher.
    const KIND: Kinds;
    /// It is not sent while its acquisition is out from one of these.
    const AFTER: Kinds = Self::KIND;
    /// The most calls that are out at the same time.
    const MAX_CALLS: usize = 64;
    /// What metrics name its calls.
    const CALLED: &'static str = Self::SCRIPT;
    type Owner: Owner;
    type Reply: Send + 'static;

    /// What was called for it, as errors name it.
    fn operation(&self) -> &'static str {
        Self::SCRIPT
    }

    fn batcher(owner: &Self::Owner) -> &Batcher<Self>;

    /// Of its acquisition: two requests of one never overtake each other.
    fn in_flight(&self) -> &InFlight;

    /// Whether both may be in one call.
    fn joins(&self, _first: &Self, _owner: &Self::Owner) -> bool {
        true
    }

    /// Nobody waits for the answer, and nothing is lost when it is not sent.
    fn is_unneeded(&self, _owner: &Self::Owner) -> bool {
        false
    }

    /// These go out now.
    fn sending<'a>(_owner: &Self::Owner, _requests: impl Iterator<Item = &'a Self>) {}

    /// The arguments that come before those of all requests.
    fn write_first(&self, _owner: &Self::Owner, _cmd: &mut Cmd) {}

    fn write(&self, owner: &Self::Owner, cmd: &mut Cmd);

    /// The longest that a call takes.
    fn longest_call(owner: &Self::Owner) -> Duration {
        owner.response_timeout()
    }

    /// Makes a call, after what had been given up at that mark.
    fn attempt(
        owner: &Self::Owner,
        mark: u64,
        write: impl Fn(&mut Cmd) + Send + Sync,
        limit: Duration,
    ) -> impl Future<Output = Result<Vec<i64>, CallError>> + Send {
        owner.attempt(mark, Self::SCRIPT, write, limit)
    }

    /// Reads the reply to a batch of that many: one for each request.
    fn read(owner: &Arc<Self::Owner>, reply: &[i64], count: usize) -> Vec<Self::Reply>;

    /// These have their replies now, to a call that was sent then. Whoever asked may have given up.
    fn answered<'a>(
        _owner: &Arc<Self::Owner>,
        _sent: Instant,
        _answers: impl Iterator<Item = (&'a Self, &'a Self::Reply)> + Clone,
    ) {
    }

    /// A call with it had no answer: it may still reach the server, whatever is done meanwhile.
    fn set_in_doubt(&self) {}

    /// Whether the server's error is about this request. Most are about all of them.
    fn is_meant(&self, _error: &RedisError) -> bool {
        true
    }

    fn error(&self, owner: &Self::Owner, failure: Failure) -> Error {
        owner.error(self.operation(), failure)
    }
}

pub(crate) struct Batcher<R: Request> {
    state: Mutex<State<R>>,
    /// Whoever makes the calls wants to know of something.
    changed: Notify,
    meter: CallMeter,
}

struct State<R: Request> {
    /// In the order of their numbers.
    waiting: VecDeque<Waiting<R>>,
    /// How many requests have come.
    arrivals: u64,
    /// Whoever makes the calls wants to know of the next one.
    wants_next: bool,
    /// Calls are made until nothing waits.
    is_dispatching: bool,
    /// A task must make these calls: others depend on them than the one that began them.
    needs_task: bool,
    /// What makes them, between two polls of the caller that began them; none once a task has it.
    calls: Option<Calls>,
    /// Which calls these are: it goes up each time that somebody begins.
    generation: u64,
}

type Calls = BoxFuture<'static, ()>;

pub(crate) type Reply<R> = Result<Answer<<R as Request>::Reply>, Error>;

enum Outcome<R: Request> {
    Answer(Answer<R::Reply>),
    /// In a box, since all that is asked for has room for it.
    Failed(Box<Error>),
    /// The runtime has ended in which it was asked for.
    Unserved(R),
}

struct Waiting<R: Request> {
    /// By which it arrived.
    number: u64,
    request: R,
    deadline: Deadline,
    /// An earlier attempt may have been served.
    is_repeated: bool,
    /// Why the last attempt failed that was not cut short.
    last: Option<Box<RedisError>>,
    reply: oneshot::Sender<Outcome<R>>,
}

/// What there is to do for whoever makes the calls.
enum Next<R: Request> {
    Send(Batch<R>),
    /// Nothing, until a call or a pause ends, or [`Batcher::changed`] tells.
    Rest,
    /// Nobody makes calls any more.
    Done,
}

/// Requests that are out, until it is dropped.
struct Batch<R: Request> {
    owner: Arc<R::Owner>,
    /// From before its requests were out. So no two batches wait for each other, nor one for
    /// itself, if their requests are given up meanwhile.
    mark: u64,
    requests: Vec<Waiting<R>>,
}

impl<R: Request> Default for Batcher<R> {
    fn default() -> Self {
        let state = Mutex::new(State {
            waiting: VecDeque::new(),
            arrivals: 0,
            wants_next: false,
            is_dispatching: false,
            needs_task: false,
            calls: None,
            generation: 0,
        });
        Self { state, changed: Notify::new(), meter: CallMeter::of(R::CALLED) }
    }
}

impl<R: Request> Batcher<R> {
    fn state(&self) -> MutexGuard<'_, State<R>> {
        self.state.lock().expect("nothing panics while it is locked")
    }

    /// `may_send`: a call may go out now. `is_idle`: none is out.
    fn next(&self, owner: &Arc<R::Owner>, may_send: bool, is_idle: bool) -> Next<R> {
        let mark = owner.mark();
        let mut state = self.state();
        if may_send {
            let requests = state.take(owner);
            if !requests.is_empty() {
                return Next::Send(Batch { owner: owner.clone(), mark, requests });
            }
        }
        if is_idle && state.waiting.is_empty() {
            state.is_dispatching = false;
            return Next::Done;
        }
        state.wants_next = may_send;
        Next::Rest
    }

    /// What was kept because another request was under way may go now.
    pub(crate) fn kept_may_go(&self) {
        self.changed.notify_one();
    }

    /// Puts requests back to where they were.
    fn put_back(&self, requests: Vec<Waiting<R>>) {
        let mut state = self.state();
        state.waiting.extend(requests);
        // Others that came later may have failed, and be back, before.
        state.waiting.make_contiguous().sort_by_key(|waiting| waiting.number);
    }

    /// Takes out those that shall wait no longer.
    fn sort_out(&self, waits_on: impl Fn(&Waiting<R>) -> bool) -> VecDeque<Waiting<R>> {
        let mut state = self.state();
        let all = std::mem::take(&mut state.waiting);
        let (waiting, out) = all.into_iter().partition(waits_on);
        state.waiting = waiting;
        out
    }

    /// Nobody makes calls any more. Whoever waits may ask anew.
    fn abandon(&self) {
        let mut state = self.state();
        state.is_dispatching = false;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waiting::hand_back);
    }
}

impl<R: Request> State<R> {
    /// What goes out in one call, in the order of arrival.
    fn take(&mut self, owner: &R::Owner) -> Vec<Waiting<R>> {
        let mut batch: Vec<Waiting<R>> = Vec::with_capacity(self.waiting.len().min(MAX_BATCH));
        let mut kept = Vec::new();
        while batch.len() < MAX_BATCH {
            let joins = |next: &Waiting<R>| {
                batch.first().is_none_or(|first| next.request.joins(&first.request, owner))
            };
            if !self.waiting.front().is_some_and(joins) {
                break;
            }
            let Some(next) = self.waiting.pop_front() else { break };
            let in_flight = next.request.in_flight();
            if !in_flight.begin(R::KIND, R::AFTER) {
                kept.push(next);
            } else if next.request.is_unneeded(owner) {
                // Only now: whoever gives up looks afterwards whether it is out.
                if in_flight.end(R::KIND) {
                    owner.kept_may_go();
                }
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
    /// Their call may still reach the server.
    fn set_in_doubt(&self) {
        self.requests.iter().for_each(|waiting| waiting.request.set_in_doubt());
    }

    /// They are out no more.
    fn end(mut self) -> Vec<Waiting<R>> {
        self.end_all();
        std::mem::take(&mut self.requests)
    }

    fn end_all(&self) {
        let mut was_one_kept = false;
        for Waiting { request, .. } in &self.requests {
            was_one_kept |= request.in_flight().end(R::KIND);
        }
        if was_one_kept {
            self.owner.kept_may_go();
        }
    }
}

impl<R: Request> Drop for Batch<R> {
    fn drop(&mut self) {
        self.set_in_doubt();
        self.end_all();
        self.requests.drain(..).for_each(Waiting::hand_back);
    }
}

impl<R: Request> Waiting<R> {
    /// `error`: where its own attempts tell no more.
    fn out_of_patience(&self, owner: &R::Owner, error: &RedisError) -> Outcome<R> {
        let last = self.last.as_deref().unwrap_or(error).clone();
        self.failed(owner, Failure::no_answer(self.deadline.elapsed(), last))
    }

    fn failed(&self, owner: &R::Owner, failure: Failure) -> Outcome<R> {
        Outcome::Failed(Box::new(self.request.error(owner, failure)))
    }

    fn hand_back(self) {
        // Whoever asked may have gone.
        let _ = self.reply.send(Outcome::Unserved(self.request));
    }
}
