//! An acquisition: the life of one ID, from the first request to the end of its permit.
//!
//! The outcome of a wait can arrive in the reply to the request, in a message, or in the reply to a
//! heartbeat. The first outcome counts. Later outcomes are equal to the first. The caller may drop
//! the wait at any moment. At that moment, the request or its reply may be in flight. Therefore the
//! ID is always released, although the server may have nothing for the ID. After an acquisition has
//! ended, no acquire with its ID is sent. When no acquire with the ID is in flight any more, the ID
//! is released. The release is retried until the server confirms it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::batching::{InFlight, Kinds};
use crate::error::Error;
use crate::protocol::Place;
use crate::semaphore::lease::{Grant, Lease};

/// The kinds of calls that may be in flight for an acquisition.
pub(crate) const ACQUIRE: Kinds = 1;
pub(crate) const RELEASE: Kinds = 2;
pub(crate) const REFRESH: Kinds = 4;
pub(crate) const ACKNOWLEDGE: Kinds = 8;
pub(crate) const ADOPT: Kinds = 16;

pub(crate) struct Acquisition {
    /// Identifies the acquisition in this process.
    pub(crate) number: u128,
    /// Identifies the acquisition on the server.
    pub(crate) id: String,
    pub(crate) weight: u32,
    /// Set once the acquisition is a permit.
    lease: OnceLock<Lease>,
    pub(crate) created: Instant,
    over: AtomicBool,
    /// The server may have received the ID.
    sent: AtomicBool,
    pub(crate) in_flight: InFlight,
    /// An acquire or an adoption of the ID may still reach the server.
    in_doubt: AtomicBool,
    wait: Mutex<Wait>,
}

#[derive(Default)]
struct Wait {
    queued: Option<Queued>,
    outcome: Outcome,
}

/// The last reply with the status "queued".
#[derive(Debug, Clone, Copy)]
struct Queued {
    /// The time at which the call that got this reply was sent.
    asked: Instant,
    /// The server's time in this reply, in ms.
    at: i64,
    place: Place,
}

/// The error is boxed, because errors are large and many requests may wait.
type Answered = Result<Grant, Box<Error>>;

#[derive(Default)]
enum Outcome {
    #[default]
    Open,
    Awaited(oneshot::Sender<Answered>),
    Resolved(Option<Answered>),
}

impl Acquisition {
    pub(crate) fn new(number: u128, id: String, weight: u32, created: Instant) -> Self {
        Self {
            number,
            id,
            weight,
            lease: OnceLock::new(),
            created,
            over: AtomicBool::new(false),
            sent: AtomicBool::new(false),
            in_flight: InFlight::default(),
            in_doubt: AtomicBool::new(false),
            wait: Mutex::default(),
        }
    }

    pub(crate) fn begin_lease(&self, lease: Lease) {
        assert!(self.lease.set(lease).is_ok(), "an acquisition becomes a permit once");
    }

    pub(crate) fn lease(&self) -> Option<&Lease> {
        self.lease.get()
    }

    /// Ends the acquisition: from now on, no acquire with its ID is sent. The release is sent after
    /// the last acquire, so that the server keeps nothing.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// Ends a wait that its caller has dropped.
    pub(crate) fn abandon(&self) {
        self.end();
        self.wait().outcome = Outcome::Resolved(None);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Notes that a call with the ID is being written to a connection.
    pub(crate) fn set_sent(&self) {
        self.sent.store(true, Ordering::SeqCst);
    }

    /// Returns whether the server may have a request or a permit for the ID.
    pub(crate) fn was_sent(&self) -> bool {
        self.sent.load(Ordering::SeqCst)
    }

    pub(crate) fn set_in_doubt(&self) {
        self.in_doubt.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_in_doubt(&self) -> bool {
        self.in_doubt.load(Ordering::Relaxed)
    }

    /// Returns the flag `in_doubt`, and clears it.
    pub(crate) fn take_doubt(&self) -> bool {
        self.is_in_doubt() && self.in_doubt.swap(false, Ordering::Relaxed)
    }

    fn wait(&self) -> std::sync::MutexGuard<'_, Wait> {
        self.wait.lock().expect("nothing panics while it is locked")
    }

    /// Accepts the next outcome that a heartbeat or a message delivers.
    pub(crate) fn open(&self) {
        self.wait().outcome = Outcome::Open;
    }

    pub(crate) fn await_outcome(&self) -> oneshot::Receiver<Answered> {
        let (sender, receiver) = oneshot::channel();
        let mut wait = self.wait();
        match &mut wait.outcome {
            Outcome::Resolved(outcome) => {
                outcome.take().map(|outcome| sender.send(outcome));
            }
            outcome => *outcome = Outcome::Awaited(sender),
        }
        receiver
    }

    pub(crate) fn queued(&self, asked: Instant, server_time: i64, place: Place) {
        self.wait().queued = Some(Queued { asked, at: server_time, place });
    }

    pub(crate) fn place(&self) -> Option<Place> {
        self.wait().queued.map(|queued| queued.place)
    }

    /// Returns the time at which the call that got the last "queued" reply was sent. Before the
    /// first "queued" reply, returns the time at which the acquisition was created.
    pub(crate) fn asked(&self) -> Instant {
        self.wait().queued.map_or(self.created, |queued| queued.asked)
    }

    /// Handles a grant message. `ends` is the expiry of the lease on the server's clock. The
    /// message is ignored if a "queued" reply is newer than the grant: the permit was lost in the
    /// meantime. If the server's clock was set back, an older reply may seem newer. In this case,
    /// the reply to the next heartbeat contains the grant.
    pub(crate) fn granted_by_message(&self, token: u64, ends: i64, lease: Duration) {
        let granted_at = ends.saturating_sub(lease.as_millis() as i64);
        let queued = self.wait().queued;
        if queued.is_none_or(|queued| granted_at >= queued.at) {
            let since = queued.map_or(self.created, |queued| queued.asked);
            self.resolve(Ok(Grant { token, since }));
        }
    }

    /// Returns whether the wait is over, even if the caller has not taken the outcome yet.
    pub(crate) fn is_resolved(&self) -> bool {
        self.lease().is_some() || matches!(self.wait().outcome, Outcome::Resolved(_))
    }

    pub(crate) fn resolve(&self, outcome: Result<Grant, Error>) {
        let outcome = outcome.map_err(Box::new);
        let mut wait = self.wait();
        match std::mem::take(&mut wait.outcome) {
            Outcome::Open => wait.outcome = Outcome::Resolved(Some(outcome)),
            Outcome::Awaited(sender) => {
                // This fails if the wait was dropped: the acquisition has then ended and is
                // released.
                let _ = sender.send(outcome);
                wait.outcome = Outcome::Resolved(None);
            }
            resolved => wait.outcome = resolved,
        }
    }
}
