//! Channels: the addresses at which wake-ups arrive.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use tokio::sync::{Notify, watch};

/// One channel. Nobody need listen to it any more when the last handle is gone.
pub(crate) struct Channel {
    pub(crate) name: String,
    pub(crate) slot: u16,
    /// How many connections listen to it: two for a moment when its slot moves.
    listeners: AtomicUsize,
    /// Somebody listens now.
    heard: Notify,
    /// Somebody has listened, so messages may have been lost since.
    was_heard: AtomicBool,
    /// Somebody waits, or has waited. Who only tries needs no channel.
    is_wanted: AtomicBool,
    /// Told of a change of that, and when this is dropped.
    changes: watch::Sender<()>,
}

impl Channel {
    /// The one of a process, which is subscribed to before there are semaphores. In an outage
    /// requests are queued all the same, and asked for again after it.
    pub(crate) fn of_process(prefix: &str, client: &str) -> Self {
        let channel = Self::new(process_name(prefix, client), 0, watch::Sender::new(()));
        channel.listeners.store(1, Ordering::SeqCst);
        channel.is_wanted.store(true, Ordering::SeqCst);
        channel
    }

    fn new(name: String, slot: u16, changes: watch::Sender<()>) -> Self {
        Self {
            name,
            slot,
            listeners: AtomicUsize::new(0),
            heard: Notify::new(),
            was_heard: AtomicBool::new(false),
            is_wanted: AtomicBool::new(false),
            changes,
        }
    }

    /// From now on somebody listens.
    pub(super) fn hear(self: &Arc<Self>) -> Heard {
        self.listeners.fetch_add(1, Ordering::SeqCst);
        self.was_heard.store(true, Ordering::SeqCst);
        self.heard.notify_waiters();
        Heard(Arc::downgrade(self))
    }

    pub(super) fn was_heard(&self) -> bool {
        self.was_heard.load(Ordering::SeqCst)
    }

    pub(crate) fn is_heard(&self) -> bool {
        self.listeners.load(Ordering::SeqCst) > 0
    }

    /// Has somebody listen.
    pub(crate) fn want(&self) {
        if !self.is_wanted.swap(true, Ordering::AcqRel) {
            self.changes.send_replace(());
        }
    }

    /// Waits until somebody listens. A request that is queued before that would be taken for one of
    /// a client that has gone.
    pub(crate) async fn heard(&self) {
        self.want();
        loop {
            // From here on nothing goes unnoticed.
            let heard = self.heard.notified();
            if self.is_heard() {
                return;
            }
            heard.await;
        }
    }
}

/// As long as this is there somebody listens.
pub(super) struct Heard(Weak<Channel>);

impl Heard {
    /// Whether it is this one, and not one of the same name before.
    pub(super) fn is_of(&self, channel: &Arc<Channel>) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(channel))
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        if let Some(channel) = self.0.upgrade() {
            channel.listeners.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.changes.send_replace(());
    }
}

/// The sharded channels of a process, by name: semaphores of one name share one.
#[derive(Default)]
pub(crate) struct Channels {
    open: Mutex<HashMap<String, Weak<Channel>>>,
    changes: watch::Sender<()>,
}

impl Channels {
    pub(super) fn open(&self, name: String, slot: u16) -> Arc<Channel> {
        let mut open = self.list();
        if let Some(channel) = open.get(&name).and_then(Weak::upgrade) {
            return channel;
        }
        let channel = Arc::new(Channel::new(name.clone(), slot, self.changes.clone()));
        open.insert(name, Arc::downgrade(&channel));
        channel
    }

    fn list(&self) -> MutexGuard<'_, HashMap<String, Weak<Channel>>> {
        self.open.lock().expect("nothing panics while it is locked")
    }

    /// Those that are wanted.
    pub(super) fn all(&self) -> Vec<Arc<Channel>> {
        let mut open = self.list();
        open.retain(|_, channel| channel.strong_count() > 0);
        let wanted = |channel: &Arc<Channel>| channel.is_wanted.load(Ordering::Acquire);
        open.values().filter_map(Weak::upgrade).filter(wanted).collect()
    }

    /// Changes when a channel is wanted for the first time, or dropped.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }
}

/// The semaphore of a sharded channel.
pub(super) fn semaphore_of(channel: &str) -> Option<&str> {
    let (_, rest) = channel.split_once('{')?;
    Some(rest.split_once('}')?.0)
}

pub(crate) fn process_name(prefix: &str, client: &str) -> String {
    format!("{prefix}:wake:{client}")
}

/// With the hash tag of the semaphore's keys: a script may only publish to channels of its slot.
pub(crate) fn sharded_name(prefix: &str, name: &str, client: &str) -> String {
    format!("{prefix}:{{{name}}}:wake:{client}")
}
