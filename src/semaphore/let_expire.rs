//! Leaving a permit, so that it counts a start.

use super::on_drop::OnDrop;
use super::permit::Permit;
use crate::error::Error;

impl Permit {
    /// Leaves the permit to its lease: that starts anew now, and is renewed no more. When it ends,
    /// the permit is free. So it counts what was started, not what goes on.
    ///
    /// With a limit of N and a lease of D, work that is started between its acquire and its leave
    /// is started **at most N times in any window of D**, in the order of arrival, whatever
    /// processes start it. Leave a permit when its work has started: the lease must not begin
    /// before that. A permit whose work was not started after all is [released](Self::release).
    ///
    /// - Times are those of the server's clock, in whole ms. D is the lease of the
    ///   semaphore, or [`max_hold`](crate::SemaphoreBuilder::max_hold) where that is shorter.
    /// - Work that panics after its start, or is dropped, counts when the semaphore was built with
    ///   [`let_expire_on_drop`](crate::SemaphoreBuilder::let_expire_on_drop).
    /// - A process that is killed between a start and its leave has renewed the permit last up to a
    ///   third of the lease before: such a start may count for so much less. Where that matters,
    ///   make the lease one and a half times D: what is left of it is D then.
    /// - With `max_hold`, a renewal that the network holds up may come after the leave, and end the
    ///   lease when `max_hold` says. Starts per time are best counted without it.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when the permit was lost before: another start may have come too early.
    /// [`Error::Unavailable`] when Redis does not answer within twice the response timeout; leaving
    /// goes on in the background until Redis confirms it or the lease has ended.
    /// [`Error::Rejected`] and [`Error::Shutdown`] as for [`release`](Self::release).
    ///
    /// # Cancel safety
    ///
    /// Safe: once called, the permit is left, in the background if need be.
    ///
    /// # Examples
    ///
    /// See [`SemaphoreBuilder::let_expire_on_drop`](crate::SemaphoreBuilder::let_expire_on_drop).
    pub fn let_expire(self) -> impl Future<Output = Result<(), Error>> {
        self.end(OnDrop::LetExpire)
    }
}
