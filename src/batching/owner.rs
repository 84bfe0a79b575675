//! Whose requests they are.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::Cmd;
use tokio::runtime::Handle;
use tokio::sync::SemaphorePermit;

use crate::error::Error;
use crate::server::{CallError, Failure};

/// What batchers have to know of a semaphore.
pub(crate) trait Owner: Send + Sync + 'static {
    /// The runtime that connected.
    fn home(&self) -> &Handle;

    /// Spawns at home, or wherever it still can.
    fn spawn(&self, calls: BoxFuture<'static, ()>);

    /// Fails in another process than the one that connected.
    fn check_process(&self) -> Result<(), Error>;

    fn response_timeout(&self) -> Duration;

    /// For one more caller that drives its calls itself, if there may be one more.
    fn try_drive(&self) -> Option<SemaphorePermit<'_>>;

    /// The last call answered many, who may all have a next request.
    fn is_rush(&self) -> bool;

    fn set_rush(&self, is_rush: bool);

    fn write_keys(&self, cmd: &mut Cmd);

    /// Stands for what has been given up so far.
    fn mark(&self) -> u64;

    /// Makes a call, whose arguments these are, after what had been given up by then.
    fn attempt(
        &self,
        mark: u64,
        script: &'static str,
        write: impl Fn(&mut Cmd) + Send + Sync,
        limit: Duration,
    ) -> impl Future<Output = Result<Vec<i64>, CallError>> + Send;

    /// What was kept because another request was under way may go now.
    fn kept_may_go(&self);

    fn error(&self, operation: &'static str, failure: Failure) -> Error;

    /// For a caller in another runtime: home does not run.
    fn home_stalled(&self, operation: &'static str, elapsed: Duration) -> Error;
}

/// Bits, one for each kind of request.
pub(crate) type Kinds = u8;

/// Beside the kinds: a request is kept until another one is back.
const KEPT: Kinds = 1 << 7;

/// The kinds of requests of an acquisition that are in calls under way.
#[derive(Default)]
pub(crate) struct InFlight(AtomicU8);

impl InFlight {
    /// One of this kind goes out, unless one of these is under way: then it is kept.
    pub(super) fn begin(&self, kind: Kinds, after: Kinds) -> bool {
        let go = |out: Kinds| Some(out | if out & after == 0 { kind } else { KEPT });
        let before = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, go);
        before.is_ok_and(|out| out & after == 0)
    }

    /// Whether something comes behind one of these that is under way. If so, it may go when that is
    /// back, as [`Owner::kept_may_go`] says.
    pub(crate) fn is_behind(&self, kinds: Kinds) -> bool {
        let keep = |out: Kinds| (out & kinds != 0).then_some(out | KEPT);
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, keep).is_ok()
    }

    /// Whether one of these is under way.
    pub(crate) fn has(&self, kinds: Kinds) -> bool {
        self.0.load(Ordering::SeqCst) & kinds != 0
    }

    /// One of this kind is back. Answers whether another one was kept, which may go now.
    pub(super) fn end(&self, kind: Kinds) -> bool {
        self.0.fetch_and(!(kind | KEPT), Ordering::SeqCst) & KEPT != 0
    }
}
