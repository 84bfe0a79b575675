//! Makes one call, and waits until the call gets a reply or is given up.

use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::{Batch, Outcome, Request, Waiting};
use crate::semaphore::core::Core;
use crate::server::{CallError, took_too_long};

pub(super) struct Ended<R: Request> {
    pub(super) batch: Batch<R>,
    pub(super) sent: Instant,
    pub(super) response: Result<Vec<i64>, CallError>,
}

pub(super) async fn call<R: Request>(core: Arc<Core>, mut batch: Batch<R>) -> Ended<R> {
    let sent = Instant::now();
    let left = batch.requests.iter().map(|waiting| waiting.deadline.left_at(sent));
    let (least, limit) = left.fold((Duration::MAX, Duration::ZERO), |(least, limit), left| {
        (least.min(left), limit.max(left))
    });
    let longest = match core.releases.until(batch.mark).keep_call_back() {
        // The call first waits for earlier calls.
        true => R::longest_call(&core) + core.context.settings.response_timeout,
        false => R::longest_call(&core),
    };
    let most = limit.min(longest);
    let mut impatient = match least < most {
        true => Impatient::take_out_of(&mut batch.requests, sent, most),
        false => Vec::new(),
    };
    let requests = &batch.requests;
    let write = |cmd: &mut Cmd| {
        core.write_keys(cmd);
        requests[0].request.write_first(&core, cmd);
        for waiting in requests {
            waiting.request.write(&core, cmd);
        }
    };
    R::sending(&core, requests.iter().map(|waiting| &waiting.request));
    let response = {
        let mut attempt = pin!(R::attempt(&core, batch.mark, write, limit));
        loop {
            let Some(next) = impatient.iter().map(|impatient| impatient.deadline).min() else {
                break attempt.await;
            };
            if let Ok(response) = timeout_at(next, attempt.as_mut()).await {
                break response;
            }
            let now = Instant::now();
            for due in impatient.extract_if(.., |impatient| impatient.deadline <= now) {
                let given_up = requests[due.index].out_of_patience(&core, &took_too_long().into());
                // The caller may have dropped the request.
                let _ = due.reply.send(given_up);
            }
        }
    };
    for Impatient { index, reply, .. } in impatient {
        batch.requests[index].reply = reply;
    }
    Ended { batch, sent, response }
}

/// A request whose deadline passes before its call times out. The call continues for the other
/// requests.
struct Impatient<R: Request> {
    index: usize,
    deadline: Instant,
    reply: oneshot::Sender<Outcome<R>>,
}

impl<R: Request> Impatient<R> {
    fn take_out_of(requests: &mut [Waiting<R>], sent: Instant, most: Duration) -> Vec<Self> {
        let mut impatient = Vec::new();
        for (index, waiting) in requests.iter_mut().enumerate() {
            let left = waiting.deadline.left_at(sent);
            if left < most {
                let (nobodys, _) = oneshot::channel();
                let reply = mem::replace(&mut waiting.reply, nobodys);
                impatient.push(Self { index, deadline: sent + left, reply });
            }
        }
        impatient
    }
}
