//! The wake-up side: subscriptions for a whole process, kept alive across cuts.
//!
//! A message only saves time. What counts is in the keys, so after each new subscription the worker
//! asks again for all that waits.

mod channel;
mod sharded;
mod single;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::mpsc::WeakUnboundedSender;

pub(crate) use channel::{Channel, Channels, sharded_name};
pub(crate) use sharded::try_sharded;
pub(crate) use single::{Subscription, subscribe, subscribe_first};

use crate::client::Shared;
use crate::message::{self, HandOff};
use crate::servers::{Cluster, Link};
use crate::word;
use crate::worker::{AskWhen, Task};

/// Where this process hears of hand-offs.
#[derive(Debug)]
pub(crate) enum Wakeups {
    /// On one channel, for all semaphores.
    Process(Arc<Channel>),
    /// On a sharded channel for each semaphore, at the node that has its slot.
    Sharded(Channels),
}

impl Wakeups {
    pub(crate) const PUBLISH: char = 'P';
    pub(crate) const SHARDED_PUBLISH: char = 'S';

    /// How the scripts are to send them, as words say it.
    pub(crate) fn how(&self) -> char {
        match self {
            Self::Process(_) => Self::PUBLISH,
            Self::Sharded(_) => Self::SHARDED_PUBLISH,
        }
    }

    pub(crate) fn channel_for(
        &self,
        prefix: &str,
        name: &str,
        client: &str,
        slot: u16,
    ) -> Arc<Channel> {
        match self {
            Self::Process(channel) => channel.clone(),
            Self::Sharded(channels) => channels.open(sharded_name(prefix, name, client), slot),
        }
    }
}

/// What there is to listen to.
pub(crate) enum Listener {
    Single(Arc<Link>, Subscription),
    Sharded(Arc<Cluster>),
}

/// Hands messages to the claims that they are for, until the worker ends.
pub(crate) async fn listen(
    shared: Arc<Shared>,
    listener: Listener,
    tasks: WeakUnboundedSender<Task>,
) {
    match (listener, &shared.wakeups) {
        (Listener::Single(link, subscription), Wakeups::Process(channel)) => {
            single::listen(&shared, &link, channel, subscription, &tasks).await;
        }
        (Listener::Sharded(cluster), Wakeups::Sharded(channels)) => {
            sharded::listen(&shared, &cluster, channels, &tasks).await;
        }
        _ => unreachable!("both are made together"),
    }
}

/// Has the worker ask again for all that waits. Answers whether there still is one.
fn ask_now(tasks: &WeakUnboundedSender<Task>) -> bool {
    tasks.upgrade().is_some_and(|tasks| tasks.send(Task::Ask(AskWhen::Now)).is_ok())
}

/// Tells the claims that a message is about. What no script can have sent is somebody else's: it is
/// left alone, and told of once for each power of two, for there may be a flood of it.
fn deliver(shared: &Shared, channel: &str, payload: &[u8], tasks: &WeakUnboundedSender<Task>) {
    let (name, hand_offs) = match message::read(payload) {
        Ok(read) => read,
        Err(reason) => {
            let count = shared.strange_messages.fetch_add(1, Ordering::Relaxed) + 1;
            if count.is_power_of_two() {
                tracing::warn!(channel, count, reason, "not a wake-up message: who may publish?");
            }
            return;
        }
    };
    let (mut ask, mut not_waited_for) = (false, Vec::new());
    for HandOff { word, token, ends } in hand_offs {
        match shared.wait_of(word) {
            None if token == 0 => {}
            None => not_waited_for.push(word),
            Some(claim) if claim.gate.name != name => {}
            Some(_) if token == 0 => ask = true,
            Some(claim) => claim.granted_by_message(token, ends),
        }
    }
    if ask {
        // A worker that has ended has ended all waits.
        ask_now(tasks);
    }
    if !not_waited_for.is_empty() {
        give_back_unwanted(shared, name, &not_waited_for, tasks);
    }
}

/// Nobody waits for these. What holds a permit was granted by a reply, or by the same message,
/// before; the others are to be given back.
fn give_back_unwanted(
    shared: &Shared,
    name: &str,
    words: &[&str],
    tasks: &WeakUnboundedSender<Task>,
) {
    let gates = shared.gates_of(name);
    // Where there is none the server hears of us no more, and takes what is left for dead.
    let Some(gate) = gates.first() else {
        return;
    };
    let is_unwanted = |word: &&str| {
        word::number_of_ours(word, &shared.words)
            .is_some_and(|number| !gates.iter().any(|gate| gate.holds(number)))
    };
    let unwanted = words.iter().copied().filter(is_unwanted).map(str::to_owned);
    if gate.unwanted.add(unwanted)
        && let Some(tasks) = tasks.upgrade()
    {
        // A worker that has ended has given back what it could.
        let _ = tasks.send(Task::ReleaseUnwanted(gate.clone()));
    }
}
