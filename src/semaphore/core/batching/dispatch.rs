//! Makes the calls of a batcher, until no request waits.
//!
//! Usually, a request does not wait for the reply to another call: a new call with up to 1,000
//! requests is sent immediately. Requests still gather, because tasks that get replies at the same
//! time send their next requests at the same time. If the maximum number of calls is under way, new
//! requests wait and gather.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{ErrorKind, RedisError};
use tokio::time::Instant;

use super::call::{Ended, call};
use super::{Next, Outcome, Request, Response, Waiting};
use crate::metrics::called;
use crate::runtime::reached;
use crate::semaphore::core::Core;
use crate::server::{Backoff, CallError, Failure};

pub(super) struct Dispatch<R: Request> {
    core: Arc<Core>,
    requests: PhantomData<R>,
    is_done: bool,
    backoff: Backoff,
    /// After a failure, no call is sent before this time.
    paused_until: Option<Instant>,
}

impl<R: Request> Dispatch<R> {
    pub(super) fn new(core: &Arc<Core>) -> Self {
        let backoff = Backoff::of_calls(core.context.settings.response_timeout);
        let (core, requests) = (core.clone(), PhantomData);
        Self { core, requests, is_done: false, backoff, paused_until: None }
    }

    pub(super) async fn run(mut self) {
        let core = self.core.clone();
        let batcher = R::batcher(&core);
        let mut calls = FuturesUnordered::new();
        // Whether more requests may follow immediately, to be sent in the same call.
        let mut may_be_more = core.rush.load(Ordering::Relaxed);
        loop {
            if std::mem::take(&mut may_be_more) {
                tokio::task::yield_now().await;
            }
            // Failed requests are sent again before new requests.
            while let Some(Some(ended)) = calls.next().now_or_never() {
                self.handle(ended);
            }
            let may_send = calls.len() < R::MAX_CALLS && self.paused_until.is_none();
            match batcher.next(&core, may_send, calls.is_empty()) {
                Next::Send(batch) => {
                    calls.push(call(core.clone(), batch));
                    continue;
                }
                Next::Rest => {}
                Next::Done => break,
            }
            tokio::select! {
                biased;
                Some(ended) = calls.next() => {
                    self.handle(ended);
                    may_be_more = core.rush.load(Ordering::Relaxed);
                }
                () = batcher.changed.notified() => may_be_more = true,
                () = reached(self.paused_until) => self.paused_until = None,
            }
        }
        self.is_done = true;
    }

    fn handle(&mut self, ended: Ended<R>) {
        let Ended { batch, sent, response } = ended;
        let response = response.and_then(|reply| self.read(&reply, batch.requests.len()));
        // The requests must be marked before a release checks whether a request is in doubt.
        if response.as_ref().is_err_and(|failure| failure.may_have_run) {
            batch.set_in_doubt();
        }
        let requests = batch.end();
        called(R::CALLED, sent, response.is_ok(), Some(requests.len()));
        match response {
            Ok(replies) => {
                self.backoff = Backoff::of_calls(self.core.context.settings.response_timeout);
                self.deliver(requests, sent, replies);
            }
            Err(failure) if failure.is_transient() => {
                // Several calls under way often fail for the same reason. A failure during the
                // pause does not prolong the pause.
                let now = Instant::now();
                let still = self.paused_until.filter(|until| *until > now);
                let next = still.unwrap_or_else(|| now + self.backoff.next());
                self.paused_until = Some(next);
                self.put_back(requests, &failure, next);
            }
            Err(failure) => self.refuse(requests, &failure.error),
        }
    }

    /// Returns one reply for each request. Fails if the number of replies differs, for example
    /// because a proxy has mixed up replies.
    fn read(&self, reply: &[i64], count: usize) -> Result<Vec<R::Reply>, CallError> {
        let replies = R::read(&self.core, reply, count);
        let misfit =
            || RedisError::from((ErrorKind::Parse, "the reply has the wrong number of results"));
        if replies.len() == count { Ok(replies) } else { Err(misfit().into()) }
    }

    fn deliver(&self, requests: Vec<Waiting<R>>, sent: Instant, replies: Vec<R::Reply>) {
        let asked = requests.iter().map(|waiting| &waiting.request);
        R::replied(&self.core, sent, asked.zip(&replies));
        self.core.rush.store(requests.len() > 1, Ordering::Relaxed);
        for (waiting, reply) in requests.into_iter().zip(replies) {
            let response = Response { sent, reply, is_repeated: waiting.is_repeated };
            // The caller may have dropped the request. A permit that reaches no caller is released
            // later.
            let _ = waiting.reply.send(Outcome::Response(response));
        }
    }

    /// Keeps requests for the next attempt. If the deadline of a waiting request precedes that
    /// attempt, the request fails now, even if the failed call did not contain the request.
    fn put_back(&self, mut requests: Vec<Waiting<R>>, failure: &CallError, next: Instant) {
        for waiting in &mut requests {
            waiting.is_repeated |= failure.may_have_run;
            if !failure.was_cut_short {
                waiting.last = Some(Box::new(failure.clone()));
            }
        }
        let batcher = R::batcher(&self.core);
        batcher.put_back(requests);
        let waits_on = |waiting: &Waiting<R>| !waiting.deadline.left_at(next).is_zero();
        for waiting in batcher.sort_out(waits_on) {
            let failed = waiting.out_of_patience(&self.core, failure);
            // A caller that has dropped the request needs no error.
            let _ = waiting.reply.send(failed);
        }
    }

    /// Fails the requests that caused the error, and sends the other requests again.
    fn refuse(&self, requests: Vec<Waiting<R>>, error: &RedisError) {
        let (refused, others): (Vec<_>, Vec<_>) =
            requests.into_iter().partition(|waiting| waiting.request.is_meant(error));
        // If none of the requests caused the error, all requests fail, so that they are not sent
        // again forever.
        let (refused, others) =
            if refused.is_empty() { (others, refused) } else { (refused, others) };
        for waiting in refused {
            let failed = waiting.failed(&self.core, Failure::Rejected(error.clone()));
            let _ = waiting.reply.send(failed);
        }
        R::batcher(&self.core).put_back(others);
    }
}

impl<R: Request> Drop for Dispatch<R> {
    /// Abandons the remaining requests if the runtime ends before all calls are made.
    fn drop(&mut self) {
        if !self.is_done {
            R::batcher(&self.core).abandon();
        }
    }
}
