//! Calls that must take effect before another call. They are sent just before that call over the
//! same connection. Redis executes the commands of a connection in the order in which they are
//! written.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::{join, join_all, poll_fn};
use redis::{Cmd, FromRedisValue};
use tokio::task::unconstrained;

use super::asking::MaybeAsking;
use super::call_error::CallError;
use crate::error::Error;
use crate::releases::{GivenUpBefore, ReleaseCall};
use crate::scripts::{CallBy, ScriptRegistry};

/// How scripts are called over a connection.
pub(super) struct Way<'a> {
    pub(super) connection: MaybeAsking,
    pub(super) number: u64,
    pub(super) call_by: CallBy,
    /// Whether `release` was called over this connection before.
    pub(super) has_released: &'a AtomicBool,
}

impl Way<'_> {
    /// Runs a script. A restarted or promoted server may have the script of a call, but not the
    /// `release` script. A release that names the missing script would be executed after the call.
    /// The call notices this only if the task of the release has already handled the server's
    /// reply: see [`run_in_order`]. So the first release over a connection is sent with the text of
    /// the script.
    async fn run<T: FromRedisValue>(
        &self,
        script: &str,
        write: impl Fn(&mut Cmd),
    ) -> Result<T, Error> {
        let (registry, mut connection) = (ScriptRegistry::embedded(), self.connection.clone());
        let is_known = script != RELEASE || self.has_released.load(Ordering::Relaxed);
        if is_known || self.call_by != CallBy::Sha1 {
            return registry.run_with(&mut connection, self.call_by, script, write).await;
        }
        let response = Box::pin(registry.run_text(&mut connection, script, write)).await;
        self.has_released.fetch_or(response.is_ok(), Ordering::Relaxed);
        response
    }
}

const RELEASE: &str = "release";

/// Runs a script after the calls that must take effect before it.
pub(super) async fn run_in_order<T: FromRedisValue>(
    way: Way<'_>,
    earlier: &GivenUpBefore<'_>,
    (script, write): (&str, impl Fn(&mut Cmd)),
) -> Result<T, Error> {
    let lapses = earlier.lapses();
    let response = run_after(&way, earlier, (script, &write)).await;
    // A release needs no order, and a second release would find nothing.
    if response.is_err() || script == RELEASE || earlier.lapses() == lapses {
        return response;
    }
    // The script may have overtaken an earlier call: the server did not have the earlier call's
    // script, or the earlier call timed out before it was sent. Repeating the script is safe.
    Box::pin(run_after(&way, earlier, (script, &write))).await
}

async fn run_after<T: FromRedisValue>(
    way: &Way<'_>,
    earlier: &GivenUpBefore<'_>,
    (script, write): (&str, impl Fn(&mut Cmd)),
) -> Result<T, Error> {
    let number = way.number;
    let calls = earlier.unwritten(number);
    let run = pin!(way.run(script, &write));
    let run = write_first(run, || earlier.written(number), || earlier.withdrawn());
    let response = if calls.is_empty() {
        run.await
    } else {
        let calls = calls.into_iter().map(|call| run_earlier(way, call));
        // The futures are polled in this order.
        Box::pin(join(join_all(calls), run)).await.1
    };
    with_all_keys(way, earlier, (script, &write), response).await
}

async fn run_earlier(way: &Way<'_>, mut call: ReleaseCall) {
    let response = {
        let (script, write) = (call.script(), |cmd: &mut Cmd| call.write(cmd));
        let run = pin!(way.run(script, write));
        let response = write_first(run, || call.written(way.number), || call.withdrawn()).await;
        with_all_keys(way, &call.alone(), (script, write), response).await
    };
    call.confirm(response.map_err(|error| CallError::from(error).error));
}

/// Returns the response to a call. If the semaphore has groups, the server rejects a call that does
/// not name all keys: then the call is repeated.
async fn with_all_keys<T: FromRedisValue>(
    way: &Way<'_>,
    earlier: &GivenUpBefore<'_>,
    (script, write): (&str, impl Fn(&mut Cmd)),
    response: Result<T, Error>,
) -> Result<T, Error> {
    match response {
        Err(Error::Redis(error)) if error.code() == Some("SEM_GROUPS") => {
            earlier.note_groups();
            Box::pin(way.run(script, write)).await
        }
        response => response,
    }
}

/// Runs a call. Calls `written` after the first poll, which writes the command: the buffer of the
/// connection always has space (see [`Dialer::config`](super::Dialer::config)), and tokio does not
/// interrupt the poll even if the task has used up its turn. Calls `withdrawn` if this future is
/// dropped before the call has ended.
async fn write_first<T>(
    mut call: Pin<&mut impl Future<Output = T>>,
    written: impl FnOnce(),
    withdrawn: impl FnMut(),
) -> T {
    let mut written = Some(written);
    let mut guard = OnDrop(Some(withdrawn));
    let done = poll_fn(|cx| match written.take() {
        None => call.as_mut().poll(cx),
        Some(written) => {
            let polled = pin!(unconstrained(call.as_mut())).poll(cx);
            written();
            polled
        }
    });
    let done = done.await;
    guard.0 = None;
    done
}

struct OnDrop<F: FnMut()>(Option<F>);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(|then| then());
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use tokio::sync::mpsc;
    use tokio::task::consume_budget;

    use super::*;

    #[tokio::test]
    async fn the_first_poll_sends_even_if_the_task_has_used_up_its_turn() {
        while poll_fn(|cx| Poll::Ready(pin!(consume_budget()).poll(cx).is_ready())).await {}
        let (sender, mut receiver) = mpsc::channel(1);
        let mut was_sent = false;
        let send = pin!(sender.send(()));
        write_first(send, || was_sent = receiver.try_recv().is_ok(), || ()).await.unwrap();
        assert!(was_sent);
    }
}
