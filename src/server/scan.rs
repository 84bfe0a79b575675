//! All keys of a server that match, in many small steps.

use std::sync::Arc;

use redis::RedisError;

use super::link::Link;
use crate::error::lacks_right;

/// Keys that the server looks at in one step, which holds up all other calls there: for 0.2 ms. Ten
/// times as many take ten times as long, and the whole is hardly faster.
const STEP: u32 = 250;

/// A query that failed, or whose answer is of no use.
pub(crate) struct QueryError {
    /// Who was asked.
    pub(crate) address: String,
    /// What was called, as rules of access name it.
    pub(crate) command: &'static str,
    pub(crate) error: RedisError,
}

impl Link {
    /// Tells all keys that match and were there from beginning to end, some of them twice.
    ///
    /// It goes over one connection, and fails with it: at another server the place in the middle
    /// means nothing, and a server that was started again may have other keys.
    pub(crate) async fn scan(
        self: &Arc<Self>,
        pattern: &str,
        tell: impl FnMut(Vec<Vec<u8>>),
    ) -> Result<(), QueryError> {
        let scanned = self.scan_steps(pattern, tell).await;
        scanned.map_err(|error| self.query_error("scan", error))
    }

    async fn scan_steps(
        self: &Arc<Self>,
        pattern: &str,
        mut tell: impl FnMut(Vec<Vec<u8>>),
    ) -> Result<(), RedisError> {
        let connected = self.connection().await?;
        let mut place = 0_u64;
        loop {
            let mut step = redis::cmd("SCAN");
            step.arg(place).arg("MATCH").arg(pattern).arg("COUNT").arg(STEP);
            let (next, keys) = self.query_over(&connected, &step).await?;
            tell(keys);
            place = next;
            if place == 0 {
                break;
            }
        }
        // A primary that is a replica by now may have dropped keys that the new one has.
        match self.source().may_move() {
            true => self.check_over(&connected).await,
            false => Ok(()),
        }
    }

    /// How many keys there are. None where the server does not tell this user.
    pub(crate) async fn count_keys(self: &Arc<Self>) -> Result<Option<u64>, QueryError> {
        match self.query(&redis::cmd("DBSIZE")).await {
            Ok(count) => Ok(Some(count)),
            Err(error) if lacks_right(&error.to_string()) => Ok(None),
            Err(error) => Err(self.query_error("dbsize", error)),
        }
    }

    pub(super) fn query_error(&self, command: &'static str, error: RedisError) -> QueryError {
        QueryError { address: self.server(), command, error }
    }
}
