//! The items of one semaphore that this process has given up: dropped permits, canceled waits, and
//! calls whose callers were dropped. The release of each item is retried until the server confirms
//! the release, or until the item's lease has expired.
//!
//! A program expects that its calls take effect in the order in which it makes them. So no call may
//! overtake the release of an item that was given up before it. [`Releases`] follows these rules:
//!
//! 1. Each item is added to its [`Releases`] before `drop` returns.
//! 2. Before a call is sent, each release that is not yet written to the call's connection is
//!    written to this connection. Redis executes a connection's commands in order. So the order
//!    costs no extra round trip, and is kept even if the connection is lost.
//! 3. If a written release times out before redis-rs sends it, or is written a second time, a call
//!    that was written after it may have overtaken it. That call is repeated.
//! 4. If a request is given up while its call is under way, the request is released when that call
//!    ends. Later calls wait until that release can be sent.
//!
//! A task, the keeper, sends the releases that precede no call, and retries failed releases. The
//! keeper ends when no item remains. A release that arrives twice has no effect the second time.

mod call;
mod ledger;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

pub(crate) use call::ReleaseCall;
use ledger::Ledger;

use crate::lock::Lock;
use crate::protocol::ReleaseMode;

/// An item that this process has given up.
pub(crate) trait GivenUp: Send + Sync {
    /// If a call under way may still create the item on the server, keeps the release of the item
    /// back, and returns true. When that call ends, [`Releases::changed`] is called.
    fn keep_back(&self) -> bool;

    /// Whether the item is a permit that the caller received.
    fn is_permit(&self) -> bool;

    /// The number of the request, or 0 if it has none. Items with equal numbers are sent in separate
    /// calls.
    fn number(&self) -> u128;

    /// The ID on the server. `None` if the ID was never sent.
    fn id(&self) -> Option<&str>;

    fn write_keys(&self, cmd: &mut redis::Cmd);

    /// Writes the arguments for this ending of the item.
    fn write(&self, ending: Ending, cmd: &mut redis::Cmd);

    /// Handles the field `wake_in` of a reply. Returns the part of the reply that contains a status
    /// for each ID.
    fn statuses<'a>(&self, reply: &'a [i64]) -> &'a [i64];

    /// Records that the server has confirmed the end of the item, and whether the item was a permit
    /// that was held.
    fn ended(&self, ending: Ending, was_held: bool);

    /// Records that the server did not confirm the end of the item before the lease expired.
    fn left_to_lease(&self, ending: Ending);
}

/// The way in which a permit or request ends.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Ending {
    Release(ReleaseMode),
    /// Starts the last lease of a permit.
    LetExpire,
}

impl Ending {
    pub(crate) const RETURN: Self = Self::Release(ReleaseMode::Return);

    /// The name of the operation in errors.
    pub(crate) fn operation(self) -> &'static str {
        match self {
            Self::Release(ReleaseMode::Return) => "release",
            Self::Release(ReleaseMode::Forget) => "forget",
            Self::LetExpire => "let_expire",
        }
    }

    pub(crate) fn script(self) -> &'static str {
        match self {
            Self::Release(_) => "release",
            Self::LetExpire => "refresh",
        }
    }

    /// Returns the ending to use. If the permit was lost, it is released instead of forgotten,
    /// because a lost permit must not change the limit. `LetExpire` stays unchanged even if the
    /// permit was lost, because the permit counts as a start.
    pub(crate) fn unless_lost(self, was_lost: bool) -> Self {
        match self {
            Self::Release(_) if was_lost => Self::RETURN,
            ending => ending,
        }
    }
}

pub(crate) struct Entry {
    pub(crate) given_up: Box<dyn GivenUp>,
    pub(crate) ending: Ending,
    /// The time by which the item's lease has expired.
    pub(crate) until: Option<Instant>,
}

/// The given-up items of all semaphores with one name: see the [module](self).
pub(crate) struct Releases {
    ledger: Lock<Ledger>,
    /// The number of release calls that were written, but may take effect late or never.
    lapses: AtomicU64,
    /// Whether calls for this semaphore name the keys for groups, too.
    has_groups: AtomicBool,
    changes: Notify,
}

impl Releases {
    fn new() -> Self {
        let (ledger, lapses) = (Lock::default(), AtomicU64::new(0));
        let has_groups = AtomicBool::new(false);
        Self { ledger, lapses, has_groups, changes: Notify::new() }
    }

    pub(crate) fn has_groups(&self) -> bool {
        self.has_groups.load(Ordering::Relaxed)
    }

    /// Called when a request has a group, or when the server has found that the semaphore has
    /// groups.
    pub(crate) fn note_groups(&self) {
        self.has_groups.store(true, Ordering::Relaxed);
    }

    /// Adds entries. Returns whether a keeper must be started.
    pub(crate) fn add(&self, entries: impl IntoIterator<Item = Entry>) -> bool {
        let mut ledger = self.ledger.lock();
        let mut needs_keeper = false;
        for entry in entries {
            needs_keeper |= ledger.add(Arc::new(entry));
        }
        drop(ledger);
        self.changed();
        needs_keeper
    }

    /// The number of entries that may have to be sent before a call.
    pub(crate) fn len(&self) -> usize {
        self.ledger.lock().len()
    }

    /// Records that a release call may take effect later than a call that was written after it.
    fn lapse(&self) {
        self.lapses.fetch_add(1, Ordering::SeqCst);
    }

    /// Notifies the keeper and waiting calls of a change.
    pub(crate) fn changed(&self) {
        self.changes.notify_waiters();
    }

    /// Completes at the next change after this call.
    pub(crate) fn change(&self) -> Notified<'_> {
        self.changes.notified()
    }

    /// Returns the calls that the keeper sends now. Returns `None` if no entry remains: the keeper
    /// must end.
    pub(crate) fn work(self: &Arc<Self>) -> Option<Vec<ReleaseCall>> {
        let entries = self.ledger.lock().take()?;
        Some(ReleaseCall::of(self, entries))
    }

    /// Removes and returns the entries whose leases have expired.
    pub(crate) fn expired(&self) -> Vec<Arc<Entry>> {
        self.ledger.lock().expired(Instant::now())
    }

    /// Ends the keeper early, because its runtime has ended. Removes the remaining entries, which
    /// would otherwise keep their semaphores alive forever. Returns calls that end these entries.
    /// Requests come before permits, so that no released permit is granted to one of the requests.
    pub(crate) fn abandon(self: &Arc<Self>) -> Vec<ReleaseCall> {
        let mut left = self.ledger.lock().abandon();
        self.changed();
        left.retain(|(_, entry)| entry.given_up.id().is_some());
        left.sort_by_key(|(_, entry)| entry.given_up.is_permit());
        ReleaseCall::of(self, left)
    }
}

/// The items that were given up before a call was made. Their releases must take effect before the
/// call.
pub(crate) struct GivenUpBefore<'a> {
    releases: &'a Arc<Releases>,
    /// The number of the first entry that was given up later.
    end: u64,
    /// The call, if it is a release call that is sent without earlier calls.
    alone: Option<&'a ReleaseCall>,
}

impl Releases {
    /// Returns a mark in the sequence of given-up items: every item that was given up so far is
    /// before the mark.
    pub(crate) fn mark(&self) -> u64 {
        self.ledger.lock().next_number()
    }

    /// Returns the items that were given up before the mark.
    pub(crate) fn until(self: &Arc<Self>, mark: u64) -> GivenUpBefore<'_> {
        GivenUpBefore { releases: self, end: mark, alone: None }
    }
}

impl GivenUpBefore<'_> {
    /// If one of these releases cannot be sent yet, keeps the call back, and returns true.
    pub(crate) fn keep_call_back(&self) -> bool {
        self.releases.ledger.lock().keep_back_before(self.end)
    }

    /// Waits until all these releases can be sent.
    pub(crate) async fn ready(&self) {
        loop {
            let mut change = pin!(self.releases.change());
            change.as_mut().enable();
            if !self.keep_call_back() {
                return;
            }
            change.await;
        }
    }

    /// Returns the releases that are not yet written to this connection. Also returns releases of
    /// items that were given up after the mark. The program gave up these items while the call was
    /// under way, so their releases may precede the call.
    pub(crate) fn unwritten(&self, connection: u64) -> Vec<ReleaseCall> {
        if self.alone.is_some() {
            return Vec::new();
        }
        let entries = self.releases.ledger.lock().unwritten(connection);
        ReleaseCall::of(self.releases, entries)
    }

    /// The number of releases so far that may take effect late, although they were written. A
    /// release call that is sent alone waits for no other release.
    pub(crate) fn lapses(&self) -> u64 {
        match self.alone {
            Some(_) => 0,
            None => self.releases.lapses.load(Ordering::SeqCst),
        }
    }

    /// Called when the call has been written to this connection.
    pub(crate) fn written(&self, connection: u64) {
        if let Some(call) = self.alone {
            call.written(connection);
        }
    }

    /// Called when the call ends without a reply.
    pub(crate) fn withdrawn(&self) {
        if let Some(call) = self.alone {
            call.withdrawn();
        }
    }

    /// Called when the server has found that the semaphore has groups. Later calls name all keys.
    pub(crate) fn note_groups(&self) {
        self.releases.note_groups();
    }
}

/// The [`Releases`] of a client, by name. Semaphores with the same name share a [`Releases`].
pub(crate) struct ReleasesByName {
    all: Lock<HashMap<String, Weak<Releases>>>,
}

impl ReleasesByName {
    pub(crate) fn new() -> Self {
        Self { all: Lock::default() }
    }

    pub(crate) fn of(&self, name: &str) -> Arc<Releases> {
        let mut all = self.all.lock();
        if let Some(releases) = all.get(name).and_then(Weak::upgrade) {
            return releases;
        }
        let releases = Arc::new(Releases::new());
        all.insert(name.to_owned(), Arc::downgrade(&releases));
        releases
    }

    /// Removes a name that no semaphore uses any more.
    pub(crate) fn clear(&self, name: &str, last: &Arc<Releases>) {
        let mut all = self.all.lock();
        if Arc::strong_count(last) == 1 {
            all.remove(name);
        }
    }
}
