//! Messages of hand-offs: one subscription for a whole process (in a cluster one for each
//! semaphore), kept alive across cuts, and a router to the semaphores that they are about.
//!
//! A message only saves time. What counts is in the keys, so after each new subscription all that
//! waits is asked for again. When the server knows that the subscription is cut, the scripts see
//! nobody listen, and hand nothing over to this process.

mod channel;
#[cfg(feature = "local")]
mod local;
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

/// Where this process hears of hand-offs.
pub(crate) enum Wakeups {
    /// On one channel, for all semaphores.
    Process(Arc<Channel>),
    /// On a sharded channel for each semaphore, at the node that has its slot.
    Sharded(Channels),
}

impl Wakeups {
    pub(crate) const PUBLISH: char = 'P';
    pub(crate) const SHARDED_PUBLISH: char = 'S';

    /// How the scripts are to send them, as IDs say it.
    fn how(&self) -> char {
        match self {
            Self::Process(_) => Self::PUBLISH,
            Self::Sharded(_) => Self::SHARDED_PUBLISH,
        }
    }
}

/// What there is to listen to.
pub(crate) enum Listener {
    Single(Arc<Link>, Subscription),
    Sharded(Arc<Cluster>),
    #[cfg(feature = "local")]
    Local(Messages),
}

/// Listens without end.
pub(crate) async fn listen(router: Arc<Router>, listener: Listener) {
    match (listener, &router.wakeups) {
        (Listener::Single(link, subscription), Wakeups::Process(channel)) => {
            single::listen(&router, &link, channel, subscription).await;
        }
        (Listener::Sharded(cluster), Wakeups::Sharded(channels)) => {
            sharded::listen(&router, &cluster, channels).await;
        }
        #[cfg(feature = "local")]
        (Listener::Local(messages), Wakeups::Process(channel)) => {
            local::listen(&router, channel, messages).await;
        }
        _ => unreachable!("both are made together"),
    }
}
