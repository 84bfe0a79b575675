//! What must take effect before a call. It goes out just before that call and over the same
//! connection, whose commands Redis serves in the order in which they are written.

use std::pin::{Pin, pin};

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

/// Runs a script over this connection, after what must take effect before.
pub(super) async fn run_in_order<C: ConnectionLike + Clone, T: FromRedisValue>(
    connection: C,
    number: u64,
    call_by: CallBy,
    earlier: &impl Earlier,
    (script, write): (&str, impl Fn(&mut Cmd)),
) -> Result<T, Error> {
    let registry = ScriptRegistry::embedded();
    let calls = earlier.unwritten(number);
    let mut own = connection.clone();
    let run = pin!(registry.run_with(&mut own, call_by, script, write));
    let run = then_once_polled(run, || earlier.written(number));
    if calls.is_empty() {
        return run.await;
    }
    let calls =
        calls.into_iter().map(|call| run_earlier(connection.clone(), number, call_by, call));
    // They are polled in this order, and the first poll writes the command.
    Box::pin(join(join_all(calls), run)).await.1
}

async fn run_earlier<C: ConnectionLike, E: EarlierCall>(
    mut connection: C,
    number: u64,
    call_by: CallBy,
    call: E,
) {
    let answer = {
        let write = |cmd: &mut Cmd| call.write(cmd);
        let registry = ScriptRegistry::embedded();
        let run = pin!(registry.run_with(&mut connection, call_by, E::SCRIPT, write));
        then_once_polled(run, || call.written(number)).await
    };
    call.answered(answer.map_err(|error| CallError::from(error).error));
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
