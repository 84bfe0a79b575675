//! Lets a permit expire, so that the semaphore limits how often work starts.

use super::permit::Permit;
use crate::error::Error;
use crate::releases::Ending;

impl Permit {
    /// Restarts the lease for the last time, and lets it expire. Until the lease expires, the
    /// permit stays taken. A semaphore whose permits are used in this way limits how often work
    /// starts, not how much work runs.
    ///
    /// With a limit of N and a lease of D, work starts **at most N times in any window of D**, in
    /// order of arrival, over all processes. This bound requires that the work starts between
    /// `acquire` and `let_expire`. Call `let_expire` after the work has started, because the window
    /// begins with the call of `let_expire`. If the work did not start after all,
    /// [release](Self::release) the permit.
    ///
    /// - Times are measured by the server's clock, in whole ms. D is the lease of the semaphore, or
    ///   [`max_hold`](crate::SemaphoreBuilder::max_hold) if `max_hold` is shorter.
    /// - If work panics or is dropped after its start, the start counts only if the semaphore was
    ///   built with [`let_expire_on_drop`](crate::SemaphoreBuilder::let_expire_on_drop).
    /// - If a process is killed between a start and its `let_expire`, the window begins with the
    ///   permit's last refresh. If Redis replied in time, this refresh was at most a third of the
    ///   lease before the start. If the bound must hold even in this case, choose a lease of one
    ///   and a half times the window.
    /// - If `max_hold` is set, an earlier refresh that the network delayed may arrive after
    ///   `let_expire`. The lease may then expire too early, when `max_hold` passes. Rate limits are
    ///   more exact without `max_hold`.
    ///
    /// # Errors
    ///
    /// - [`Error::Lost`] if the permit was already lost: another start may have been too early.
    /// - [`Error::Unavailable`] if Redis is unavailable for twice the response timeout.
    /// - [`Error::Rejected`] if Redis returns a permanent error.
    /// - [`Error::Shutdown`] if the [I/O runtime](crate::SemaphoreClient#runtimes) has ended. A
    ///   thread then makes the call, as after a [drop](Permit#dropping).
    ///
    /// After `Unavailable` or `Rejected`, the call is retried in the background until Redis
    /// confirms the call or the lease expires.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropping the future does not stop the call, which continues in the background.
    ///
    /// # Examples
    ///
    /// See [`SemaphoreBuilder::let_expire_on_drop`](crate::SemaphoreBuilder::let_expire_on_drop).
    pub fn let_expire(self) -> impl Future<Output = Result<(), Error>> {
        self.end(Ending::LetExpire)
    }
}
