//! Routes grant messages to their semaphores.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::channel::semaphore_of;
use super::parted::Parted;
use super::{Channel, Wakeups, sharded_name};
use crate::lock::Lock;
use crate::protocol::id;
use crate::protocol::message::{self, HandOff};

/// A semaphore, as the router sees it.
pub(crate) trait Handler: Send + Sync {
    /// Handles a handoff. Returns whether the ID belongs to a waiting request or to a permit that
    /// is held.
    fn handed_off(self: Arc<Self>, hand_off: &HandOff<'_>) -> bool;

    /// Releases these IDs, which belong to no waiting request and to no permit in use.
    fn unwanted(self: Arc<Self>, ids: Vec<String>);

    /// Called when messages may have been lost.
    fn may_have_missed(self: Arc<Self>);

    /// Called when the client was shut down, or when the I/O runtime has ended.
    fn ended(self: Arc<Self>);
}

/// Semaphores that were built with the same name.
type SameName = Vec<Weak<dyn Handler>>;

pub(crate) struct Router {
    wakeups: Wakeups,
    /// The start of all IDs of this process: `NOTIFY:CLIENT:`.
    ours: String,
    /// The interval between pings over a connection for messages.
    pub(super) ping_interval: Duration,
    /// The interval between reads of a cluster's slot map.
    pub(super) map_interval: Duration,
    /// All semaphores, by name.
    handlers: Lock<HashMap<String, SameName>>,
    parted: Lock<Parted>,
    /// The number of messages that no script can have sent.
    foreign: AtomicU64,
}

impl Router {
    /// Creates the router of the process whose client ID is `client`, with this heartbeat timeout.
    pub(crate) fn new(wakeups: Wakeups, client: &str, heartbeat_timeout: Duration) -> Self {
        let ours = format!("{}:{client}:", wakeups.how());
        Self {
            wakeups,
            ours,
            ping_interval: heartbeat_timeout / 3,
            map_interval: heartbeat_timeout,
            handlers: Lock::default(),
            parted: Lock::default(),
            foreign: AtomicU64::new(0),
        }
    }

    /// The start of all IDs of this process.
    pub(crate) fn ours(&self) -> &str {
        &self.ours
    }

    /// The channel for the messages of a semaphore.
    pub(crate) fn channel_for(
        &self,
        prefix: &str,
        name: &str,
        client: &str,
        slot: u16,
    ) -> Arc<Channel> {
        match &self.wakeups {
            Wakeups::Process(channel) => channel.clone(),
            Wakeups::Sharded(channels) => channels.open(sharded_name(prefix, name, client), slot),
        }
    }

    pub(crate) fn register(&self, name: &str, handler: Weak<dyn Handler>) {
        self.handlers
            .lock()
            .entry(name.to_owned())
            .or_insert_with(|| Vec::with_capacity(1))
            .push(handler);
    }

    /// Removes the semaphores with this name that were dropped.
    pub(crate) fn unregister(&self, name: &str) {
        let mut handlers = self.handlers.lock();
        if let Some(same) = handlers.get_mut(name) {
            same.retain(|handler| handler.strong_count() > 0);
            if same.is_empty() {
                handlers.remove(name);
            }
        }
    }

    /// Makes sure that until the time `until`, no grant message releases the permit of acquisition
    /// `number`, even if the semaphore is dropped.
    pub(crate) fn part_with(&self, number: u128, until: Instant) {
        self.parted.lock().add(number, until);
    }

    /// Whether the ID belongs to this process, and may have a permit that is not in use.
    fn is_left_over(&self, id: &str) -> bool {
        id::number_of_ours(id, &self.ours).is_some_and(|number| !self.parted.lock().has(number))
    }

    /// Handles a message. A message that no script can have sent is ignored. Because many such
    /// messages may arrive, only those whose number is a power of two are logged.
    pub(super) fn receive(&self, channel: &str, payload: &[u8]) {
        let (name, hand_offs) = match message::read(payload) {
            Ok(read) => read,
            Err(reason) => {
                let count = self.foreign.fetch_add(1, Ordering::Relaxed) + 1;
                if count.is_power_of_two() {
                    tracing::warn!(
                        channel,
                        count,
                        reason,
                        "ignoring an invalid message on a channel of grant messages; check which \
                         users may publish there"
                    );
                }
                return;
            }
        };
        let same: Vec<_> = self
            .handlers
            .lock()
            .get(name)
            .map_or(vec![], |same| same.iter().filter_map(Weak::upgrade).collect());
        // If no semaphore has this name, granted permits are freed when their leases expire.
        let Some(first) = same.first() else {
            return;
        };
        let mut unwanted = Vec::new();
        for hand_off in hand_offs {
            let is_known = same.iter().any(|handler| handler.clone().handed_off(&hand_off));
            let is_granted = hand_off.token > 0;
            if !is_known && is_granted && self.is_left_over(hand_off.id) {
                unwanted.push(hand_off.id.to_owned());
            }
        }
        if !unwanted.is_empty() {
            first.clone().unwanted(unwanted);
        }
    }

    fn all(&self) -> Vec<Arc<dyn Handler>> {
        self.handlers.lock().values().flatten().filter_map(Weak::upgrade).collect()
    }

    /// Notifies all semaphores that messages may have been lost.
    pub(super) fn may_have_missed(&self) {
        report_loss(self.all());
    }

    /// Notifies all semaphores that the client was shut down, or that the I/O runtime has ended.
    pub(crate) fn end_all(&self) {
        self.all().into_iter().for_each(Handler::ended);
    }

    /// Notifies the semaphores of these sharded channels that messages may have been lost.
    pub(super) fn may_have_missed_at<'a>(&self, channels: impl Iterator<Item = &'a str>) {
        let handlers = self.handlers.lock();
        let of = |channel| handlers.get(semaphore_of(channel)?);
        let same = channels.filter_map(of).flatten().filter_map(Weak::upgrade);
        let same = same.collect();
        drop(handlers);
        report_loss(same);
    }
}

fn report_loss(handlers: Vec<Arc<dyn Handler>>) {
    handlers.into_iter().for_each(Handler::may_have_missed);
}
