//! The calls of a lane: one after the other, until nothing waits.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, RedisError};

use crate::Error;
use crate::gate::Gate;
use crate::lane::{Request, Waiting};
use crate::servers::{Answer, Failure, Pauses, Unanswered};

/// Makes the calls of a lane.
pub(crate) struct Serving<R: Request> {
    gate: Arc<Gate>,
    is_done: bool,
    kind: PhantomData<R>,
}

impl<R: Request> Serving<R> {
    pub(crate) fn new(gate: &Arc<Gate>) -> Self {
        Self { gate: gate.clone(), is_done: false, kind: PhantomData }
    }

    pub(crate) async fn run(mut self) {
        let mut pauses = Pauses::of_calls();
        loop {
            if self.gate.is_rush() {
                // Those just answered may have requests of their own, which go out in the same
                // call: that costs the server a fraction of one more.
                tokio::task::yield_now().await;
            }
            let Some(batch) = R::lane(&self.gate).take(&self.gate) else {
                break;
            };
            let sent = Instant::now();
            match self.attempt(&batch).await {
                Ok(reply) => {
                    pauses = Pauses::of_calls();
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
        R::sending(&self.gate, batch.iter().map(|waiting| &waiting.request));
        R::attempt(&self.gate, write, limit).await
    }

    fn deliver(&self, batch: Vec<Waiting<R>>, sent: Instant, reply: &[i64]) {
        let replies = R::read(&self.gate, reply, batch.len());
        let requests = batch.iter().map(|waiting| &waiting.request);
        R::answered(&self.gate, requests.zip(&replies));
        self.gate.set_rush(batch.len() > 1);
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
        let lane = R::lane(&self.gate);
        lane.put_back(batch);
        let next = Instant::now() + pause;
        for waiting in lane.sort_out(|waiting| next - waiting.since < waiting.patience) {
            let elapsed = waiting.since.elapsed();
            self.fail(waiting, Failure::NoAnswer { elapsed, last: failure.error.clone() });
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
        R::lane(&self.gate).put_back(others);
    }

    fn fail(&self, waiting: Waiting<R>, failure: Failure) {
        let error = match self.gate.error(waiting.request.operation(), failure) {
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
            drop(R::lane(&self.gate).abandon());
        }
    }
}
