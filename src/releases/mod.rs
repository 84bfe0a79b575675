//! What this process has given up at one semaphore: permits that were dropped, waits that were
//! canceled. Each is released until the server confirms it, or until its lease has expired anyway.
//!
//! A program's calls take effect in the order in which the program makes them. So no call may
//! overtake the release of something that was given up before it. [`Releases`] keeps this rule as
//! follows:
//!
//! 1. Whatever is given up is entered here before `drop` returns.
//! 2. Before a call goes out, everything here that has not been written to the call's connection
//!    is written to it. Redis serves a connection's commands in order, so this takes no additional
//!    round trip, and holds after a lost connection, too.
//! 3. A request that is given up while a call with it is under way is released when that call is
//!    back. Calls that are made in between wait for that.
//!
//! A task, the keeper, sends what no call takes along, repeats what failed, and ends when nothing
//! is left. A release that arrives twice finds nothing the second time.

mod call;
mod ledger;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

pub(crate) use call::ReleaseCall;
use ledger::Ledger;

use crate::metrics::CallMeter;
use crate::protocol::ReleaseMode;
use crate::server::{Earlier, EarlierCall};

/// Something that this process has given up.
pub(crate) trait GivenUp: Send + Sync {
    /// Whether a call is under way by which the server may still come to have it. If so,
    /// [`Releases::changed`] is called when that call is back.
    fn is_out(&self) -> bool;

    /// Whether it is a permit that was handed out.
    fn is_permit(&self) -> bool;

    /// What no other request of this process has.
    fn number(&self) -> u128;

    /// The ID under which the server has it. `None`: the server has nothing of it.
    fn id(&self) -> Option<&str>;

    /// The keys of its semaphore.
    fn write_keys(&self, cmd: &mut redis::Cmd);

    /// Takes note of the reply to a call of `release`. Returns the part that is about the IDs.
    fn statuses<'a>(&self, reply: &'a [i64]) -> &'a [i64];

    /// The server has nothing of it now. Returns what must be released once more, and when, if an
    /// earlier call may still reach the server.
    fn released(&self) -> Option<(Instant, Entry)>;

    /// The server did not confirm it in time: its lease expires by itself.
    fn left_to_lease(&self);
}

/// One thing that was given up.
pub(crate) struct Entry {
    pub(crate) given_up: Box<dyn GivenUp>,
    pub(crate) mode: ReleaseMode,
    /// Its lease has expired by then.
    pub(crate) until: Option<Instant>,
}

/// What was given up at the semaphores of one name: see the [module](self).
pub(crate) struct Releases {
    ledger: Mutex<Ledger>,
    /// How many entries may have to go out before a call.
    open: AtomicUsize,
    changes: Notify,
    meter: Arc<CallMeter>,
}

/// What there is to do for the keeper.
pub(crate) enum Work {
    /// These go out now, and nothing else until this moment or a change.
    Send(Vec<ReleaseCall>, Option<Instant>),
    Done,
}

impl Releases {
    fn new(meter: Arc<CallMeter>) -> Self {
        let (ledger, open) = (Mutex::default(), AtomicUsize::new(0));
        Self { ledger, open, changes: Notify::new(), meter }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("nothing panics while it is locked")
    }

    /// Runs an operation, after which the number of open entries may be another one.
    fn with<T>(&self, run: impl FnOnce(&mut Ledger) -> T) -> T {
        let mut ledger = self.ledger();
        let done = run(&mut ledger);
        self.open.store(ledger.open(), Ordering::SeqCst);
        done
    }

    /// Enters what was given up. Returns whether a keeper must be started.
    pub(crate) fn add(&self, entries: impl IntoIterator<Item = Entry>) -> bool {
        let needs_keeper = self.with(|ledger| {
            let mut needs_keeper = false;
            for entry in entries {
                needs_keeper |= ledger.add(Arc::new(entry));
            }
            needs_keeper
        });
        self.changed();
        needs_keeper
    }

    /// As [`add`](Self::add), for what is released at that time only. Calls do not wait for it.
    pub(crate) fn add_later(&self, at: Instant, entry: Entry) -> bool {
        let needs_keeper = self.with(|ledger| ledger.add_later(at, Arc::new(entry)));
        self.changed();
        needs_keeper
    }

    /// How many entries may have to go out before a call.
    pub(crate) fn len(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// Something has happened that the keeper, or calls that wait, must look at.
    pub(crate) fn changed(&self) {
        self.changes.notify_waiters();
    }

    /// Completes at the next change after this was called.
    pub(crate) fn change(&self) -> Notified<'_> {
        self.changes.notified()
    }

    /// For the keeper. `is_last`: what is released later is given up.
    pub(crate) fn work(self: &Arc<Self>, is_last: bool) -> Work {
        let taken = self.with(|ledger| ledger.take(Instant::now(), is_last));
        match taken {
            Some((entries, next)) => Work::Send(ReleaseCall::of(self, entries), next),
            None => Work::Done,
        }
    }

    /// Takes out the entries whose leases have expired by now.
    pub(crate) fn expired(&self) -> Vec<Arc<Entry>> {
        self.with(|ledger| ledger.expired(Instant::now()))
    }

    /// The keeper ends before its work is done, because its runtime has ended. Returns what is left
    /// to do: here it would keep its semaphores for ever.
    pub(crate) fn abandon(&self) -> Vec<Arc<Entry>> {
        let left = self.with(std::mem::take);
        self.changed();
        left.into_entries()
    }
}

/// What was given up before a call was made.
pub(crate) struct GivenUpBefore {
    releases: Arc<Releases>,
    /// The number of the first entry that came later.
    end: u64,
}

impl Releases {
    /// Stands for what has been given up so far.
    pub(crate) fn mark(&self) -> u64 {
        if self.len() == 0 { 0 } else { self.ledger().next_number() }
    }

    /// What had been given up at that mark.
    pub(crate) fn until(self: &Arc<Self>, mark: u64) -> GivenUpBefore {
        GivenUpBefore { releases: self.clone(), end: mark }
    }
}

impl Earlier for GivenUpBefore {
    type Call = ReleaseCall;

    fn is_ready(&self) -> bool {
        self.releases.len() == 0 || !self.releases.ledger().is_blocked_before(self.end)
    }

    async fn ready(&self) {
        loop {
            let mut change = pin!(self.releases.change());
            change.as_mut().enable();
            if self.is_ready() {
                return;
            }
            change.await;
        }
    }

    /// What came later may go out, too: it takes effect while the call is under way.
    fn unwritten(&self, connection: u64) -> Vec<ReleaseCall> {
        if self.releases.len() == 0 {
            return Vec::new();
        }
        let entries = self.releases.with(|ledger| ledger.unwritten(connection));
        ReleaseCall::of(&self.releases, entries)
    }
}

/// The [`Releases`] of all semaphores of a client, by name: semaphores of one name share theirs.
pub(crate) struct ReleasesByName {
    all: Mutex<HashMap<String, Weak<Releases>>>,
    meter: Arc<CallMeter>,
}

impl ReleasesByName {
    pub(crate) fn new() -> Self {
        Self { all: Mutex::default(), meter: Arc::new(CallMeter::of(ReleaseCall::SCRIPT)) }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Weak<Releases>>> {
        self.all.lock().expect("nothing panics while it is locked")
    }

    pub(crate) fn of(&self, name: &str) -> Arc<Releases> {
        let mut all = self.all();
        if let Some(releases) = all.get(name).and_then(Weak::upgrade) {
            return releases;
        }
        let releases = Arc::new(Releases::new(self.meter.clone()));
        all.insert(name.to_owned(), Arc::downgrade(&releases));
        releases
    }

    /// Forgets a name that no semaphore has any more.
    pub(crate) fn clear(&self, name: &str, last: &Arc<Releases>) {
        let mut all = self.all();
        if Arc::strong_count(last) == 1 {
            all.remove(name);
        }
    }
}
