//! Channels: the addresses at which grant messages arrive.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use tokio::sync::watch;

use crate::lock::Lock;

/// One channel. Its subscription is needed until the last handle of the channel is dropped.
pub(crate) struct Channel {
    pub(crate) name: String,
    pub(crate) slot: u16,
    /// The number of subscribed connections. While the slot moves, two connections may be
    /// subscribed.
    listeners: watch::Sender<usize>,
    /// Whether an acquire that may wait was ever started. `try_acquire` needs no channel.
    is_wanted: AtomicBool,
    /// Notified when `is_wanted` changes, and when the channel is dropped.
    changes: watch::Sender<()>,
}

impl Channel {
    /// Creates the channel of a process. The channel always counts as subscribed: the process
    /// subscribes before any semaphore is built, and repeats its waiting requests when a lost
    /// subscription is restored.
    pub(crate) fn of_process(prefix: &str, client: &str) -> Self {
        let channel = Self::new(process_name(prefix, client), 0, watch::Sender::new(()));
        channel.listeners.send_replace(1);
        channel.is_wanted.store(true, Ordering::SeqCst);
        channel
    }

    fn new(name: String, slot: u16, changes: watch::Sender<()>) -> Self {
        Self {
            name,
            slot,
            listeners: watch::Sender::new(0),
            is_wanted: AtomicBool::new(false),
            changes,
        }
    }

    /// Records a subscription.
    pub(super) fn note_subscription(self: &Arc<Self>) -> Subscribed {
        self.listeners.send_modify(|listeners| *listeners += 1);
        Subscribed(Arc::downgrade(self))
    }

    pub(crate) fn is_subscribed(&self) -> bool {
        *self.listeners.borrow() > 0
    }

    /// Requests a subscription.
    pub(crate) fn want(&self) {
        if !self.is_wanted.swap(true, Ordering::AcqRel) {
            self.changes.send_replace(());
        }
    }

    /// Waits for a subscription. Until then, the server counts this client as dead.
    pub(crate) async fn subscribed(&self) {
        self.want();
        // The sender exists until the channel is dropped, so the wait cannot fail.
        let _ = self.listeners.subscribe().wait_for(|listeners| *listeners > 0).await;
    }
}

/// A subscription, until it is dropped.
pub(super) struct Subscribed(Weak<Channel>);

impl Subscribed {
    /// Whether the subscription belongs to this channel, not to an earlier channel with the same
    /// name.
    pub(super) fn is_of(&self, channel: &Arc<Channel>) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(channel))
    }
}

impl Drop for Subscribed {
    fn drop(&mut self) {
        if let Some(channel) = self.0.upgrade() {
            channel.listeners.send_modify(|listeners| *listeners -= 1);
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.changes.send_replace(());
    }
}

/// The sharded channels of a process, by name. Semaphores of one name share a channel.
#[derive(Default)]
pub(crate) struct Channels {
    open: Lock<HashMap<String, Weak<Channel>>>,
    changes: watch::Sender<()>,
}

impl Channels {
    pub(super) fn open(&self, name: String, slot: u16) -> Arc<Channel> {
        let mut open = self.open.lock();
        if let Some(channel) = open.get(&name).and_then(Weak::upgrade) {
            return channel;
        }
        let channel = Arc::new(Channel::new(name.clone(), slot, self.changes.clone()));
        open.insert(name, Arc::downgrade(&channel));
        channel
    }

    /// The channels that need a subscription.
    pub(super) fn all(&self) -> Vec<Arc<Channel>> {
        let mut open = self.open.lock();
        open.retain(|_, channel| channel.strong_count() > 0);
        let wanted = |channel: &Arc<Channel>| channel.is_wanted.load(Ordering::Acquire);
        open.values().filter_map(Weak::upgrade).filter(wanted).collect()
    }

    /// Returns a receiver that is notified when a channel first needs a subscription or is dropped.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }
}

/// Returns the name of a sharded channel's semaphore.
pub(super) fn semaphore_of(channel: &str) -> Option<&str> {
    let (_, rest) = channel.split_once('{')?;
    Some(rest.split_once('}')?.0)
}

pub(crate) fn process_name(prefix: &str, client: &str) -> String {
    format!("{prefix}:wake:{client}")
}

/// Returns the name of a sharded channel. The name contains the hash tag of the semaphore's keys,
/// because a script may publish only to channels of its slot.
pub(crate) fn sharded_name(prefix: &str, name: &str, client: &str) -> String {
    format!("{prefix}:{{{name}}}:wake:{client}")
}
