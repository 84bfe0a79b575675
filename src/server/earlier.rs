//! Calls that must take effect before another call. They are sent just before that call over the
//! same connection. Redis executes the commands of a connection in the order in which they are
//! written.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use futures_util::future::{join, join_all, poll_fn};
use redis::{Cmd, FromRedisValue, RedisError};
use tokio::task::unconstrained;

use super::asking::MaybeAsking;
use super::call_error::CallError;
use crate::error::Error;
use crate::scripts::{CallBy, ScriptRegistry};

/// The calls that must take effect before another call.
pub(crate) trait Earlier: Sync {
    type Call: EarlierCall;

    /// Whether all these calls can be sent.
    fn is_ready(&self) -> bool;

    /// Waits until all calls that exist now can be sent.
    fn ready(&self) -> impl Future<Output = ()> + Send;

    /// Returns the calls that are not yet written to this connection.
    fn unwritten(&self, connection: u64) -> Vec<Self::Call>;

    /// Called when the call that must run after these calls has been written to this connection.
    fn written(&self, _connection: u64) {}
}

/// A call that is sent before another call.
pub(crate) trait EarlierCall: Send {
    fn script(&self) -> &'static str;

    fn write(&self, cmd: &mut Cmd);

    fn written(&self, connection: u64);

    fn replied(self, response: Result<Vec<i64>, RedisError>);
}

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
    /// `release` script. A release that names the missing script would need a second round trip. So
    /// the first release over a connection is sent with the text of the script.
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
    earlier: &impl Earlier,
    (script, write): (&str, impl Fn(&mut Cmd)),
) -> Result<T, Error> {
    let number = way.number;
    let calls = earlier.unwritten(number);
    let writes = AtomicU32::new(0);
    let counted = |cmd: &mut Cmd| {
        writes.fetch_add(1, Ordering::Relaxed);
        write(cmd);
    };
    let run = pin!(way.run(script, counted));
    let run = then_once_polled(run, || earlier.written(number));
    if calls.is_empty() {
        return run.await;
    }
    let calls = calls.into_iter().map(|call| run_earlier(&way, call));
    // The futures are polled in this order.
    let (was_late, response) = Box::pin(join(join_all(calls), run)).await;
    if response.is_ok() && was_late.contains(&true) && writes.load(Ordering::Relaxed) == 1 {
        // An earlier call needed a second round trip, so the script overtook that call. Repeating
        // the script is safe.
        return Box::pin(way.run(script, &write)).await;
    }
    response
}

/// Runs an earlier call. Returns true if the call was sent twice, and so took effect late, because
/// the server did not have the call's script.
async fn run_earlier<E: EarlierCall>(way: &Way<'_>, call: E) -> bool {
    let writes = AtomicU32::new(0);
    let response = {
        let write = |cmd: &mut Cmd| {
            writes.fetch_add(1, Ordering::Relaxed);
            call.write(cmd);
        };
        let run = pin!(way.run(call.script(), write));
        then_once_polled(run, || call.written(way.number)).await
    };
    call.replied(response.map_err(|error| CallError::from(error).error));
    writes.into_inner() > 1
}

/// Calls `then` after the first poll, which writes the command: the buffer of the connection always
/// has space (see [`Dialer::config`](super::Dialer::config)), and tokio does not interrupt the poll
/// even if the task has used up its turn.
async fn then_once_polled<T>(
    mut work: Pin<&mut impl Future<Output = T>>,
    then: impl FnOnce(),
) -> T {
    let mut then = Some(then);
    poll_fn(|cx| match then.take() {
        None => work.as_mut().poll(cx),
        Some(then) => {
            let polled = pin!(unconstrained(work.as_mut())).poll(cx);
            then();
            polled
        }
    })
    .await
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
        then_once_polled(pin!(sender.send(())), || was_sent = receiver.try_recv().is_ok())
            .await
            .unwrap();
        assert!(was_sent);
    }
}
