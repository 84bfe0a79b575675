//! The ledger: every request and every permit of one semaphore in this process.
//!
//! An [`Acquisition`] is the life of one ID. This picture shows its stages:
//!
//! ```text
//!              resolve                  hold
//!  Waiting ───────────────▶ Resolved ─────────────▶ Held
//!     ▲ │                     │  │                   │
//!     └─┼─────────────────────┘  │                   │
//!       │      wait_again        │                   │
//!       └────────────────────────┴─▶ Ended ◀─────────┘
//!                 end_wait                   end
//! ```
//!
//! - `resolve`: a reply or a grant message contains the grant, or an error ends the wait. Only the
//!   first outcome counts. A grant message is ignored if it is older than the last "queued" reply.
//! - `wait_again`: the permit was lost before the caller received it.
//! - `hold`: the caller receives the permit.
//! - `end_wait`: the caller dropped the wait, the server has nothing for the ID, or a close or
//!   shutdown ended the wait.
//! - `end`: the caller has released, forgotten, detached or dropped the permit, or lets it expire.
//!
//! A permit has a lease from the stage `Held` on. Only then do background refreshes extend it. The
//! loss of a permit is no stage: the lease records the loss (`lease.rs`).
//!
//! `Ended` is final. However, the server may still have the ID, and a call with the ID may be under
//! way. [`Calls`] records the calls under way. If a call with the ID was written, the ID is
//! released after the last acquire, adoption or release of the ID has ended. The release is
//! retried until the server confirms it, or until the permit can no longer exist.
//!
//! An acquisition enters the ledger just before the first call that may queue its ID, or when its
//! permit is granted. The acquisition leaves the ledger when
//!
//! - the wait is ended (`end_wait`), even if the release is still under way,
//! - the release of a `Held` permit is confirmed or given up,
//! - a background refresh finds that the permit is lost, or
//! - the permit is detached or left to expire: the router then remembers the ID for the time of a
//!   lease.
//!
//! If neither the ledger nor the router knows the ID in a grant message, the granted permit is
//! usually released (`core/give_back.rs`). Permits in use are in the ledger, so a late or repeated
//! message never ends them.

mod acquisition;
mod calls;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

pub(crate) use acquisition::Acquisition;
pub(crate) use calls::{ACQUIRE, Calls, Kinds, REFRESH, RELEASE};

use crate::lock::Lock;

#[derive(Default)]
pub(crate) struct Ledger(Lock<ByNumber>);

type ByNumber = HashMap<u128, Arc<Acquisition>>;

impl Ledger {
    /// Enters acquisitions, except those that have ended.
    pub(crate) fn enter<'a>(&self, acquisitions: impl Iterator<Item = &'a Arc<Acquisition>>) {
        let mut entries = self.0.lock();
        // An acquisition that has ended may already have been removed. Such an acquisition must not
        // be entered again.
        for acquisition in acquisitions.filter(|acquisition| !acquisition.is_ended()) {
            entries.entry(acquisition.number).or_insert_with(|| acquisition.clone());
        }
    }

    /// Removes acquisitions. The acquisition of an unwanted permit is not in the ledger, but may
    /// have a forged number. So an acquisition that only has the same number is not removed.
    pub(crate) fn remove<'a>(&self, acquisitions: impl Iterator<Item = &'a Acquisition>) {
        let mut entries = self.0.lock();
        for acquisition in acquisitions {
            if let Entry::Occupied(entered) = entries.entry(acquisition.number)
                && std::ptr::eq(&**entered.get(), acquisition)
            {
                entered.remove();
            }
        }
    }

    pub(crate) fn find(&self, number: u128) -> Option<Arc<Acquisition>> {
        self.0.lock().get(&number).cloned()
    }

    pub(crate) fn has_waits(&self) -> bool {
        self.0.lock().values().any(|acquisition| acquisition.is_waiting())
    }

    /// Returns the requests that the server has queued, sorted by ticket.
    pub(crate) fn queued(&self) -> Vec<Arc<Acquisition>> {
        let waiting = |acquisition: &Arc<Acquisition>| {
            let place = acquisition.place().filter(|_| acquisition.is_waiting())?;
            Some((place.ticket, acquisition.clone()))
        };
        let mut queued: Vec<_> = self.0.lock().values().filter_map(waiting).collect();
        queued.sort_by_key(|(ticket, _)| *ticket);
        queued.into_iter().map(|(_, acquisition)| acquisition).collect()
    }

    /// Ends and removes every acquisition whose caller has no permit yet. Returns these
    /// acquisitions.
    pub(crate) fn end_waits(&self) -> Vec<Arc<Acquisition>> {
        let all: Vec<_> = self.0.lock().values().cloned().collect();
        let ended: Vec<_> = all.into_iter().filter(|acquisition| acquisition.end_wait()).collect();
        self.remove(ended.iter().map(|acquisition| &**acquisition));
        ended
    }

    /// Returns the permits to refresh, and granted permits that their callers will receive and that
    /// must be refreshed from then on.
    pub(crate) fn to_refresh(&self) -> Vec<Arc<Acquisition>> {
        let entries = self.0.lock();
        let permits = entries.values().filter(|acquisition| acquisition.is_resolved_or_held());
        permits.cloned().collect()
    }
}
