//! Calls to a node to which a slot is moving.

use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisFuture, Value};

/// Sends ASKING and each command as one unit. ASKING applies only to the next command on the
/// connection. All calls share the connection, so a command of another call might follow ASKING if
/// the unit were split.
#[derive(Clone)]
pub(super) struct Asking<C>(pub(super) C);

impl<C: ConnectionLike + Send> ConnectionLike for Asking<C> {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            let mut pipeline = Pipeline::with_capacity(2);
            pipeline.cmd("ASKING").add_command(cmd.clone());
            let mut replies = self.0.req_packed_commands(&pipeline, 1, 1).await?;
            Ok(replies.pop().unwrap_or(Value::Nil))
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        _: &'a Pipeline,
        _: usize,
        _: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        unreachable!("scripts are called one by one")
    }

    fn get_db(&self) -> i64 {
        self.0.get_db()
    }
}
