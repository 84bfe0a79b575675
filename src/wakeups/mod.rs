//! The wake-up side: subscriptions for a whole process, kept alive across cuts.
//!
//! A message only saves time. What counts is in the keys, so after each new subscription the worker
//! asks again for all that waits.

mod channel;
mod sharded;
mod single;

use std::sync::Arc;

use tokio::sync::mpsc::WeakUnboundedSender;

pub(crate) use channel::{Channel, Channels, sharded_name};
pub(crate) use sharded::try_sharded;
pub(crate) use single::{Subscription, subscribe};

use crate::client::Shared;
use crate::servers::{Cluster, Link};
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
    pub(crate) const PUBLISH: &str = "publish";
    pub(crate) const SHARDED_PUBLISH: &str = "spublish";

    /// How the scripts are to send them.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Process(_) => Self::PUBLISH,
            Self::Sharded(_) => Self::SHARDED_PUBLISH,
        }
    }

    pub(crate) fn channel_for(&self, prefix: &str, name: &str, slot: u16) -> Arc<Channel> {
        match self {
            Self::Process(channel) => channel.clone(),
            Self::Sharded(channels) => channels.open(prefix, name, slot),
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

/// A message names the semaphore in its first line; each further line is a grant: id, fencing
/// token, end of lease. Token 0 says that the request left the queue without a permit: asking
/// again tells why.
fn deliver(shared: &Shared, message: &[u8], tasks: &WeakUnboundedSender<Task>) {
    let Ok(text) = std::str::from_utf8(message) else {
        tracing::warn!("a wake-up message is not UTF-8");
        return;
    };
    let mut ask = false;
    for line in text.lines().skip(1) {
        let mut words = line.split(' ');
        let id = words.next().unwrap_or_default();
        let mut number = || words.next().and_then(|word| word.parse::<i64>().ok());
        let (Some(token), Some(ends)) = (number(), number()) else {
            tracing::warn!(line, "a wake-up message cannot be read");
            continue;
        };
        match shared.wait_of(id) {
            // Granted by a reply meanwhile, or given up: the worker gives that back.
            None => {}
            Some(_) if token == 0 => ask = true,
            Some(claim) => claim.granted_by_message(token as u64, ends),
        }
    }
    if ask {
        // A worker that has ended has ended all waits.
        ask_now(tasks);
    }
}
