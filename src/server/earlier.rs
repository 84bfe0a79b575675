//! What must take effect before a call. It goes out just before that call and over the same
//! connection, whose commands Redis serves in the order in which they are written.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use futures_util::future::{join, join_all, poll_fn};
use redis::aio::ConnectionLike;
use redis::{Cmd, FromRedisValue, RedisError};

use super::call_error::CallError;
use crate::error::Error;
use crate::scripts::{CallBy, ScriptRegistry};

/// What must take effect before a call.
pub(crate) trait Earlier: Sync {
    type Call: EarlierCall;

    /// Whether all of it can be sent.
    fn is_ready(&self) -> bool;

    /// Waits until all of it can be sent that was there when this was called.
    fn ready(&self) -> impl Future<Output = ()> + Send;

    /// What has not been written to this connection yet.
    fn unwritten(&self, connection: u64) -> Vec<Self::Call>;

    /// The call itself has been written to this connection.
    fn written(&self, _connection: u64) {}
}

/// A call that goes out before another call.
pub(crate) trait EarlierCall: Send {
    const SCRIPT: &'static str;

    fn write(&self, cmd: &mut Cmd);

    fn written(&self, connection: u64);

    fn answered(self, answer: Result<Vec<i64>, RedisError>);
}

/// How scripts are called over a connection.
pub(super) struct Way<'a, C> {
    pub(super) connection: C,
    pub(super) number: u64,
    pub(super) call_by: CallBy,
    /// Whether `release` was called over it before.
    pub(super) has_released: &'a AtomicBool,
}

impl<C: ConnectionLike + Clone> Way<'_, C> {
    /// A server that was restarted or promoted may know the script of one call, and not that of the
    /// release before it, which would then take another trip. So the first release has its text.
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
        let answer = Box::pin(registry.run_text(&mut connection, script, write)).await;
        self.has_released.fetch_or(answer.is_ok(), Ordering::Relaxed);
        answer
    }
}

const RELEASE: &str = "release";

/// Runs a script, after what must take effect before.
pub(super) async fn run_in_order<C: ConnectionLike + Clone, T: FromRedisValue>(
    way: Way<'_, C>,
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
    // They are polled in this order, and the first poll writes the command.
    let (was_late, answer) = Box::pin(join(join_all(calls), run)).await;
    if answer.is_ok() && was_late.contains(&true) && writes.load(Ordering::Relaxed) == 1 {
        // It has overtaken what took another trip. Calls of these scripts may be repeated.
        return Box::pin(way.run(script, &write)).await;
    }
    answer
}

/// Returns whether it came late: the server did not know the script, which took another trip.
async fn run_earlier<C: ConnectionLike + Clone, E: EarlierCall>(way: &Way<'_, C>, call: E) -> bool {
    let writes = AtomicU32::new(0);
    let answer = {
        let write = |cmd: &mut Cmd| {
            writes.fetch_add(1, Ordering::Relaxed);
            call.write(cmd);
        };
        let run = pin!(way.run(E::SCRIPT, write));
        then_once_polled(run, || call.written(way.number)).await
    };
    call.answered(answer.map_err(|error| CallError::from(error).error));
    writes.into_inner() > 1
}

/// Does something after the first poll.
async fn then_once_polled<T>(
    mut work: Pin<&mut impl Future<Output = T>>,
    then: impl FnOnce(),
) -> T {
    let mut then = Some(then);
    poll_fn(|cx| {
        let polled = work.as_mut().poll(cx);
        if let Some(then) = then.take() {
            then();
        }
        polled
    })
    .await
}
