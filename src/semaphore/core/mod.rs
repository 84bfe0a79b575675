//! One semaphore as this process uses it: keys, settings, requests and permits. The modules in this
//! directory make the semaphore's calls to the server.

mod acknowledge;
mod acquire;
mod adopt;
mod alarm;
mod auto_refresh;
mod batching;
mod give_back;
mod heartbeat;
mod keeper;
mod refresh;
mod release;
mod remote;
mod replication;
mod sending;

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

pub(crate) use acquire::{Acquire, IfFull};
pub(crate) use adopt::Adopt;
pub(crate) use batching::Request;
pub(crate) use refresh::Refresh;
pub(crate) use release::Release;
pub(crate) use remote::{Change, Limits};

use crate::context::Context;
use crate::metrics::Meter;
use crate::protocol::message::HandOff;
use crate::protocol::{Keys, id, keys, millis};
use crate::releases::{Ending, Releases};
use crate::semaphore::closing::Closing;
use crate::semaphore::ledger::{Acquisition, Ledger};
use crate::semaphore::settings::{Limit, Settings};
use crate::server::slot_of;
use crate::wakeup::{Channel, Handler};
use acknowledge::Acknowledge;
use alarm::Alarm;
use batching::Batcher;
use replication::Replication;
use tokio::time::Instant;

pub(crate) struct Core {
    pub(crate) name: String,
    keys: Keys,
    /// The hash slot. Only a cluster needs the slot.
    pub(crate) slot: u16,
    pub(crate) channel: Arc<Channel>,
    pub(crate) settings: Settings,
    /// The first part of every ID of weight 1.
    id_start: String,
    pub(crate) context: Arc<Context>,
    pub(crate) closing: Closing,
    pub(crate) meter: Meter,
    /// The plans of the jobs, in the order of [`Job`].
    alarms: [Lazy<Alarm>; 3],
    /// The requests and permits that the semaphores of this name must still release.
    pub(crate) releases: Arc<Releases>,
    /// Whether the server knows the configured limit.
    declared: AtomicBool,
    acquire_batcher: Lazy<Batcher<Acquire>>,
    release_batcher: Lazy<Batcher<Release>>,
    refresh_batcher: Lazy<Batcher<Refresh>>,
    acknowledge_batcher: Lazy<Batcher<Acknowledge>>,
    adopt_batcher: Lazy<Batcher<Adopt>>,
    replication: Replication,
    pub(crate) ledger: Ledger,
    /// Whether the last call had more than one request. Each caller that got a reply may soon send
    /// another request.
    rush: AtomicBool,
}

/// A value that is created at first use, because a program may have many idle semaphores.
type Lazy<T> = LazyLock<Box<T>>;

fn lazy<T: Default>() -> Lazy<T> {
    LazyLock::new(Box::default)
}

/// The parts of a request's ID that the caller chooses.
#[derive(Clone, Default)]
pub(crate) struct Wanted {
    pub(crate) weight: u32,
    /// The head start in ms.
    pub(crate) head_start: u32,
    /// `GROUP,SHARE,CAP:`, or empty without a group.
    pub(crate) group: String,
}

impl From<u32> for Wanted {
    fn from(weight: u32) -> Self {
        Self { weight, ..Self::default() }
    }
}

/// A background job of a semaphore.
#[derive(Clone, Copy)]
enum Job {
    /// Refreshes all permits.
    Refresh,
    /// Sends a heartbeat for all waiting requests.
    Beat,
    /// Calls `wake`.
    Wake,
}

impl Core {
    pub(crate) fn new(name: String, settings: Settings, context: Arc<Context>) -> Arc<Self> {
        let (prefix, client, router) = (&context.prefix, &context.client, &context.router);
        let (keys, slot) = (keys(prefix, &name), slot_of(&name));
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
            alarms: [lazy(), lazy(), lazy()],
            releases,
            declared: AtomicBool::new(false),
            acquire_batcher: lazy(),
            release_batcher: lazy(),
            refresh_batcher: lazy(),
            acknowledge_batcher: lazy(),
            adopt_batcher: lazy(),
            replication: Replication::default(),
            ledger: Ledger::default(),
            rush: AtomicBool::new(false),
        });
        let handler: Weak<Self> = Arc::downgrade(&core);
        core.context.router.register(&core.name, handler);
        if core.context.is_shut_down() {
            core.closing.shut_down();
        }
        core
    }

    /// Returns the semaphore's first key. `acquire_all` acquires permits in the order of these
    /// keys.
    pub(crate) fn key(&self) -> &str {
        &self.keys[0]
    }

    /// Creates an acquisition with a new ID.
    pub(crate) fn acquisition(&self, wanted: &Wanted) -> Arc<Acquisition> {
        let created = Instant::now();
        let number = self.context.next_number(created);
        let lease = || millis(self.settings.first_lease());
        let Wanted { weight, head_start, group } = wanted;
        let (weight, head_start) = (*weight, *head_start);
        let start = match (weight, &**group) {
            (1, "") => Cow::Borrowed(self.id_start.as_str()),
            (_, group) => {
                if !group.is_empty() {
                    self.releases.note_groups();
                }
                Cow::Owned(id::start(self.context.router.ours(), weight, lease()) + group)
            }
        };
        let id = match head_start {
            0 => id::new(&start, number),
            _ => id::new(&id::start_with_head_start(&start, head_start), number),
        };
        Arc::new(Acquisition::new(number, id, weight, created))
    }

    /// Returns for how long releases are retried: after this time, the leases have expired.
    pub(crate) fn until_leases_end(&self) -> Duration {
        self.settings.lease.max(self.context.settings.call_timeout())
    }

    pub(crate) fn is_declared(&self) -> bool {
        self.declared.load(Ordering::Relaxed)
    }

    /// Notes that the server knows the configured limit. `before` is the previous declared limit.
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
                "the limit was declared differently before; the most recent declaration applies"
            );
        }
    }

    pub(crate) fn close(self: &Arc<Self>) {
        self.closing.close();
        self.end_waits();
    }

    fn end_waits(self: &Arc<Self>) {
        let ended = self.ledger.end_waits();
        self.give_up(ended.iter(), Ending::RETURN);
    }

    /// Enters acquisitions into the ledger after their permits were granted. The leases of these
    /// permits began at `since`. From now on, the permits are refreshed, unless automatic refresh
    /// is off.
    pub(crate) fn hold<'a>(
        self: &Arc<Self>,
        granted: impl ExactSizeIterator<Item = &'a Arc<Acquisition>>,
        since: Instant,
    ) {
        if granted.len() == 0 {
            return;
        }
        self.ledger.enter(granted);
        if self.settings.auto_refresh {
            // One run of the job refreshes all permits. Late grants must not make the job run much
            // more often, so the job is planned at least half an interval ahead.
            let (now, interval) = (Instant::now(), self.settings.refresh_interval());
            self.plan(Job::Refresh, (since + interval).max(now + interval / 2));
        }
    }

    /// Marks the permit as lost. Only the first call for a permit logs the loss.
    pub(crate) fn lose(&self, permit: &Acquisition) {
        let Some(lease) = permit.lease().filter(|lease| lease.lose()) else {
            return;
        };
        tracing::warn!(semaphore = self.name, id = permit.id, token = lease.token, "permit lost");
    }

    /// Replaces the plan for the next `wake`. The server chooses the processes that call `wake`.
    /// `None` means that the server did not choose this process. A call that is already due stays
    /// planned, because a script that stopped at its bound needs this call.
    pub(crate) fn plan_wake(self: &Arc<Self>, wake_in: Option<Duration>) {
        let now = Instant::now();
        let at = wake_in.and_then(|wake_in| now.checked_add(wake_in));
        self.change_plan(Job::Wake, |planned| planned.filter(|planned| *planned <= now).or(at));
    }
}

impl Handler for Core {
    fn handed_off(self: Arc<Self>, hand_off: &HandOff<'_>) -> bool {
        let HandOff { id, token, ends } = *hand_off;
        let Some(number) = id::number_of(id) else {
            return false;
        };
        let Some(acquisition) = self.ledger.find(number).filter(|found| found.id == id) else {
            return false;
        };
        match token {
            // The request left the queue without a permit. A heartbeat finds out why.
            0 if acquisition.is_waiting() => self.plan(Job::Beat, Instant::now()),
            0 => {}
            _ => acquisition.granted_by_message(token, ends, self.settings.first_lease()),
        }
        true
    }

    fn unwanted(self: Arc<Self>, ids: Vec<String>) {
        self.give_back_unwanted(ids);
    }

    fn may_have_missed(self: Arc<Self>) {
        if self.ledger.has_waits() {
            self.plan(Job::Beat, Instant::now());
        }
    }

    fn ended(self: Arc<Self>) {
        self.closing.shut_down();
        self.end_waits();
        self.releases.changed();
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.context.router.unregister(&self.name);
        self.context.releases.clear(&self.name, &self.releases);
    }
}
