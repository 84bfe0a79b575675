//! Waiting outside the I/O runtime, which is the runtime that connected. All calls, connections and
//! timers belong to the I/O runtime. Callers may be in another runtime, or in none.

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

/// Why a wait has ended before its work was done.
pub(crate) enum Interruption {
    /// The deadline has passed.
    Deadline,
    /// The I/O runtime has ended.
    IoRuntime,
}

/// Waits for `work`, in any runtime, until the deadline or the end of the I/O runtime.
pub(crate) async fn until<T>(
    io: &Handle,
    deadline: Instant,
    work: impl Future<Output = T>,
) -> Result<T, Interruption> {
    // A `Sleep` must not be polled after its runtime has ended. So a task of the I/O runtime polls
    // it. The task is spawned only if the work is not done at its first poll.
    let timer = async {
        let sleep = io.spawn(async move { sleep_until(deadline).await });
        AbortOnDropHandle::new(sleep).await
    };
    tokio::select! {
        biased;
        done = work => Ok(done),
        slept = timer => Err(match slept {
            Ok(()) => Interruption::Deadline,
            Err(_) => Interruption::IoRuntime,
        }),
    }
}

pub(crate) fn is_current(runtime: &Handle) -> bool {
    Handle::try_current().is_ok_and(|current| current.id() == runtime.id())
}
