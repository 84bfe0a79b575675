//! A lane: what this process asks of one script of one semaphore, one call at a time.
//!
//! While a call is under way, further requests gather; they go out as the next call, in the order
//! of their arrival. A request that comes alone goes at once, driven by its caller, which saves a
//! task and the wake-up of a thread. As soon as anybody else depends on it, a task takes over: a
//! caller that is dropped, or that is not polled for a while, holds nobody up.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use redis::{Cmd, RedisError};
use tokio::sync::oneshot;

use crate::Error;
use crate::claim::Claim;
use crate::gate::Gate;
use crate::servers::{Answer, Unanswered};
use crate::serving::Serving;

/// The most requests in one call.
pub(crate) const MAX_BATCH: usize = 1000;

/// One request of a script that takes many.
pub(crate) trait Request: Send + Sync + Sized + 'static {
    const SCRIPT: &'static str;
    type Reply: Send + std::fmt::Debug + 'static;

    fn lane(gate: &Gate) -> &Lane<Self>;

    /// What was called for it, as errors name it.
    fn operation(&self) -> &'static str {
        Self::SCRIPT
    }

    /// No claim may stand twice in a call.
    fn claim(&self) -> &Claim;

    /// Whether both may be in one call.
    fn joins(&self, _first: &Self) -> bool {
        true
    }

    /// Nobody waits for the answer, and nothing is lost when it is not sent.
    fn is_over(&self, _gate: &Gate) -> bool {
        false
    }

    /// These go out now.
    fn sending<'a>(_gate: &Gate, _requests: impl Iterator<Item = &'a Self>) {}

    /// The arguments that come before those of all requests.
    fn write_first(&self, gate: &Gate, cmd: &mut Cmd);

    fn write(&self, gate: &Gate, cmd: &mut Cmd);

    /// Makes a call.
    fn attempt(
        gate: &Gate,
        write: impl Fn(&mut Cmd) + Send + Sync,
        limit: Duration,
    ) -> impl Future<Output = Result<Vec<i64>, Unanswered>> + Send {
        gate.shared().servers.attempt(gate.slot, Self::SCRIPT, write, limit)
    }

    /// Reads the reply to a batch of that many: one for each request.
    fn read(gate: &Arc<Gate>, reply: &[i64], count: usize) -> Vec<Self::Reply>;

    /// These have their replies now.
    fn answered<'a>(
        _gate: &Arc<Gate>,
        _answers: impl Iterator<Item = (&'a Self, &'a Self::Reply)> + Clone,
    ) {
    }

    /// Whether the server's error is about this request. Most are about all of them.
    fn is_meant(&self, _error: &RedisError) -> bool {
        true
    }

    /// Whoever asked has gone meanwhile.
    fn abandoned(self, _gate: &Arc<Gate>, _reply: Self::Reply) {}
}

pub(crate) struct Lane<R: Request>(Mutex<State<R>>);

struct State<R: Request> {
    waiting: VecDeque<Waiting<R>>,
    /// Calls are made until nothing waits.
    is_served: bool,
    /// A task must make these calls: others depend on them than the one that began them.
    needs_task: bool,
    /// What makes them, between two polls of the caller that began them; none once a task has it.
    calls: Option<Calls>,
    /// Which calls these are: the number goes up each time that somebody begins.
    number: u64,
}

type Calls = BoxFuture<'static, ()>;

type Reply<R> = Result<Answer<<R as Request>::Reply>, Error>;

#[derive(Debug)]
pub(crate) struct Waiting<R: Request> {
    pub(crate) request: R,
    pub(crate) since: Instant,
    pub(crate) patience: Duration,
    /// An earlier attempt may have been served.
    pub(crate) is_repeated: bool,
    pub(crate) reply: oneshot::Sender<Reply<R>>,
}

impl<R: Request> Default for Lane<R> {
    fn default() -> Self {
        let (is_served, needs_task, calls, number) = Default::default();
        Self(Mutex::new(State { waiting: VecDeque::new(), is_served, needs_task, calls, number }))
    }
}

impl<R: Request> fmt::Debug for Lane<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").field("script", &R::SCRIPT).finish_non_exhaustive()
    }
}

impl<R: Request> Lane<R> {
    fn state(&self) -> MutexGuard<'_, State<R>> {
        self.0.lock().expect("nothing panics while it is locked")
    }

    /// What goes out in the next call. `None` ends the serving.
    pub(crate) fn take(&self, gate: &Gate) -> Option<Vec<Waiting<R>>> {
        let mut state = self.state();
        let mut batch: Vec<Waiting<R>> = Vec::new();
        while batch.len() < MAX_BATCH {
            let joins = |next: &Waiting<R>| {
                batch.first().is_none_or(|first| next.request.joins(&first.request))
            };
            if !state.waiting.front().is_some_and(joins) {
                break;
            }
            batch.extend(state.waiting.pop_front().filter(|next| !next.request.is_over(gate)));
        }
        if let Some(twice) = second_of_a_claim(&batch) {
            state.push_front(batch.split_off(twice));
        }
        state.is_served = !batch.is_empty();
        state.is_served.then_some(batch)
    }

    /// Puts a batch in front again.
    pub(crate) fn put_back(&self, batch: Vec<Waiting<R>>) {
        self.state().push_front(batch);
    }

    /// Takes out those that shall wait no longer.
    pub(crate) fn sort_out(&self, waits_on: impl Fn(&Waiting<R>) -> bool) -> VecDeque<Waiting<R>> {
        let mut state = self.state();
        let all = std::mem::take(&mut state.waiting);
        let (waiting, out) = all.into_iter().partition(waits_on);
        state.waiting = waiting;
        out
    }

    /// Nobody makes calls any more. Answers what waited.
    pub(crate) fn abandon(&self) -> VecDeque<Waiting<R>> {
        let mut state = self.state();
        state.is_served = false;
        std::mem::take(&mut state.waiting)
    }
}

/// Where a claim stands for the second time.
fn second_of_a_claim<R: Request>(batch: &[Waiting<R>]) -> Option<usize> {
    let mut numbers: Vec<_> = batch.iter().map(|next| next.request.claim().number).collect();
    numbers.sort_unstable();
    if numbers.is_sorted_by(|one, next| one < next) {
        return None;
    }
    let mut seen = HashSet::with_capacity(batch.len());
    batch.iter().position(|next| !seen.insert(next.request.claim().number))
}

impl<R: Request> State<R> {
    fn push_front(&mut self, batch: Vec<Waiting<R>>) {
        for waiting in batch.into_iter().rev() {
            self.waiting.push_front(waiting);
        }
    }
}

impl Gate {
    /// Sends a request as soon as none of its kind is under way, and again while the failure is a
    /// passing one and patience lasts, counted from `since`.
    pub(crate) async fn ask<R: Request>(
        self: &Arc<Self>,
        request: R,
        since: Instant,
        patience: Duration,
    ) -> Reply<R> {
        let (mut driver, mut answer) = self.enter(request, since, patience);
        let answer = poll_fn(|cx| {
            if let Some(driver) = &mut driver {
                // What it drives may answer it, and must not wake it for that.
                let before = answer.poll_unpin(&mut Context::from_waker(Waker::noop()));
                if before.is_ready() {
                    return before;
                }
                driver.drive(cx);
            }
            answer.poll_unpin(cx)
        });
        // The calls are gone when their runtime has ended.
        answer.await.unwrap_or(Err(Error::Shutdown))
    }

    /// For one of many that ask at once: all of them go out in one call, made by a task.
    pub(crate) async fn ask_along<R: Request>(
        self: &Arc<Self>,
        request: R,
        patience: Duration,
    ) -> Reply<R> {
        let (driver, answer) = self.enter(request, Instant::now(), patience);
        drop(driver);
        answer.await.unwrap_or(Err(Error::Shutdown))
    }

    /// Whoever comes first drives the calls. Whoever comes second has a task do so, and so does
    /// the first in a rush, when others will follow at once, or where too many drive already.
    fn enter<R: Request>(
        self: &Arc<Self>,
        request: R,
        since: Instant,
        patience: Duration,
    ) -> (Option<Driver<'_, R>>, oneshot::Receiver<Reply<R>>) {
        let (reply, answer) = oneshot::channel();
        let waiting = Waiting { request, since, patience, is_repeated: false, reply };
        let mut state = R::lane(self).state();
        state.waiting.push_back(waiting);
        state.needs_task = std::mem::replace(&mut state.is_served, true);
        if !state.needs_task {
            state.calls = Some(Serving::<R>::new(self).run().boxed());
            state.number += 1;
            if !self.is_rush() && self.shared().may_drive() {
                let driver = Driver { gate: self, number: state.number, kind: PhantomData };
                return (Some(driver), answer);
            }
        }
        let calls = state.calls.take();
        drop(state);
        if let Some(calls) = calls {
            self.client.spawn(calls);
        }
        (None, answer)
    }
}

/// The caller that began to make calls, until it has its answer or a task has taken over.
struct Driver<'a, R: Request> {
    gate: &'a Arc<Gate>,
    number: u64,
    kind: PhantomData<R>,
}

impl<R: Request> Driver<'_, R> {
    fn drive(&mut self, cx: &mut Context<'_>) {
        let Some(mut calls) = self.take_calls() else {
            return;
        };
        // In another runtime its timers might end before it does.
        if !self.gate.client.is_at_home() {
            self.gate.client.spawn(calls);
            return;
        }
        if calls.poll_unpin(cx).is_pending() {
            let mut state = R::lane(self.gate).state();
            if state.needs_task {
                drop(state);
                self.gate.client.spawn(calls);
            } else {
                state.calls = Some(calls);
            }
        }
    }

    fn take_calls(&mut self) -> Option<Calls> {
        let mut state = R::lane(self.gate).state();
        if state.number == self.number { state.calls.take() } else { None }
    }
}

impl<R: Request> Drop for Driver<'_, R> {
    /// A task goes on where there is more to do.
    fn drop(&mut self) {
        self.gate.shared().drives_no_more();
        if let Some(calls) = self.take_calls() {
            self.gate.client.spawn(calls);
        }
    }
}
