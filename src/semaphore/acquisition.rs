//! An acquisition: the life of one ID, from the first request to the end of its permit.
//!
//! The outcome of a wait can come from three sides: the reply to the request, a message, or the
//! reply to a heartbeat. The first one counts; a later one says the same. Meanwhile the caller may
//! drop the wait at any moment, and a request that was given up may still be on its way to the
//! server, or its answer on the way back. So the ID is what counts, not the call: once an
//! acquisition is over it is asked for no more, and as soon as no acquire of it is under way its ID
//! is released until the server confirms that, whatever the server has for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::batching::{InFlight, Kinds};
use crate::error::Error;
use crate::protocol::Place;
use crate::semaphore::lease::{Grant, Lease};

/// What may be under way for an acquisition.
pub(crate) const ACQUIRE: Kinds = 1;
pub(crate) const RELEASE: Kinds = 2;
pub(crate) const REFRESH: Kinds = 4;
pub(crate) const ACKNOWLEDGE: Kinds = 8;
pub(crate) const ADOPT: Kinds = 16;

pub(crate) struct Acquisition {
    /// Its name inside this process.
    pub(crate) number: u128,
    /// Its name on the server.
    pub(crate) id: String,
    pub(crate) weight: u32,
    /// Set once it is a permit.
    lease: OnceLock<Lease>,
    pub(crate) created: Instant,
    over: AtomicBool,
    /// The server may have heard of it.
    sent: AtomicBool,
    pub(crate) in_flight: InFlight,
    /// An acquire of it, or an adoption, may still reach the server.
    in_doubt: AtomicBool,
    wait: Mutex<Wait>,
}

#[derive(Default)]
struct Wait {
    queued: Option<Queued>,
    outcome: Outcome,
}

/// The last answer that said "queued".
#[derive(Debug, Clone, Copy)]
struct Queued {
    /// When it was asked for.
    asked: Instant,
    /// What the server's clock said in it, in ms.
    at: i64,
    place: Place,
}

/// Errors are large, and many may wait.
type Answered = Result<Grant, Box<Error>>;

/// The first one counts; a second one says the same.
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

    /// From now on it is asked for no more. Its release goes out once no acquire of it is out, so
    /// that nothing is left of it.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// As [`end`](Self::end), for a wait that nobody waits for any more.
    pub(crate) fn abandon(&self) {
        self.end();
        self.wait().outcome = Outcome::Resolved(None);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// A call with it goes out over a connection.
    pub(crate) fn set_sent(&self) {
        self.sent.store(true, Ordering::SeqCst);
    }

    /// Whether the server may have something of it.
    pub(crate) fn was_sent(&self) -> bool {
        self.sent.load(Ordering::SeqCst)
    }

    pub(crate) fn set_in_doubt(&self) {
        self.in_doubt.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_in_doubt(&self) -> bool {
        self.in_doubt.load(Ordering::Relaxed)
    }

    /// Asked once.
    pub(crate) fn take_doubt(&self) -> bool {
        self.is_in_doubt() && self.in_doubt.swap(false, Ordering::Relaxed)
    }

    fn wait(&self) -> std::sync::MutexGuard<'_, Wait> {
        self.wait.lock().expect("nothing panics while it is locked")
    }

    /// From now on an outcome counts, whether it comes from a heartbeat or in a message.
    pub(crate) fn open(&self) {
        self.wait().outcome = Outcome::Open;
    }

    /// Where the outcome of a wait arrives.
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

    /// When it was asked for that was answered "queued" last; when it was made, before that.
    pub(crate) fn asked(&self) -> Instant {
        self.wait().queued.map_or(self.created, |queued| queued.asked)
    }

    /// Granted by a message, with a lease that ends at this time of the server. Where we were told
    /// "queued" after it began, the message is about a permit that has been lost since. (Where only
    /// the server's clock was set back, asking again tells.)
    pub(crate) fn granted_by_message(&self, token: u64, ends: i64, lease: Duration) {
        let granted_at = ends.saturating_sub(lease.as_millis() as i64);
        let queued = self.wait().queued;
        if queued.is_none_or(|queued| granted_at >= queued.at) {
            let since = queued.map_or(self.created, |queued| queued.asked);
            self.resolve(Ok(Grant { token, since }));
        }
    }

    /// It waits no longer, whether its outcome was picked up or not.
    pub(crate) fn is_resolved(&self) -> bool {
        self.lease().is_some() || matches!(self.wait().outcome, Outcome::Resolved(_))
    }

    pub(crate) fn resolve(&self, outcome: Result<Grant, Error>) {
        let outcome = outcome.map_err(Box::new);
        let mut wait = self.wait();
        match std::mem::take(&mut wait.outcome) {
            Outcome::Open => wait.outcome = Outcome::Resolved(Some(outcome)),
            Outcome::Awaited(sender) => {
                // Nobody listens when the wait was dropped: then this is over, and given back.
                let _ = sender.send(outcome);
                wait.outcome = Outcome::Resolved(None);
            }
            resolved => wait.outcome = resolved,
        }
    }
}
