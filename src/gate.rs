//! One semaphore as this process uses it: its keys, its settings, and the permits to renew.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use tokio::sync::OnceCell;

use crate::acknowledge::{Acknowledge, Acknowledgement, Replicated};
use crate::claim::Claim;
use crate::client::{Client, Shared};
use crate::closing::Closing;
use crate::keys::Keys;
use crate::lane::Lane;
use crate::numbered::Numbered;
use crate::requests::{Acquire, Acquired, How, Refresh, Release};
use crate::servers::slot_of;
use crate::wakeups::Channel;
use crate::worker::Task;

pub(crate) struct Gate {
    /// Its name inside this process.
    pub(crate) number: u64,
    pub(crate) name: String,
    pub(crate) keys: Keys,
    /// Of a cluster, where it is one.
    pub(crate) slot: u16,
    /// Where its wake-ups arrive.
    pub(crate) channel: Arc<Channel>,
    pub(crate) settings: Settings,
    pub(crate) client: Client,
    pub(crate) closing: Closing,
    /// Done once the limit was declared.
    pub(crate) declared: OnceCell<()>,
    pub(crate) acquires: Lane<Acquire>,
    pub(crate) releases: Lane<Release>,
    pub(crate) refreshes: Lane<Refresh>,
    pub(crate) acknowledges: Lane<Acknowledge>,
    pub(crate) replicated: Replicated,
    /// The permits to renew, by number.
    renewed: Mutex<Numbered<Weak<Claim>>>,
    renewing: AtomicBool,
    /// The last call answered many, who may all have a next request.
    rush: AtomicBool,
    wake_at: Mutex<Option<Instant>>,
}

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) limit: Limit,
    pub(crate) lease: Duration,
    pub(crate) auto_renew: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) acquire_timeout: Option<Duration>,
    pub(crate) acknowledgement: Option<Acknowledgement>,
}

impl Settings {
    /// The lease that an acquire asks for.
    pub(crate) fn first_lease(&self) -> Duration {
        self.max_hold.map_or(self.lease, |max_hold| max_hold.min(self.lease))
    }
}

/// What the configuration says of the limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Limit {
    Declared(u32),
    Initial(u32),
}

impl Limit {
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Declared(limit) | Self::Initial(limit) => limit,
        }
    }
}

impl Gate {
    pub(crate) fn new(name: String, settings: Settings, client: Client) -> Self {
        let Shared { prefix, wakeups, .. } = &*client.shared;
        let (keys, slot) = (Keys::new(prefix, &name), slot_of(&name));
        let channel = wakeups.channel_for(prefix, &name, slot);
        let (declared, renewed, renewing, rush, wake_at) = Default::default();
        let (acquires, releases, refreshes, acknowledges, replicated) = Default::default();
        let number = client.shared.next_gate();
        Self {
            number,
            name,
            keys,
            slot,
            channel,
            settings,
            client,
            closing: Closing::default(),
            declared,
            acquires,
            releases,
            refreshes,
            acknowledges,
            replicated,
            renewed,
            renewing,
            rush,
            wake_at,
        }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.client.shared
    }

    fn renewed(&self) -> MutexGuard<'_, Numbered<Weak<Claim>>> {
        self.renewed.lock().expect("nothing panics while it is locked")
    }

    /// From now on the worker renews the leases of these permits.
    pub(crate) fn keep_renewing<'a>(
        self: &Arc<Self>,
        claims: impl Iterator<Item = &'a Arc<Claim>>,
    ) {
        if !self.settings.auto_renew {
            return;
        }
        let mut renewed = self.renewed();
        renewed.extend(claims.map(|claim| (claim.number, Arc::downgrade(claim))));
        if !renewed.is_empty() && !self.renewing.swap(true, Ordering::AcqRel) {
            self.client.send(Task::Renew(self.clone()));
        }
    }

    pub(crate) fn stop_renewing<'a>(&self, claims: impl Iterator<Item = &'a Claim>) {
        let mut renewed = self.renewed();
        for claim in claims {
            renewed.remove(&claim.number);
        }
    }

    /// Has the worker give back whatever the server has for this claim. Answers whether there still
    /// is a worker.
    pub(crate) fn give_back(&self, claim: &Arc<Claim>, how: How) -> bool {
        let is_sent = self.client.send(Task::Release(claim.clone(), how));
        if !is_sent {
            self.stop_renewing(std::iter::once(&**claim));
        }
        is_sent
    }

    /// What the worker must renew. `None` has the worker forget this semaphore, until the next
    /// [`keep_renewing`](Self::keep_renewing).
    pub(crate) fn permits_to_renew(&self) -> Option<Vec<Arc<Claim>>> {
        let renewed = self.renewed();
        if renewed.is_empty() {
            // Under the lock, so that no permit is put in between unseen.
            self.renewing.store(false, Ordering::Release);
            return None;
        }
        Some(renewed.values().filter_map(Weak::upgrade).collect())
    }

    pub(crate) fn is_rush(&self) -> bool {
        self.rush.load(Ordering::Relaxed)
    }

    pub(crate) fn set_rush(&self, is_rush: bool) {
        self.rush.store(is_rush, Ordering::Relaxed);
    }

    pub(crate) fn renewal_interval(&self) -> Duration {
        self.settings.lease / 3
    }

    /// The first in the queue set a timer for the end of the next lease. The others come later, in
    /// case that those are gone, and do without where asking again comes first.
    pub(crate) fn plan_wake(self: &Arc<Self>, wake_in: Option<Duration>, requests: &[Acquired]) {
        const STEP: Duration = Duration::from_millis(20);
        let positions = requests.iter().filter_map(|request| match request {
            Acquired::Queued(place) => Some(place.position),
            _ => None,
        });
        let ahead = positions.min().unwrap_or(1).saturating_sub(1).min(u32::MAX.into()) as u32;
        match wake_in {
            Some(Duration::ZERO) => self.wake_at(Instant::now()),
            Some(wake_in) if STEP * ahead < self.shared().settings.ask_interval() => {
                self.wake_at(Instant::now() + wake_in + STEP * ahead);
            }
            _ => {}
        }
    }

    /// Has the worker call `wake` then, unless it will do so earlier.
    pub(crate) fn wake_at(self: &Arc<Self>, at: Instant) {
        let mut planned = self.wake_at.lock().expect("nothing panics while it is locked");
        if planned.is_none_or(|planned| at < planned) {
            *planned = Some(at);
            self.client.send(Task::WakeAt(self.clone(), at));
        }
    }

    /// The time has come.
    pub(crate) fn wakes(&self) {
        *self.wake_at.lock().expect("nothing panics while it is locked") = None;
    }

    pub(crate) fn has_waits(&self) -> bool {
        self.shared().waits().values().any(|claim| std::ptr::eq(&*claim.gate, self))
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.client.send(Task::Gone(self.number));
    }
}
