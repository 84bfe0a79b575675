//! Watching a permit without holding it.

use std::fmt;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::context::Context;
use crate::runtime::{Interruption, at_poll, until};
use crate::semaphore::lease::Lease;
use crate::semaphore::ledger::Acquisition;

/// Reports whether a permit is still held, for example to subtasks. Created by
/// [`Permit::watch`](crate::Permit::watch). A watch is cheap to clone, and `'static`.
///
/// A watch does not keep the permit held: dropping the [`Permit`](crate::Permit) still ends the
/// hold. The watch reports every way in which the hold ends:
///
/// - The watch reports a loss at the latest at the lease's deadline on this machine's monotonic
///   clock.
/// - The watch reports immediately if the holder releases, forgets, detaches or drops the permit,
///   or lets it expire.
///
/// The watch works even if no task awaits a method of the permit.
///
/// # Examples
///
/// ```
/// # use redis_semaphore::{Error, SemaphoreClient};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
/// # let name = uuid::Uuid::new_v4().to_string();
/// # let semaphore = client.semaphore(name).limit(1).build()?;
/// # async fn work_on(_part: u32) {}
/// let permit = semaphore.acquire().await?;
/// let mut parts = tokio::task::JoinSet::new();
/// for part in 0..4 {
///     let watch = permit.watch();
///     parts.spawn(async move {
///         tokio::select! {
///             () = work_on(part) => true,
///             () = watch.ended() => false,
///         }
///     });
/// }
/// assert_eq!(parts.join_all().await, [true; 4]);
/// permit.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PermitWatch {
    /// A watch may outlive the permit.
    acquisition: Arc<Acquisition>,
    /// The I/O runtime.
    home: Handle,
    /// The ID of the process that connected.
    process: u32,
}

impl PermitWatch {
    pub(crate) fn new(acquisition: &Arc<Acquisition>, context: &Context) -> Self {
        let (home, process) = (context.runtime().clone(), context.process());
        Self { acquisition: acquisition.clone(), home, process }
    }

    fn lease(&self) -> &Lease {
        self.acquisition.lease().expect("only permits are watched")
    }

    /// Waits until the permit is no longer held. The wait ends at the latest when the lease expires
    /// on this machine's monotonic clock. If the [I/O runtime](crate::SemaphoreClient#runtimes) has
    /// ended, the wait ends immediately, and the permit is lost from then on. If the I/O runtime is
    /// blocked when the lease expires, a wait in another runtime may end only when the I/O runtime
    /// runs again. In a forked process, the wait ends immediately, because the permit belongs to the
    /// process that acquired it.
    ///
    /// # Cancel safety
    ///
    /// Safe: the call changes nothing.
    pub async fn ended(&self) {
        if self.process != std::process::id() {
            return;
        }
        let lease = self.lease();
        loop {
            // From here on, no change is missed.
            let changed = lease.changed();
            tokio::select! {
                biased;
                // If this process was frozen, the timer is late.
                () = at_poll(|| !self.is_held()) => return,
                interrupted = until(&self.home, lease.term().ends(), changed) => {
                    if let Err(Interruption::IoRuntime) = interrupted {
                        // The permit cannot be refreshed any more.
                        lease.lose_unreported();
                    }
                }
            }
        }
    }

    /// Returns whether the permit is held: neither lost nor released. A false result is final.
    ///
    /// # Examples
    ///
    /// ```
    /// # use redis_semaphore::{Error, SemaphoreClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
    /// # let name = uuid::Uuid::new_v4().to_string();
    /// let permit = client.semaphore(name).limit(1).build()?.acquire().await?;
    /// let watch = permit.watch();
    /// assert!(watch.is_held());
    /// drop(permit);
    /// assert!(!watch.is_held() && !watch.is_lost());
    /// watch.ended().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_held(&self) -> bool {
        let now = Instant::now();
        !self.lease().term().is_over_at(now)
    }

    /// Returns whether the permit was lost before it was released.
    pub fn is_lost(&self) -> bool {
        self.lease().is_lost()
    }
}

impl fmt::Debug for PermitWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PermitWatch")
            .field("fencing_token", &self.lease().token)
            .finish_non_exhaustive()
    }
}
