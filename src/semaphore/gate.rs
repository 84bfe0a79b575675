//! One semaphore as this process uses it: its keys, its settings, and the permits that it holds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use crate::batching::Lane;
use crate::protocol::{Acquired, Keys, millis, word};
use crate::semaphore::acknowledge::{Acknowledge, Acknowledgement, Replicated};
use crate::semaphore::claim::Claim;
use crate::semaphore::closing::Closing;
use crate::semaphore::numbered::Numbered;
use crate::semaphore::requests::{Acquire, How, Refresh, Release};
use crate::semaphore::shared::{Client, Shared};
use crate::semaphore::unwanted::Unwanted;
use crate::semaphore::worker::Task;
use crate::server::slot_of;
use crate::wakeup::Channel;

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
    /// What a word begins with, where the weight is 1.
    word_start: String,
    pub(crate) client: Client,
    pub(crate) closing: Closing,
    /// The server was told the limit of the configuration.
    declared: AtomicBool,
    pub(crate) acquires: Lane<Acquire>,
    pub(crate) releases: Lane<Release>,
    pub(crate) refreshes: Lane<Refresh>,
    pub(crate) acknowledges: Lane<Acknowledge>,
    pub(crate) replicated: Replicated,
    /// What holds a permit, by number.
    held: Mutex<Numbered<Weak<Claim>>>,
    renewing: AtomicBool,
    /// Words that hold a permit which nobody here wants.
    pub(crate) unwanted: Unwanted,
    /// The last call answered many, who may all have a next request.
    pub(super) rush: AtomicBool,
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
    pub(crate) fn new(name: String, settings: Settings, client: Client) -> Arc<Self> {
        let shared = client.shared.clone();
        let (keys, slot) = (Keys::new(&shared.prefix, &name), slot_of(&name));
        let channel = shared.wakeups.channel_for(&shared.prefix, &name, &shared.name, slot);
        let word_start = word::start(&shared.words, 1, millis(settings.first_lease()));
        let (declared, held, renewing, unwanted, rush, wake_at) = Default::default();
        let (acquires, releases, refreshes, acknowledges, replicated) = Default::default();
        let gate = Arc::new(Self {
            number: shared.next_gate(),
            name,
            keys,
            slot,
            channel,
            settings,
            word_start,
            client,
            closing: Closing::default(),
            declared,
            acquires,
            releases,
            refreshes,
            acknowledges,
            replicated,
            held,
            renewing,
            unwanted,
            rush,
            wake_at,
        });
        shared.enter(&gate);
        gate
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.client.shared
    }

    /// A new word.
    pub(crate) fn word(&self, weight: u32, number: u128) -> String {
        if weight == 1 {
            return word::new(&self.word_start, number);
        }
        let lease = millis(self.settings.first_lease());
        word::new(&word::start(&self.shared().words, weight, lease), number)
    }

    pub(crate) fn is_declared(&self) -> bool {
        self.declared.load(Ordering::Relaxed)
    }

    /// The server knows our limit now. This is the one that it was told before, if any.
    pub(crate) fn was_declared(&self, before: i64) {
        if self.is_declared() || self.declared.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Limit::Declared(ours) = self.settings.limit
            && ![-1, ours.into()].contains(&before)
        {
            tracing::warn!(
                semaphore = self.name,
                declared = ours,
                before,
                "another client declared another limit; the newest one is in force"
            );
        }
    }

    fn held(&self) -> MutexGuard<'_, Numbered<Weak<Claim>>> {
        self.held.lock().expect("nothing panics while it is locked")
    }

    /// From now on these are held, and the worker renews their leases where that is wanted.
    pub(crate) fn hold<'a>(self: &Arc<Self>, claims: impl Iterator<Item = &'a Arc<Claim>>) {
        let mut held = self.held();
        held.extend(claims.map(|claim| (claim.number, Arc::downgrade(claim))));
        let renews = self.settings.auto_renew && !held.is_empty();
        if renews && !self.renewing.swap(true, Ordering::AcqRel) {
            self.client.send(Task::Renew(self.clone()));
        }
    }

    pub(crate) fn hold_no_more<'a>(&self, claims: impl Iterator<Item = &'a Claim>) {
        let mut held = self.held();
        for claim in claims {
            held.remove(&claim.number);
        }
    }

    pub(crate) fn holds(&self, number: u128) -> bool {
        self.held().contains_key(&number)
    }

    /// Has the worker give back whatever the server has for this claim. Answers whether there still
    /// is a worker.
    pub(crate) fn give_back(&self, claim: &Arc<Claim>, how: How) -> bool {
        let is_sent = self.client.send(Task::Release(claim.clone(), how));
        if !is_sent {
            self.hold_no_more(std::iter::once(&**claim));
        }
        is_sent
    }

    /// What the worker must renew. `None` has the worker forget this semaphore, until the next
    /// [`hold`](Self::hold).
    pub(crate) fn permits_to_renew(&self) -> Option<Vec<Arc<Claim>>> {
        let held = self.held();
        if held.is_empty() {
            // Under the lock, so that no permit is put in between unseen.
            self.renewing.store(false, Ordering::Release);
            return None;
        }
        Some(held.values().filter_map(Weak::upgrade).collect())
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
        self.shared().strike(&self.name);
        self.client.send(Task::Gone(self.number));
    }
}
