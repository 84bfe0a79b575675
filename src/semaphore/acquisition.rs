//! An acquisition: the life of one ID, from the first request to the end of its permit.
//!
//! The outcome of a wait can arrive in three ways: the reply to the request, a message, or the
//! reply to a heartbeat. The first outcome counts; later ones are equal. The caller may drop the
//! wait at any moment. A request that was given up may then still be on its way to the server, or
//! its reply on the way back. Therefore the ID decides, not the call. Once an acquisition has
//! ended, no acquire of it is sent. As soon as none is in flight, its ID is released until the
//! server confirms, whether or not the server has something for it.

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
    /// The name of the acquisition inside this process.
    pub(crate) number: u128,
    /// The name of the acquisition on the server.
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
    /// When the request of the reply was sent.
    asked: Instant,
    /// The server's clock in the reply, in ms.
    at: i64,
    place: Place,
}

/// Boxed, because errors are large and many requests may wait.
type Answered = Result<Grant, Box<Error>>;

/// The first outcome counts; later ones are equal.
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

    /// Ends the acquisition: no acquire of it is sent from now on. Its release is sent once no
    /// acquire is in flight, so that the server keeps nothing.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// Ends a wait whose caller has dropped it.
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

    /// Whether the server may have something for the ID.
    pub(crate) fn was_sent(&self) -> bool {
        self.sent.load(Ordering::SeqCst)
    }

    pub(crate) fn set_in_doubt(&self) {
        self.in_doubt.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_in_doubt(&self) -> bool {
        self.in_doubt.load(Ordering::Relaxed)
    }

    /// Returns whether the ID was in doubt, and clears the doubt.
    pub(crate) fn take_doubt(&self) -> bool {
        self.is_in_doubt() && self.in_doubt.swap(false, Ordering::Relaxed)
    }

    fn wait(&self) -> std::sync::MutexGuard<'_, Wait> {
        self.wait.lock().expect("nothing panics while it is locked")
    }

    /// From now on the next outcome counts, whether it comes from a heartbeat or in a message.
    pub(crate) fn open(&self) {
        self.wait().outcome = Outcome::Open;
    }

    /// Returns the receiver of the wait's outcome.
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

    /// When the request of the last "queued" reply was sent; before that, when the acquisition was
    /// created.
    pub(crate) fn asked(&self) -> Instant {
        self.wait().queued.map_or(self.created, |queued| queued.asked)
    }

    /// Handles a grant by message, whose lease expires at `ends` on the server's clock. If a
    /// "queued" reply is newer than the grant, that permit has been lost since. If only the
    /// server's clock was set back, the next heartbeat clears this up.
    pub(crate) fn granted_by_message(&self, token: u64, ends: i64, lease: Duration) {
        let granted_at = ends.saturating_sub(lease.as_millis() as i64);
        let queued = self.wait().queued;
        if queued.is_none_or(|queued| granted_at >= queued.at) {
            let since = queued.map_or(self.created, |queued| queued.asked);
            self.resolve(Ok(Grant { token, since }));
        }
    }

    /// Whether the wait is over, even if the caller has not taken the outcome yet.
    pub(crate) fn is_resolved(&self) -> bool {
        self.lease().is_some() || matches!(self.wait().outcome, Outcome::Resolved(_))
    }

    pub(crate) fn resolve(&self, outcome: Result<Grant, Error>) {
        let outcome = outcome.map_err(Box::new);
        let mut wait = self.wait();
        match std::mem::take(&mut wait.outcome) {
            Outcome::Open => wait.outcome = Outcome::Resolved(Some(outcome)),
            Outcome::Awaited(sender) => {
                // If the wait was dropped there is no receiver: the acquisition has ended and is
                // released.
                let _ = sender.send(outcome);
                wait.outcome = Outcome::Resolved(None);
            }
            resolved => wait.outcome = resolved,
        }
    }
}
