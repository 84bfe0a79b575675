//! Creates the entries in [`Releases`](crate::releases::Releases) for everything that callers give
//! up: permits, requests, and calls under way.

use redis::Cmd;
use std::sync::Arc;
use tokio::time::{Instant, sleep_until};

use super::{Core, refresh};
use crate::protocol::MAX_BATCH;
use crate::releases::{Ending, Entry, GivenUp};
use crate::semaphore::ledger::{ACQUIRE, Acquisition};

impl Core {
    /// Releases everything that the server has for the acquisition's ID, before any later call is
    /// sent. The release is retried until the server confirms it, or until the lease has expired.
    /// Never blocks.
    pub(crate) fn give_back(self: &Arc<Self>, acquisition: &Arc<Acquisition>) {
        self.give_up(std::iter::once(acquisition), Ending::RETURN);
    }

    /// Ends acquisitions as [`give_back`](Self::give_back) does, but with this `ending`.
    pub(crate) fn give_up<'a>(
        self: &Arc<Self>,
        acquisitions: impl Iterator<Item = &'a Arc<Acquisition>>,
        ending: Ending,
    ) {
        let given_up = acquisitions.map(|acquisition| {
            let given_up = GivenUpRequest { core: self.clone(), acquisition: acquisition.clone() };
            given_up.into_entry(ending)
        });
        let needs_keeper = self.releases.add(given_up);
        self.keep_releases(needs_keeper);
    }

    /// Releases the acquisition's ID again at the time `at`, because an earlier call may still
    /// reach the server. Until then, no call waits for the release. A shutdown cancels it.
    pub(crate) fn give_back_later(self: &Arc<Self>, acquisition: &Arc<Acquisition>, at: Instant) {
        let (core, acquisition, end) = (self.clone(), acquisition.clone(), self.context.end());
        self.context.spawn(async move {
            if end.run_until_cancelled(sleep_until(at)).await.is_some() {
                core.give_back(&acquisition);
            }
        });
    }

    /// Notes that the server no longer has these acquisitions, and removes them from the ledger. An
    /// earlier removal could turn a forget into a release: a late grant message for an ID that is
    /// not in the ledger makes this process release the permit. If an acquire or an adoption may
    /// still reach the server, the ID is released again later, when neither can reach the server
    /// any more.
    pub(super) fn released<'a>(
        self: &Arc<Self>,
        acquisitions: impl Iterator<Item = &'a Arc<Acquisition>> + Clone,
    ) {
        self.ledger.remove(acquisitions.clone().map(|acquisition| &**acquisition));
        for acquisition in acquisitions.filter(|acquisition| acquisition.calls.take_doubt()) {
            let at = Instant::now() + self.context.settings.longest_trip();
            self.give_back_later(acquisition, at);
        }
    }

    /// From now on, this process neither refreshes nor releases the permit. The permit may stay
    /// taken for up to a lease. During this time, a late grant message must not release the permit.
    pub(crate) fn part_with(self: &Arc<Self>, acquisition: &Arc<Acquisition>) {
        let until = Instant::now() + self.settings.lease;
        self.context.router.part_with(acquisition.number, until);
        self.ledger.remove(std::iter::once(&**acquisition));
        // An acquire of the ID, such as a heartbeat in flight, may still reach the server.
        if acquisition.calls.take_doubt() || acquisition.calls.has(ACQUIRE) {
            self.give_back_later(acquisition, until);
        }
    }

    /// Releases permits that were granted to this process by a message, but are neither awaited nor
    /// held. For example, the release of a canceled wait may have been lost. The messages may be
    /// forged, so permits beyond a bound are left to expire.
    pub(crate) fn give_back_unwanted(self: &Arc<Self>, ids: Vec<String>) {
        let (semaphore, permits) = (&self.name, ids.len());
        tracing::debug!(
            semaphore,
            permits,
            "no request waits for these granted permits, so they are released"
        );
        let room = MAX_BATCH.saturating_sub(self.releases.len());
        let unwanted: Vec<_> = ids.into_iter().take(room).map(Acquisition::unwanted).collect();
        self.give_up(unwanted.iter(), Ending::RETURN);
    }

    /// Returns the caller's guard and the task's guard for a call that a task makes. If the
    /// caller's guard is dropped first, later calls wait until the task's guard is dropped, too.
    /// The call has an acquisition without an ID, which needs no release.
    pub(super) fn abandonable_call(self: &Arc<Self>) -> (Caller, UnderWay) {
        let call = Arc::new(Acquisition::new(0, String::new(), 0, Instant::now()));
        call.calls.begin(ACQUIRE, 0);
        let caller = Caller { core: self.clone(), call: call.clone() };
        (caller, UnderWay { core: self.clone(), call })
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
            self.core.give_back(&self.call);
        }
    }
}

/// The task that makes a call holds this guard. The call has ended when the guard is dropped.
pub(super) struct UnderWay {
    core: Arc<Core>,
    call: Arc<Acquisition>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.call.calls.end(ACQUIRE);
        self.core.releases.changed();
    }
}

/// A permit or request that was given up, or a call whose caller was dropped.
struct GivenUpRequest {
    core: Arc<Core>,
    acquisition: Arc<Acquisition>,
}

impl GivenUpRequest {
    /// Creates the entry. A request that may be queued can still be granted a permit while its
    /// client counts as alive. So the heartbeat timeout is added to the time for which the release
    /// is retried.
    fn into_entry(self, ending: Ending) -> Entry {
        let held_for = self.core.until_leases_end();
        let patience = match self.acquisition.lease() {
            Some(_) => held_for,
            None => self.core.context.settings.heartbeat_timeout.saturating_add(held_for),
        };
        let until = Instant::now().checked_add(patience);
        Entry { given_up: Box::new(self), ending, until }
    }
}

impl GivenUp for GivenUpRequest {
    fn keep_back(&self) -> bool {
        self.acquisition.calls.keep_back_during_acquire()
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

    fn write(&self, ending: Ending, cmd: &mut Cmd) {
        match ending {
            Ending::Release(_) => drop(cmd.arg(&self.acquisition.id)),
            Ending::LetExpire => {
                refresh::write(cmd, &self.acquisition, self.core.settings.first_lease());
            }
        }
    }

    fn statuses<'a>(&self, reply: &'a [i64]) -> &'a [i64] {
        self.core.statuses(reply)
    }

    fn ended(&self, ending: Ending, was_held: bool) {
        match ending {
            Ending::Release(_) => self.core.released(std::iter::once(&self.acquisition)),
            Ending::LetExpire => {
                if !was_held {
                    self.core.lose(&self.acquisition);
                }
                self.core.part_with(&self.acquisition);
            }
        }
    }

    fn left_to_lease(&self, ending: Ending) {
        match ending {
            Ending::Release(_) => self.core.ledger.remove(std::iter::once(&*self.acquisition)),
            Ending::LetExpire => self.core.part_with(&self.acquisition),
        }
    }
}
