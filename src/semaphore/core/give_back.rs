//! Creates the entries in [`Releases`](crate::releases::Releases) for everything that callers give
//! up: permits, requests, and calls under way.

use redis::Cmd;
use std::sync::Arc;
use tokio::time::Instant;

use super::Core;
use crate::protocol::{MAX_BATCH, ReleaseMode};
use crate::releases::{Entry, GivenUp};
use crate::semaphore::ledger::{ACQUIRE, ADOPT, Acquisition};

impl Core {
    /// Releases everything that the server has for the acquisition's ID, before any later call is
    /// sent. The release is retried until the server confirms it, or until the lease has expired.
    /// Never blocks.
    pub(crate) fn give_back(self: &Arc<Self>, acquisition: &Arc<Acquisition>, mode: ReleaseMode) {
        self.give_back_all(std::iter::once(acquisition), mode);
    }

    pub(super) fn give_back_all<'a>(
        self: &Arc<Self>,
        acquisitions: impl Iterator<Item = &'a Arc<Acquisition>>,
        mode: ReleaseMode,
    ) {
        let given_up = acquisitions.map(|acquisition| {
            let given_up = GivenUpRequest { core: self.clone(), acquisition: acquisition.clone() };
            given_up.into_entry(mode)
        });
        let needs_keeper = self.releases.add(given_up);
        self.keep_releases(needs_keeper);
    }

    /// Releases the acquisition's ID again at the time `at`, because an earlier call may still
    /// reach the server.
    pub(crate) fn give_back_later(self: &Arc<Self>, acquisition: &Arc<Acquisition>, at: Instant) {
        let given_up = GivenUpRequest { core: self.clone(), acquisition: acquisition.clone() };
        let needs_keeper = self.releases.add_later(at, given_up.into_later_entry(at));
        self.keep_releases(needs_keeper);
    }

    /// Releases permits that were granted to this process by a message, but are neither awaited nor
    /// held. For example, the release of a canceled wait may have been lost. The messages may be
    /// forged, so permits beyond a bound are left to expire.
    pub(crate) fn give_back_unwanted(self: &Arc<Self>, ids: Vec<String>) {
        let (semaphore, permits) = (&self.name, ids.len());
        tracing::debug!(
            semaphore,
            permits,
            "no request waits for these granted permits; they are released"
        );
        let room = MAX_BATCH.saturating_sub(self.releases.len());
        let unwanted: Vec<_> = ids.into_iter().take(room).map(Acquisition::unwanted).collect();
        self.give_back_all(unwanted.iter(), ReleaseMode::Return);
    }

    /// Returns the caller's guard and the task's guard for a call that a task makes. If the
    /// caller's guard is dropped first, later calls wait until the task's guard is dropped, too.
    /// The call has an acquisition without an ID, which needs no release.
    pub(super) fn abandonable_call(self: &Arc<Self>) -> (Caller, Over) {
        let call = Arc::new(Acquisition::new(0, String::new(), 0, Instant::now()));
        call.calls.begin(ACQUIRE, 0);
        let caller = Caller { core: self.clone(), call: call.clone() };
        (caller, Over { core: self.clone(), call })
    }
}

/// While this guard exists, a caller waits for the reply to a call.
pub(super) struct Caller {
    core: Arc<Core>,
    call: Arc<Acquisition>,
}

impl Drop for Caller {
    fn drop(&mut self) {
        if self.call.calls.has(ACQUIRE) {
            self.core.give_back(&self.call, ReleaseMode::Return);
        }
    }
}

/// The task that makes a call holds this guard. The call is over when the guard is dropped.
pub(super) struct Over {
    core: Arc<Core>,
    call: Arc<Acquisition>,
}

impl Drop for Over {
    fn drop(&mut self) {
        self.call.calls.end(ACQUIRE);
        self.core.releases.changed();
    }
}

/// A permit that was dropped, or a wait that was canceled.
struct GivenUpRequest {
    core: Arc<Core>,
    acquisition: Arc<Acquisition>,
}

impl GivenUpRequest {
    /// Creates the entry. A request that may be queued can still be granted a permit, so its
    /// release is retried for longer, by the heartbeat timeout.
    fn into_entry(self, mode: ReleaseMode) -> Entry {
        let held_for = self.core.until_leases_end();
        let patience = match self.acquisition.lease() {
            Some(_) => held_for,
            None => self.core.context.settings.heartbeat_timeout.saturating_add(held_for),
        };
        let until = Instant::now().checked_add(patience);
        Entry { given_up: Box::new(self), mode, until }
    }

    fn into_later_entry(self, at: Instant) -> Entry {
        let until = at.checked_add(self.core.until_leases_end());
        Entry { given_up: Box::new(self), mode: ReleaseMode::Return, until }
    }
}

impl GivenUp for GivenUpRequest {
    fn is_out(&self) -> bool {
        self.acquisition.calls.is_behind(ACQUIRE | ADOPT)
    }

    fn is_permit(&self) -> bool {
        self.acquisition.lease().is_some()
    }

    fn number(&self) -> u128 {
        self.acquisition.number
    }

    fn id(&self) -> Option<&str> {
        self.acquisition.calls.was_written().then_some(&self.acquisition.id)
    }

    fn write_keys(&self, cmd: &mut Cmd) {
        self.core.write_keys(cmd);
    }

    fn statuses<'a>(&self, reply: &'a [i64]) -> &'a [i64] {
        self.core.statuses(reply)
    }

    /// Removes the permit from the ledger only now. Without its entry, a late grant message would
    /// look like an unwanted permit, and this process would release a permit that is to be
    /// forgotten. If an acquire or an adoption may still
    /// reach the server, the ID is released again later, when neither can reach the server any
    /// more.
    fn released(&self) -> Option<(Instant, Entry)> {
        let (core, acquisition) = (&self.core, &self.acquisition);
        core.ledger.remove(std::iter::once(&**acquisition));
        let at = Instant::now() + core.context.settings.longest_trip();
        acquisition.calls.take_doubt().then(|| {
            let given_up = Self { core: core.clone(), acquisition: acquisition.clone() };
            (at, given_up.into_later_entry(at))
        })
    }

    fn left_to_lease(&self) {
        self.core.ledger.remove(std::iter::once(&*self.acquisition));
    }
}
