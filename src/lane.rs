//! A lane: what this process asks of one script of one semaphore, one call at a time.
//!
//! While a call is under way, further requests gather; they go out as the next call, in the order
//! of their arrival. A request that comes alone goes at once. The calls are made by a task of their
//! own, so a caller that is dropped, or that is not polled for a while, holds nobody up.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use redis::{Cmd, RedisError};
use tokio::sync::oneshot;

use crate::Error;
use crate::claim::Claim;
use crate::gate::Gate;
use crate::link::{Answer, Failure, Pauses, Unanswered};

/// The most requests in one call.
pub(crate) const MAX_BATCH: usize = 1000;

/// One request of a script that takes many.
pub(crate) trait Request: Send + Sync + Sized + 'static {
    const SCRIPT: &'static str;
    type Reply: Send + std::fmt::Debug + 'static;

    fn lane(gate: &Gate) -> &Lane<Self>;

    /// No claim may stand twice in a call.
    fn claim(&self) -> &Claim;

    /// Whether both may be in one call.
    fn joins(&self, _first: &Self) -> bool {
        true
    }

    /// Nobody waits for the answer, and nothing is lost when it is not sent.
    fn is_over(&self) -> bool {
        false
    }

    /// The arguments that come before those of all requests.
    fn write_first(&self, gate: &Gate, cmd: &mut Cmd);

    fn write(&self, gate: &Gate, cmd: &mut Cmd);

    /// Reads the reply to a batch: one for each request.
    fn read(gate: &Arc<Gate>, reply: &[i64]) -> Vec<Self::Reply>;

    /// Whether the server's error is about this request. Most are about all of them.
    fn is_meant(&self, _error: &RedisError) -> bool {
        true
    }

    /// Whoever asked has gone meanwhile.
    fn abandoned(self, _gate: &Arc<Gate>, _reply: Self::Reply) {}
}

#[derive(Debug)]
pub(crate) struct Lane<R: Request>(Mutex<State<R>>);

#[derive(Debug)]
struct State<R: Request> {
    waiting: VecDeque<Waiting<R>>,
    /// A task makes calls until nothing waits.
    is_served: bool,
}

#[derive(Debug)]
struct Waiting<R: Request> {
    request: R,
    since: Instant,
    patience: Duration,
    /// An earlier attempt may have been served.
    is_repeated: bool,
    reply: oneshot::Sender<Result<Answer<R::Reply>, Error>>,
}

impl<R: Request> Default for Lane<R> {
    fn default() -> Self {
        Self(Mutex::new(State { waiting: VecDeque::new(), is_served: false }))
    }
}

impl<R: Request> Lane<R> {
    fn state(&self) -> MutexGuard<'_, State<R>> {
        self.0.lock().expect("nothing panics while it is locked")
    }

    /// What goes out in the next call. `None` ends the serving.
    fn take(&self) -> Option<Vec<Waiting<R>>> {
        let mut state = self.state();
        let mut batch: Vec<Waiting<R>> = Vec::new();
        while batch.len() < MAX_BATCH {
            let joins = |next: &Waiting<R>| {
                batch.first().is_none_or(|first| next.request.joins(&first.request))
            };
            if !state.waiting.front().is_some_and(joins) {
                break;
            }
            batch.extend(state.waiting.pop_front().filter(|next| !next.request.is_over()));
        }
        if let Some(twice) = second_of_a_claim(&batch) {
            state.push_front(batch.split_off(twice));
        }
        state.is_served = !batch.is_empty();
        state.is_served.then_some(batch)
    }
}

/// Where a claim stands for the second time.
fn second_of_a_claim<R: Request>(batch: &[Waiting<R>]) -> Option<usize> {
    if batch.len() < 2 {
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
    /// passing one and patience lasts.
    pub(crate) async fn ask<R: Request>(
        self: &Arc<Self>,
        request: R,
        patience: Duration,
    ) -> Result<Answer<R::Reply>, Error> {
        let (reply, answer) = oneshot::channel();
        let since = Instant::now();
        let was_served = {
            let mut state = R::lane(self).state();
            state.waiting.push_back(Waiting {
                request,
                since,
                patience,
                is_repeated: false,
                reply,
            });
            std::mem::replace(&mut state.is_served, true)
        };
        if !was_served {
            let serving =
                Serving::<R> { gate: self.clone(), is_done: false, kind: Default::default() };
            self.client.spawn(serving.run());
        }
        // The task is gone when its runtime has ended.
        answer.await.unwrap_or(Err(Error::Shutdown))
    }
}

/// The task that makes the calls of a lane.
struct Serving<R: Request> {
    gate: Arc<Gate>,
    is_done: bool,
    kind: std::marker::PhantomData<R>,
}

impl<R: Request> Serving<R> {
    async fn run(mut self) {
        let mut pauses = Pauses::default();
        loop {
            // Tasks that can run already may have requests of their own: those just answered above
            // all. They go out in the same call, which costs the server a fraction of one more.
            tokio::task::yield_now().await;
            let Some(batch) = R::lane(&self.gate).take() else {
                break;
            };
            let sent = Instant::now();
            match self.attempt(&batch).await {
                Ok(reply) => {
                    pauses = Pauses::default();
                    self.deliver(batch, sent, &reply);
                }
                Err(failure) if failure.is_passing() => {
                    let pause = pauses.next();
                    self.put_back(batch, &failure, pause);
                    tokio::time::sleep(pause).await;
                }
                Err(failure) => self.refuse(batch, &failure.error),
            }
        }
        self.is_done = true;
    }

    async fn attempt(&self, batch: &[Waiting<R>]) -> Result<Vec<i64>, Unanswered> {
        let now = Instant::now();
        let left = |waiting: &Waiting<R>| waiting.patience.saturating_sub(now - waiting.since);
        let limit = batch.iter().map(left).max().unwrap_or_default();
        let write = |cmd: &mut Cmd| {
            self.gate.write_keys(cmd);
            batch[0].request.write_first(&self.gate, cmd);
            for waiting in batch {
                waiting.request.write(&self.gate, cmd);
            }
        };
        self.gate.shared().link.attempt(R::SCRIPT, write, limit).await
    }

    fn deliver(&self, batch: Vec<Waiting<R>>, sent: Instant, reply: &[i64]) {
        let replies = R::read(&self.gate, reply);
        for (waiting, reply) in batch.into_iter().zip(replies) {
            let answer = Answer { sent, reply, is_repeated: waiting.is_repeated };
            if let Err(Ok(answer)) = waiting.reply.send(Ok(answer)) {
                waiting.request.abandoned(&self.gate, answer.reply);
            }
        }
    }

    /// Keeps a batch for the next attempt. Whoever's patience will have ended by then is answered,
    /// also of those that have gathered meanwhile.
    fn put_back(&self, mut batch: Vec<Waiting<R>>, failure: &Unanswered, pause: Duration) {
        batch.iter_mut().for_each(|waiting| waiting.is_repeated |= failure.may_be_served);
        let mut state = R::lane(&self.gate).state();
        state.push_front(batch);
        for waiting in std::mem::take(&mut state.waiting) {
            let elapsed = waiting.since.elapsed();
            if elapsed + pause < waiting.patience {
                state.waiting.push_back(waiting);
            } else {
                self.fail(waiting, Failure::NoAnswer { elapsed, last: failure.error.clone() });
            }
        }
    }

    /// A bad request does not fail its neighbours: they go out again without it.
    fn refuse(&self, batch: Vec<Waiting<R>>, error: &RedisError) {
        let (refused, others): (Vec<_>, Vec<_>) =
            batch.into_iter().partition(|waiting| waiting.request.is_meant(error));
        // Where nobody can tell who is meant, all are: it must not go on for ever.
        let (refused, others) =
            if refused.is_empty() { (others, refused) } else { (refused, others) };
        for waiting in refused {
            self.fail(waiting, Failure::Refused(error.clone()));
        }
        R::lane(&self.gate).state().push_front(others);
    }

    fn fail(&self, waiting: Waiting<R>, failure: Failure) {
        let error = match self.gate.error(R::SCRIPT, failure) {
            // The server names one request of the batch.
            Error::TooHeavy { semaphore, limit, .. } => {
                Error::TooHeavy { semaphore, weight: waiting.request.claim().weight, limit }
            }
            error => error,
        };
        // Whoever asked may have gone: then the failure concerns nobody.
        let _ = waiting.reply.send(Err(error));
    }
}

impl<R: Request> Drop for Serving<R> {
    /// The runtime ended in the middle: whoever waits hears of it.
    fn drop(&mut self) {
        if !self.is_done {
            let mut state = R::lane(&self.gate).state();
            state.is_served = false;
            let waiting = std::mem::take(&mut state.waiting);
            drop(state);
            drop(waiting);
        }
    }
}
