//! The calls of a batcher, until nothing waits.
//!
//! Where the server is near, one call is out at a time: what gathers meanwhile goes out with the
//! next one, and costs the server a fraction of a call. Where it is far, nobody waits for the answer
//! to somebody else's call: a call goes out beside others at once, with all that is asked for at the
//! same moment. The fastest answer so far over this connection tells how far a server is. And should
//! the answer of one that is near be [`LATE`], another call goes out all the same.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::RedisError;
use tokio::time::{Instant, Sleep, sleep_until};

use super::call::{Ended, call};
use super::{Next, Outcome, Owner, Request, Waiting};
use crate::runtime::clock;
use crate::server::{Answer, Backoff, CallError, Failure};

/// A server that has answered sooner is near. Where none has answered yet, one is late after that.
const NEAR: Duration = Duration::from_micros(150);
/// After so long the answer of a server that is near is late. Not sooner: a large call takes it
/// long.
const LATE: Duration = Duration::from_millis(4);

/// Makes the calls of a batcher.
pub(super) struct Dispatch<R: Request> {
    owner: Arc<R::Owner>,
    is_done: bool,
    /// When the last call went out.
    sent: Instant,
    backoff: Backoff,
    /// After a failure nothing goes out before.
    paused_until: Instant,
}

impl<R: Request> Dispatch<R> {
    pub(super) fn new(owner: &Arc<R::Owner>) -> Self {
        let now = Instant::now();
        let (sent, paused_until) = (now, now);
        let backoff = Backoff::of_calls();
        Self { owner: owner.clone(), is_done: false, sent, backoff, paused_until }
    }

    pub(super) async fn run(mut self) {
        let owner = self.owner.clone();
        let batcher = R::batcher(&owner);
        let mut calls = FuturesUnordered::new();
        let mut alarm = Alarm::default();
        // Whether others may follow at once, whose requests then go out in the same call.
        let mut may_be_more = owner.is_rush();
        loop {
            if std::mem::take(&mut may_be_more) {
                tokio::task::yield_now().await;
            }
            // What has failed goes first again: nothing is sent past it.
            while let Some(Some(ended)) = calls.next().now_or_never() {
                self.handle(ended);
            }
            let (now, fastest) = (Instant::now(), batcher.fastest(owner.connection()));
            let is_far = late_after(fastest).is_zero();
            let next_call = self.next_call(calls.len(), fastest, now);
            let may_send = next_call.is_some_and(|at| at <= now);
            // What comes before the alarm is met by that.
            let wants_next = is_far || !alarm.is_set();
            match batcher.next(&owner, may_send, calls.is_empty(), wants_next) {
                Next::Send(batch) => {
                    self.sent = now;
                    calls.push(call(owner.clone(), batch));
                    continue;
                }
                Next::Wait => alarm.set(next_call),
                Next::Rest => {}
                Next::Done => break,
            }
            tokio::select! {
                biased;
                Some(ended) = calls.next() => {
                    self.handle(ended);
                    may_be_more = owner.is_rush();
                }
                () = batcher.changed() => may_be_more = is_far,
                () = alarm.rings() => {}
            }
        }
        self.is_done = true;
    }

    /// When the next call may go out; `None` when an answer must come before.
    fn next_call(&self, out: usize, fastest: Option<Duration>, now: Instant) -> Option<Instant> {
        let at = match out {
            0 => now,
            _ if out >= R::MAX_CALLS => return None,
            _ => self.sent + late_after(fastest),
        };
        Some(at.max(self.paused_until))
    }

    fn handle(&mut self, ended: Ended<R>) {
        let Ended { batch, sent, connection, answer } = ended;
        // Before a release may go that looks for it.
        if answer.as_ref().is_err_and(|failure| failure.may_have_run) {
            batch.set_in_doubt();
        }
        let requests = batch.end();
        R::batcher(&self.owner).meter.ended(requests.len(), sent, answer.is_ok());
        match answer {
            Ok(reply) => {
                // Where that is another one by now, who knows which of them has answered.
                if connection == self.owner.connection() {
                    R::batcher(&self.owner).answered_after(connection, sent.elapsed());
                }
                self.backoff = Backoff::of_calls();
                self.deliver(requests, sent, &reply);
            }
            Err(failure) if failure.is_transient() => {
                let now = Instant::now();
                // What fails beside others, for the same reason, lets nobody wait for longer.
                if self.paused_until <= now {
                    self.paused_until = now + self.backoff.next();
                }
                self.put_back(requests, &failure);
            }
            Err(failure) => self.refuse(requests, &failure.error),
        }
    }

    fn deliver(&self, requests: Vec<Waiting<R>>, sent: Instant, reply: &[i64]) {
        let replies = R::read(&self.owner, reply, requests.len());
        let asked = requests.iter().map(|waiting| &waiting.request);
        R::answered(&self.owner, sent, asked.zip(&replies));
        self.owner.set_rush(requests.len() > 1);
        for (waiting, reply) in requests.into_iter().zip(replies) {
            let answer = Answer { sent, reply, is_repeated: waiting.is_repeated };
            // Whoever asked may have gone: what nobody has is given back after this.
            let _ = waiting.reply.send(Outcome::Answer(answer));
        }
    }

    /// Keeps requests for the next attempt. Whoever's patience will have ended by then is answered,
    /// also of those that have gathered meanwhile.
    fn put_back(&self, mut requests: Vec<Waiting<R>>, failure: &CallError) {
        for waiting in &mut requests {
            waiting.is_repeated |= failure.may_have_run;
            if !failure.was_cut_short {
                waiting.last = Some(Box::new(failure.error.clone()));
            }
        }
        let batcher = R::batcher(&self.owner);
        batcher.put_back(requests);
        let (next, is_paused) = (self.paused_until, clock::is_paused());
        let waits_on =
            |waiting: &Waiting<R>| !is_paused && !waiting.deadline.left_at(next).is_zero();
        for waiting in batcher.sort_out(waits_on) {
            let failed = waiting.out_of_patience(&self.owner, &failure.error);
            // Whoever asked may have gone: then the failure concerns nobody.
            let _ = waiting.reply.send(failed);
        }
    }

    /// A bad request does not fail its neighbours: they go out again without it.
    fn refuse(&self, requests: Vec<Waiting<R>>, error: &RedisError) {
        let (refused, others): (Vec<_>, Vec<_>) =
            requests.into_iter().partition(|waiting| waiting.request.is_meant(error));
        // Where nobody can tell who is meant, all are: it must not go on for ever.
        let (refused, others) =
            if refused.is_empty() { (others, refused) } else { (refused, others) };
        for waiting in refused {
            let failed = waiting.failed(&self.owner, Failure::Refused(error.clone()));
            let _ = waiting.reply.send(failed);
        }
        R::batcher(&self.owner).put_back(others);
    }
}

/// How long to wait for an answer before another call goes out.
fn late_after(fastest: Option<Duration>) -> Duration {
    match fastest {
        Some(fastest) if fastest >= NEAR => Duration::ZERO,
        Some(_) => LATE,
        None => NEAR,
    }
}

/// Rings when a call may go out that had to wait. It is not set anew for each call: most are
/// answered before, and it costs more than a request does.
#[derive(Default)]
struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// Unless it rings before that anyway.
    fn set(&mut self, at: Option<Instant>) {
        if let Some(at) = at
            && self.0.as_ref().is_none_or(|set| set.deadline() > at)
        {
            self.0 = Some(Box::pin(sleep_until(at)));
        }
    }

    async fn rings(&mut self) {
        match &mut self.0 {
            Some(set) => set.as_mut().await,
            None => std::future::pending().await,
        }
        self.0 = None;
    }
}

impl<R: Request> Drop for Dispatch<R> {
    /// The runtime ended in the middle.
    fn drop(&mut self) {
        if !self.is_done {
            R::batcher(&self.owner).abandon();
        }
    }
}
