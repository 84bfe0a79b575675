//! A claim: one id's life from the first request to the end of its permit.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use tokio::sync::oneshot;

use crate::Error;
use crate::gate::Gate;

#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) id: String,
    pub(crate) weight: u32,
    lease_ms: i64,
    gate: Weak<Gate>,
    over: AtomicBool,
    wait: Mutex<Wait>,
}

/// How a claim was granted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grant {
    pub(crate) token: u64,
    /// A moment at which it surely was not granted yet: the lease counts from here.
    pub(crate) since: Instant,
}

#[derive(Debug)]
struct Wait {
    /// When the last request was sent that was answered "queued".
    asked: Instant,
    /// What the server's clock said in that answer, in ms.
    queued_at: i64,
    place: Option<Place>,
    outcome: Option<oneshot::Sender<Result<Grant, Error>>>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) ticket: u64,
    pub(crate) position: u64,
}

impl Claim {
    pub(crate) fn new(gate: &Arc<Gate>, weight: u32) -> Self {
        let id = format!("{}:{}", gate.shared().owner, uuid::Uuid::new_v4().simple());
        let wait =
            Mutex::new(Wait { asked: Instant::now(), queued_at: 0, place: None, outcome: None });
        let lease_ms = gate.settings.first_lease().as_millis() as i64;
        Self {
            id,
            weight,
            lease_ms,
            gate: Arc::downgrade(gate),
            over: AtomicBool::new(false),
            wait,
        }
    }

    pub(crate) fn gate(&self) -> Option<Arc<Gate>> {
        self.gate.upgrade()
    }

    /// What is asked for, in ms.
    pub(crate) fn lease_ms(&self) -> i64 {
        self.lease_ms
    }

    /// From now on whoever learns that this id is queued or holds must give it back.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    fn wait(&self) -> std::sync::MutexGuard<'_, Wait> {
        self.wait.lock().expect("nothing panics while it is locked")
    }

    /// Where the outcome of a wait will arrive, from the worker or a wake-up message.
    pub(crate) fn await_outcome(&self) -> oneshot::Receiver<Result<Grant, Error>> {
        let (sender, receiver) = oneshot::channel();
        self.wait().outcome = Some(sender);
        receiver
    }

    pub(crate) fn queued(&self, sent: Instant, server_time: i64, place: Place) {
        let mut wait = self.wait();
        wait.asked = sent;
        wait.queued_at = server_time;
        wait.place = Some(place);
    }

    pub(crate) fn place(&self) -> Option<Place> {
        self.wait().place
    }

    /// When the last request was sent that was answered.
    pub(crate) fn asked(&self) -> Instant {
        self.wait().asked
    }

    /// Granted by a message, at this time of the server. Where we were told "queued" after that, the
    /// message is about a permit that has been lost since. (Where only the server's clock was set
    /// back, asking again tells.)
    pub(crate) fn granted_by_message(&self, token: u64, granted_at: i64) {
        let Wait { asked, queued_at, .. } = *self.wait();
        if granted_at >= queued_at {
            self.settle(Ok(Grant { token, since: asked }));
        }
    }

    /// The first outcome counts; a second one says the same.
    pub(crate) fn settle(&self, outcome: Result<Grant, Error>) {
        if let Some(sender) = self.wait().outcome.take() {
            // Nobody listens when the wait was dropped: then the claim is over and given back.
            let _ = sender.send(outcome);
        }
    }
}
