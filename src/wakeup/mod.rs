//! The wake-up side: subscriptions for a whole process, kept alive across cuts.
//!
//! A message only saves time. What counts is in the keys, so after each new subscription all that
//! waits is asked for again.

mod channel;
mod sharded;
mod single;

use std::sync::Arc;

use std::time::Duration;

pub(crate) use channel::{Channel, Channels, sharded_name};
pub(crate) use sharded::try_sharded;
pub(crate) use single::{Subscription, subscribe, subscribe_first};

use crate::server::{Cluster, Link};

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

/// Who is told.
pub(crate) trait Recipient: Send + Sync + 'static {
    fn wakeups(&self) -> &Wakeups;

    /// A connection from which nothing comes for so long is asked whether it is there.
    fn ping_interval(&self) -> Duration;

    fn response_timeout(&self) -> Duration;

    /// How often the map of a cluster is read.
    fn map_interval(&self) -> Duration;

    /// A message came.
    fn hear(&self, channel: &str, payload: &[u8]);

    /// Messages may have been lost. Answers whether there still is somebody to tell.
    fn may_have_missed(&self) -> bool;
}

/// Listens for as long as there is somebody to tell.
pub(crate) async fn listen<R: Recipient>(recipient: Arc<R>, listener: Listener) {
    match (listener, recipient.wakeups()) {
        (Listener::Single(link, subscription), Wakeups::Process(channel)) => {
            single::listen(&*recipient, &link, channel, subscription).await;
        }
        (Listener::Sharded(cluster), Wakeups::Sharded(channels)) => {
            sharded::listen(&recipient, &cluster, channels).await;
        }
        _ => unreachable!("both are made together"),
    }
}
