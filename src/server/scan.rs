//! Finds all matching keys of a server in many small steps.

use std::sync::Arc;

use redis::RedisError;

use super::link::Link;
use crate::error::{is_unknown_command, lacks_right};

/// The number of keys that the server scans in one step, which blocks other calls for about 0.2 ms.
/// With ten times as many keys, a step takes ten times as long, and the whole scan is hardly
/// faster.
const STEP: u32 = 250;

/// A query that failed, or whose reply is not usable.
pub(crate) struct QueryError {
    /// The address of the server.
    pub(crate) address: String,
    /// The command, as ACL rules name it.
    pub(crate) command: &'static str,
    pub(crate) error: RedisError,
}

impl Link {
    /// Passes each matching key that existed during the whole scan to `visit`. A key may be passed
    /// more than once.
    ///
    /// The scan uses one connection, and fails if this connection is lost. The scan's cursor is
    /// invalid on another server, and a restarted server may have other keys.
    pub(crate) async fn scan(
        self: &Arc<Self>,
        pattern: &str,
        visit: impl FnMut(Vec<Vec<u8>>),
    ) -> Result<(), QueryError> {
        let scanned = self.scan_steps(pattern, visit).await;
        scanned.map_err(|error| self.query_error("scan", error))
    }

    async fn scan_steps(
        self: &Arc<Self>,
        pattern: &str,
        mut visit: impl FnMut(Vec<Vec<u8>>),
    ) -> Result<(), RedisError> {
        let connected = self.connection().await?;
        let mut place = 0_u64;
        loop {
            let mut step = redis::cmd("SCAN");
            step.arg(place).arg("MATCH").arg(pattern).arg("COUNT").arg(STEP);
            let (next, keys) = self.query_over(&connected, &step).await?;
            visit(keys);
            place = next;
            if place == 0 {
                break;
            }
        }
        // A primary that became a replica may have dropped keys that the new primary has.
        match self.source().may_move() {
            true => self.check_over(&connected).await,
            false => Ok(()),
        }
    }

    /// Returns the number of keys, or `None` if the user lacks the permission, or the server does not
    /// know the command.
    pub(crate) async fn count_keys(self: &Arc<Self>) -> Result<Option<u64>, QueryError> {
        match self.query(&redis::cmd("DBSIZE")).await {
            Ok(count) => Ok(Some(count)),
            Err(error)
                if lacks_right(&error.to_string()) || is_unknown_command(&error.to_string()) =>
            {
                Ok(None)
            }
            Err(error) => Err(self.query_error("dbsize", error)),
        }
    }

    pub(super) fn query_error(&self, command: &'static str, error: RedisError) -> QueryError {
        QueryError { address: self.server(), command, error }
    }
}
