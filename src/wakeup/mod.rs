//! Grant messages: a subscription and a router to the semaphores. A process has one subscription
//! or, in a cluster, one subscription for each semaphore. Subscriptions are restored after a lost
//! connection.
//!
//! A message only saves time: the keys contain the state, so the reply to a repeated request also
//! contains the grant. All waiting requests are repeated when a lost subscription is restored,
//! because messages may have been lost. While the server knows that the subscription is lost, its
//! scripts grant a queued request of this process only in reply to a heartbeat.

mod channel;
mod parted;
mod router;
mod sharded;
mod single;

use std::sync::Arc;

pub(crate) use channel::{Channel, Channels, process_name, sharded_name};
pub(crate) use router::{Handler, Router};
pub(crate) use sharded::try_sharded;
pub(crate) use single::{Subscription, subscribe, subscribe_first};

#[cfg(feature = "local")]
use crate::server::Messages;
use crate::server::{Cluster, Link};

/// The channels on which this process gets grant messages.
pub(crate) enum Wakeups {
    /// One channel for all semaphores.
    Process(Arc<Channel>),
    /// A sharded channel for each semaphore, at the node that has its slot.
    Sharded(Arc<Channels>),
}

impl Wakeups {
    pub(crate) const PUBLISH: char = 'P';
    pub(crate) const SHARDED_PUBLISH: char = 'S';

    /// The notify mode in the IDs.
    fn how(&self) -> char {
        match self {
            Self::Process(_) => Self::PUBLISH,
            Self::Sharded(_) => Self::SHARDED_PUBLISH,
        }
    }
}

/// The sources of grant messages.
pub(crate) enum Listener {
    Single(Arc<Link>, Arc<Channel>, Subscription),
    Sharded(Arc<Cluster>, Arc<Channels>),
    /// A server in memory loses no messages and is always available.
    #[cfg(feature = "local")]
    Local(Arc<Channel>, Messages),
}

/// Receives grant messages until the future is dropped.
pub(crate) async fn listen(router: Arc<Router>, listener: Listener) {
    match listener {
        Listener::Single(link, channel, subscription) => {
            single::listen(&router, &link, &channel, subscription).await;
        }
        Listener::Sharded(cluster, channels) => {
            sharded::listen(&router, &cluster, &channels).await;
        }
        #[cfg(feature = "local")]
        Listener::Local(channel, mut messages) => {
            while let Some(message) = messages.recv().await {
                router.receive(&channel.name, message.as_bytes());
            }
        }
    }
}
