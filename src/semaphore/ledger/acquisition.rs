//! An acquisition: the life of one ID, from the first request to the end of its permit.

#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::error::Error;
use crate::lock::Lock;
use crate::protocol::Place;
use crate::protocol::id::number_of;
use crate::semaphore::lease::{Grant, Lease};
use crate::semaphore::ledger::calls::Calls;

pub(crate) struct Acquisition {
    /// Identifies the acquisition in this process.
    pub(crate) number: u128,
    /// Identifies the acquisition on the server.
    pub(crate) id: String,
    pub(crate) weight: u32,
    pub(crate) created: Instant,
    pub(crate) calls: Calls,
    /// Set once the acquisition is a permit.
    lease: OnceLock<Lease>,
    life: Lock<Life>,
}

struct Life {
    stage: Stage,
    queued: Option<Queued>,
}

/// See the [picture](super).
enum Stage {
    /// This process knows of no grant yet. If the caller waits for the outcome, the sender delivers
    /// it.
    Waiting(Option<oneshot::Sender<Outcome>>),
    /// The server has granted a permit, or an error has ended the wait. The outcome is `None` if it
    /// was delivered.
    Resolved(Option<Outcome>),
    /// The caller has the permit.
    Held,
    /// The caller no longer waits, or has let the permit go.
    Ended,
}

impl Stage {
    /// Whether the caller still wants a permit, and has none yet.
    fn is_wait(&self) -> bool {
        matches!(self, Self::Waiting(_) | Self::Resolved(_))
    }
}

/// The error is boxed, because errors are large and many requests may wait.
type Outcome = Result<Grant, Box<Error>>;

/// The last reply with the status "queued".
#[derive(Debug, Clone, Copy)]
struct Queued {
    /// The time at which the call that got this reply was sent.
    asked: Instant,
    /// The server's time in this reply, in ms.
    at: i64,
    place: Place,
}

impl Acquisition {
    pub(crate) fn new(number: u128, id: String, weight: u32, created: Instant) -> Self {
        let life = Lock::new(Life { stage: Stage::Waiting(None), queued: None });
        let (calls, lease) = (Calls::default(), OnceLock::new());
        Self { number, id, weight, created, calls, lease, life }
    }

    /// Creates an acquisition that has ended, for a permit that was granted to this ID although no
    /// request waits for it.
    pub(crate) fn unwanted(id: String) -> Arc<Self> {
        let unwanted = Self::new(number_of(&id).unwrap_or_default(), id, 0, Instant::now());
        unwanted.calls.set_written();
        unwanted.end();
        Arc::new(unwanted)
    }

    /// Returns the lease if the acquisition is or was a permit.
    pub(crate) fn lease(&self) -> Option<&Lease> {
        self.lease.get()
    }

    /// Returns the last known place in the queue.
    pub(crate) fn place(&self) -> Option<Place> {
        self.life.lock().queued.map(|queued| queued.place)
    }

    /// Returns the time at which the call that got the last "queued" reply was sent. Before the
    /// first "queued" reply, returns the time at which the acquisition was created.
    pub(crate) fn asked(&self) -> Instant {
        self.life.lock().queued.map_or(self.created, |queued| queued.asked)
    }

    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.life.lock().stage, Stage::Waiting(_))
    }

    /// Whether the server has granted a permit that is still wanted, or an error has ended the wait.
    pub(super) fn is_resolved_or_held(&self) -> bool {
        matches!(self.life.lock().stage, Stage::Resolved(_) | Stage::Held)
    }

    pub(crate) fn is_ended(&self) -> bool {
        matches!(self.life.lock().stage, Stage::Ended)
    }

    /// Notes a "queued" reply. A reply that arrives after the outcome is older than the outcome, so
    /// it replaces no earlier reply.
    pub(crate) fn queued(&self, asked: Instant, server_time: i64, place: Place) {
        let mut life = self.life.lock();
        if matches!(life.stage, Stage::Waiting(_)) || life.queued.is_none() {
            life.queued = Some(Queued { asked, at: server_time, place });
        }
    }

    /// Handles a grant message. `ends` is the expiry of the lease on the server's clock. The
    /// message is ignored if a "queued" reply is newer than the grant: the permit was lost between
    /// the grant and that reply. If the server's clock was set back, an older reply may seem newer.
    /// In this case, the reply to the next heartbeat contains the grant.
    pub(crate) fn granted_by_message(&self, token: u64, ends: i64, lease: Duration) {
        let granted_at = ends.saturating_sub(lease.as_millis() as i64);
        let queued = self.life.lock().queued;
        if queued.is_none_or(|queued| granted_at >= queued.at) {
            let since = queued.map_or(self.created, |queued| queued.asked);
            self.resolve(Ok(Grant { token, since }));
        }
    }

    /// Ends the wait. Only the first outcome counts.
    pub(crate) fn resolve(&self, outcome: Result<Grant, Error>) {
        let mut life = self.life.lock();
        let Stage::Waiting(caller) = &mut life.stage else {
            return;
        };
        let outcome = outcome.map_err(Box::new);
        let Some(caller) = caller.take() else {
            life.stage = Stage::Resolved(Some(outcome));
            return;
        };
        life.stage = Stage::Resolved(None);
        drop(life);
        // If the caller has just dropped the wait, the acquisition ends and is released.
        let _ = caller.send(outcome);
    }

    /// Returns a receiver of the outcome. The receiver gets an error if the acquisition has ended.
    pub(crate) fn await_outcome(&self) -> oneshot::Receiver<Outcome> {
        let (sender, receiver) = oneshot::channel();
        match &mut self.life.lock().stage {
            Stage::Waiting(caller) => *caller = Some(sender),
            Stage::Resolved(outcome) => _ = outcome.take().map(|outcome| sender.send(outcome)),
            Stage::Held | Stage::Ended => {}
        }
        receiver
    }

    /// Continues the wait, because the granted permit was lost before the caller received it.
    pub(crate) fn wait_again(&self) {
        let mut life = self.life.lock();
        if matches!(life.stage, Stage::Resolved(_)) {
            life.stage = Stage::Waiting(None);
        }
    }

    /// Makes the acquisition a permit of its caller. Returns false if the acquisition has ended.
    pub(crate) fn hold(&self) -> bool {
        let mut life = self.life.lock();
        let is_wait = life.stage.is_wait();
        if is_wait {
            life.stage = Stage::Held;
        }
        is_wait
    }

    /// Sets the lease of a permit.
    pub(crate) fn begin_lease(&self, lease: Lease) {
        assert!(self.lease.set(lease).is_ok(), "an acquisition becomes a permit once");
    }

    /// Ends the acquisition: from now on, no new call contains an acquire with its ID.
    pub(crate) fn end(&self) {
        self.change_to_ended(|_| true);
    }

    /// Ends the acquisition, unless the caller has the permit or the acquisition has already ended.
    /// Returns whether this call has ended it.
    pub(crate) fn end_wait(&self) -> bool {
        self.change_to_ended(Stage::is_wait)
    }

    fn change_to_ended(&self, may_change: impl FnOnce(&Stage) -> bool) -> bool {
        let mut life = self.life.lock();
        let changes = may_change(&life.stage);
        let before = changes.then(|| std::mem::replace(&mut life.stage, Stage::Ended));
        drop(life);
        // Dropping the sender wakes the caller. The waker may run any code, so the lock was
        // released first.
        drop(before);
        changes
    }
}
