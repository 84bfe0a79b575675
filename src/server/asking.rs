//! Calls to a node to which a slot is moving.

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, Pipeline, RedisFuture, Value};

/// A connection that can send ASKING and each command as one unit. ASKING applies only to the next
/// command on the connection. All calls share the connection, so a command of another call might
/// follow ASKING if the unit were split.
#[derive(Clone)]
pub(super) struct MaybeAsking {
    pub(super) connection: MultiplexedConnection,
    pub(super) is_asking: bool,
}

impl ConnectionLike for MaybeAsking {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        if !self.is_asking {
            return self.connection.req_packed_command(cmd);
        }
        Box::pin(async move {
            let mut pipeline = Pipeline::with_capacity(2);
            pipeline.cmd("ASKING").add_command(cmd.clone());
            let mut replies = self.connection.req_packed_commands(&pipeline, 1, 1).await?;
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
        self.connection.get_db()
    }
}
