//! One semaphore as this process uses it: its keys, its settings, what waits and what it holds. The
//! parts below are what it asks of the server.
//!
//! What may be queued is in the table of waits from before its request goes out, since the message
//! of a hand-off may overtake the reply. It enters the table of what is held before it leaves the
//! one of waits, and stays there until its release is confirmed, or it is lost; where this process
//! has parted with it, the router knows it for another lease. So a message that comes late, or
//! twice, always finds what is in use, and whatever it does not find is to be given back.

mod acknowledge;
mod acquire;
mod adopt;
mod give_back;
mod keeper;
mod let_expire;
mod owner;
mod refresh;
mod release;
mod remote;
mod replication;
mod undelivered;
mod upkeep;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, Weak};
use std::time::Duration;

pub(crate) use acquire::{Acquire, IfFull};
pub(crate) use adopt::Adopt;
pub(crate) use refresh::Refresh;
pub(crate) use release::Release;
pub(crate) use remote::{Change, Limits};
pub(crate) use undelivered::Undelivered;
pub(crate) use upkeep::Tasks;

use crate::batching::Batcher;
use crate::context::Context;
use crate::metrics::Meter;
use crate::protocol::message::HandOff;
use crate::protocol::{Keys, ReleaseMode, id, millis};
use crate::releases::Releases;
use crate::semaphore::acquisition::Acquisition;
use crate::semaphore::closing::Closing;
use crate::semaphore::settings::{Limit, Settings};
use crate::server::slot_of;
use crate::wakeup::{Channel, Handler};
use acknowledge::Acknowledge;
use replication::Replication;
use tokio::time::Instant;
use upkeep::Upkeep;

pub(crate) struct Core {
    pub(crate) name: String,
    keys: Keys,
    /// Of a cluster, where it is one.
    pub(crate) slot: u16,
    /// Where its messages arrive.
    pub(crate) channel: Arc<Channel>,
    pub(crate) settings: Settings,
    /// What an ID begins with, where the weight is 1.
    id_start: String,
    pub(crate) context: Arc<Context>,
    pub(crate) closing: Closing,
    pub(crate) meter: Meter,
    upkeep: Upkeep,
    /// What was given up, by all semaphores of this name.
    pub(crate) releases: Arc<Releases>,
    /// The server was told the limit of the configuration.
    declared: AtomicBool,
    acquires: Lazy<Batcher<Acquire>>,
    release_batcher: Lazy<Batcher<Release>>,
    refreshes: Lazy<Batcher<Refresh>>,
    acknowledges: Lazy<Batcher<Acknowledge>>,
    adopts: Lazy<Batcher<Adopt>>,
    replication: Replication,
    /// What waits in the queue, by number.
    waits: Mutex<HashMap<u128, Arc<Acquisition>>>,
    /// What has a permit until its release is confirmed, or this process parts with it, by number.
    held: Mutex<HashMap<u128, Weak<Acquisition>>>,
    renewing: AtomicBool,
    /// The last call answered many, who may all have a next request.
    rush: AtomicBool,
    wake_plan: Mutex<WakePlan>,
}

/// When to call `wake`.
#[derive(Default)]
struct WakePlan {
    planned: Option<Instant>,
    /// When the maintenance looks here: not later than that.
    alarm: Option<Instant>,
}

/// What is made when it is needed: a program may have many semaphores that are idle.
type Lazy<T> = LazyLock<Box<T>>;

fn lazy<T: Default>() -> Lazy<T> {
    LazyLock::new(Box::default)
}

/// What the maintenance of a semaphore is asked to do.
pub(crate) enum Task {
    /// There are permits to renew: all of them then, or earlier where that is planned.
    Renew(Instant),
    /// The lease of a permit begins anew, for the last time.
    LetExpire(Arc<Acquisition>),
    /// Something waits: the server must hear of it often enough to take us for alive.
    Heartbeat,
    /// The truth may have changed without our hearing of it.
    HeartbeatNow,
    WakeAt(Instant),
}

impl Core {
    /// `maintenance` starts the task that works in the background.
    pub(crate) fn new(
        name: String,
        settings: Settings,
        context: Arc<Context>,
        maintenance: fn(&Arc<Self>, Tasks),
    ) -> Arc<Self> {
        let (prefix, client, router) = (&context.prefix, &context.client, &context.router);
        let (keys, slot) = (Keys::new(prefix, &name), slot_of(&name));
        let meter = context.meters.meter(&name);
        let channel = router.channel_for(prefix, &name, client, slot);
        let id_start = id::start(router.ours(), 1, millis(settings.first_lease()));
        let releases = context.releases.of(&name);
        let core = Arc::new(Self {
            name,
            keys,
            slot,
            channel,
            settings,
            id_start,
            context,
            closing: Closing::default(),
            meter,
            upkeep: Upkeep::new(maintenance),
            releases,
            declared: AtomicBool::new(false),
            acquires: lazy(),
            release_batcher: lazy(),
            refreshes: lazy(),
            acknowledges: lazy(),
            adopts: lazy(),
            replication: Replication::default(),
            waits: Mutex::default(),
            held: Mutex::default(),
            renewing: AtomicBool::new(false),
            rush: AtomicBool::new(false),
            wake_plan: Mutex::default(),
        });
        let handler: Weak<Self> = Arc::downgrade(&core);
        core.context.router.register(&core.name, handler);
        if core.context.is_shut_down() {
            core.closing.shut_down();
        }
        core
    }

    /// The first of its keys. Whoever acquires of several semaphores does so in the order of these.
    pub(crate) fn key(&self) -> &str {
        self.keys.all()[0]
    }

    /// A new one, with an ID that nobody has had. With a head start, in ms.
    pub(crate) fn acquisition(&self, weight: u32, head_start: u32) -> Arc<Acquisition> {
        let created = Instant::now();
        let number = self.context.next_number(created);
        let lease = || millis(self.settings.first_lease());
        let start = match weight {
            1 => Cow::Borrowed(self.id_start.as_str()),
            _ => Cow::Owned(id::start(self.context.router.ours(), weight, lease())),
        };
        let id = match head_start {
            0 => id::new(&start, number),
            _ => id::new(&id::start_with_head_start(&start, head_start), number),
        };
        Arc::new(Acquisition::new(number, id, weight, created))
    }

    /// What waits in the queue, by number.
    pub(crate) fn waits(&self) -> MutexGuard<'_, HashMap<u128, Arc<Acquisition>>> {
        self.waits.lock().expect("nothing panics while it is locked")
    }

    /// How long to go on giving back what is held: until the leases have ended anyway.
    pub(crate) fn until_leases_end(&self) -> Duration {
        self.settings.lease.max(self.context.settings.call_timeout())
    }

    pub(crate) fn is_declared(&self) -> bool {
        self.declared.load(Ordering::Relaxed)
    }

    /// The server knows our limit now. This is the one that it was told before, if any.
    pub(crate) fn note_declared(&self, before: i64) {
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

    /// Closes it: all waits end, and later acquires fail.
    pub(crate) fn close(self: &Arc<Self>) {
        self.closing.close();
        self.take_over_calls();
        self.end_waits();
    }

    /// Gives back all that waits.
    fn end_waits(self: &Arc<Self>) {
        let waits = std::mem::take(&mut *self.waits());
        waits.values().for_each(|waiting| waiting.end());
        self.give_back_all(waits.values(), ReleaseMode::Return);
    }

    fn held(&self) -> MutexGuard<'_, HashMap<u128, Weak<Acquisition>>> {
        self.held.lock().expect("nothing panics while it is locked")
    }

    /// From now on these are held, with leases that began then, and the maintenance renews them
    /// where that is wanted. The answer to a heartbeat may come when its permit was passed on: what
    /// is over stays so.
    pub(crate) fn hold<'a>(
        self: &Arc<Self>,
        acquisitions: impl Iterator<Item = &'a Arc<Acquisition>>,
        since: Instant,
    ) {
        let mut held = self.held();
        let before = held.len();
        let lasting = acquisitions.filter(|acquisition| !acquisition.is_over());
        held.extend(lasting.map(|acquisition| (acquisition.number, Arc::downgrade(acquisition))));
        if !self.settings.auto_refresh || held.len() == before {
            return;
        }
        drop(held);
        let (now, interval) = (Instant::now(), self.settings.renewal_interval());
        let is_late = (now - since) * 10 > interval;
        if !self.renewing.swap(true, Ordering::AcqRel) || is_late {
            // All are renewed together: not all the time, however many come late.
            self.enqueue(Task::Renew((since + interval).max(now + interval / 2)));
        }
    }

    pub(crate) fn hold_no_more<'a>(&self, acquisitions: impl Iterator<Item = &'a Acquisition>) {
        let mut held = self.held();
        for acquisition in acquisitions {
            held.remove(&acquisition.number);
        }
    }

    pub(crate) fn holds(&self, number: u128) -> bool {
        self.held().contains_key(&number)
    }

    /// The permit is lost: whoever finds out first tells.
    pub(crate) fn lose(&self, permit: &Acquisition) {
        let Some(lease) = permit.lease().filter(|lease| lease.lose()) else {
            return;
        };
        tracing::warn!(semaphore = self.name, id = permit.id, token = lease.token, "permit lost");
    }

    /// What is to be renewed. `None`: nothing, until there is a [`Task::Renew`].
    pub(crate) fn permits_to_renew(&self) -> Option<Vec<Arc<Acquisition>>> {
        let held = self.held();
        if held.is_empty() {
            // Under the lock, so that no permit is put in between unseen.
            self.renewing.store(false, Ordering::Release);
            return None;
        }
        Some(held.values().filter_map(Weak::upgrade).collect())
    }

    /// Plans the next `wake` in place of what was planned: the server names who is to call it.
    /// `None`: not we. What is due already is done all the same, as a script that stopped at its
    /// bound wants it.
    pub(crate) fn plan_wake(self: &Arc<Self>, wake_in: Option<Duration>) {
        let now = Instant::now();
        let mut wake = self.wake_plan();
        if wake.planned.is_some_and(|at| at <= now) {
            return;
        }
        wake.planned = wake_in.and_then(|wake_in| now.checked_add(wake_in));
        if let Some(at) = wake.planned.filter(|at| wake.alarm.is_none_or(|alarm| *at < alarm)) {
            wake.alarm = Some(at);
            self.enqueue(Task::WakeAt(at));
        }
    }

    /// The alarm has gone off. Answers whether `wake` is due, and when the alarm is to go off
    /// again.
    pub(crate) fn take_wake(&self, now: Instant) -> (bool, Option<Instant>) {
        let mut wake = self.wake_plan();
        let is_due = wake.planned.take_if(|at| *at <= now).is_some();
        wake.alarm = wake.planned;
        (is_due, wake.alarm)
    }

    fn wake_plan(&self) -> MutexGuard<'_, WakePlan> {
        self.wake_plan.lock().expect("nothing panics while it is locked")
    }
}

impl Handler for Core {
    fn handed_off(self: Arc<Self>, hand_off: &HandOff<'_>) -> bool {
        let HandOff { id, token, ends } = *hand_off;
        let Some(number) = id::number_of(id) else {
            return false;
        };
        let waiting = self.waits().get(&number).filter(|waiting| waiting.id == id).cloned();
        match waiting {
            // It left the queue without a permit: asking again tells why.
            Some(_) if token == 0 => _ = self.enqueue(Task::HeartbeatNow),
            Some(waiting) => waiting.granted_by_message(token, ends, self.settings.first_lease()),
            None => return self.holds(number),
        }
        true
    }

    fn unwanted(self: Arc<Self>, ids: Vec<String>) {
        self.give_back_unwanted(ids);
    }

    fn may_have_missed(self: Arc<Self>) {
        if !self.waits().is_empty() {
            self.enqueue(Task::HeartbeatNow);
        }
    }

    fn ended(self: Arc<Self>) {
        self.closing.shut_down();
        // At the end of a runtime no task could take them over.
        if self.context.was_told_to_end() {
            self.take_over_calls();
        }
        self.end_waits();
        self.releases.changed();
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.context.router.unregister(&self.name, self);
        self.context.releases.clear(&self.name, &self.releases);
    }
}
