//! Routes calls to one server, to the node of a cluster that has the semaphore's slot, or, in
//! users' tests, to a server in memory.
//!
//! All calls to a server share one connection, except calls that wait for replicas. redis-rs
//! neither retries commands nor detects a silent peer, so this module does both. Two consecutive
//! timeouts replace the connection, and a call is retried after a transient error. Retries are safe
//! only because no script counts an ID twice.

mod asking;
mod backoff;
mod call_error;
mod cluster;
pub(crate) mod credentials;
mod dialer;
mod earlier;
mod first_error;
mod link;
#[cfg(feature = "local")]
mod local;
mod named;
mod outage;
mod replies;
mod scan;
mod shares;
mod slots;
mod source;
mod stream;
#[cfg(feature = "tls")]
pub(crate) mod tls;
mod url;

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, RedisError};
use tokio::time::Instant;

use crate::metrics::called;
use crate::releases::GivenUpBefore;
use crate::runtime::Deadline;

/// The target of log events about connections: see docs/troubleshooting.md.
pub(crate) const LOG_TARGET: &str = "redis_semaphore::connection";

pub(crate) use backoff::Backoff;
pub(crate) use call_error::{CallError, took_too_long, within};
pub(crate) use cluster::Cluster;
pub use credentials::Credentials;
pub(crate) use dialer::{Dialed, Dialer, user_timeout};
pub(crate) use link::Link;
#[cfg(feature = "local")]
pub(crate) use local::{Local, Messages};
pub use named::IntoServer;
pub(crate) use named::{check_all_alike, is_tls, server_of};
#[cfg(feature = "tower")]
pub(crate) use outage::Outage;
pub(crate) use outage::{Outages, next_number as next_outage_number};
pub(crate) use scan::QueryError;
pub(crate) use slots::{Address, slot_of};
pub(crate) use source::{Sentinels, Source};
pub(crate) use stream::Duplex;

pub(crate) enum Servers {
    One(Arc<Link>),
    Cluster(Arc<Cluster>),
    #[cfg(feature = "local")]
    Local(Arc<Local>),
}

/// The result of a call that failed, and is not retried again.
pub(crate) enum Failure {
    /// Only transient errors occurred until the deadline.
    NoResponse {
        elapsed: Duration,
        last: CallError,
    },
    Rejected(RedisError),
}

impl Servers {
    /// Makes one attempt to run a script for a semaphore in this slot. The releases of `earlier` take
    /// effect before the script. The attempt has two parts: the wait until `earlier` is
    /// ready, and the call, with connecting. Each part takes at most the response timeout, and both
    /// together take at most `limit`.
    pub(crate) async fn attempt<T: FromRedisValue>(
        &self,
        slot: u16,
        earlier: &GivenUpBefore<'_>,
        script: &str,
        write: impl Fn(&mut Cmd),
        mut limit: Duration,
    ) -> Result<T, CallError> {
        if earlier.keep_call_back() {
            let started = Instant::now();
            let patience = limit.min(self.response_timeout());
            let ready = tokio::time::timeout(patience, earlier.ready()).await;
            ready.map_err(|_| CallError::unsent_in_time())?;
            limit = limit.saturating_sub(started.elapsed());
        }
        match self {
            Self::One(link) => link.attempt(false, earlier, script, write, limit).await,
            Self::Cluster(cluster) => {
                Box::pin(cluster.attempt(slot, earlier, script, write, limit)).await
            }
            #[cfg(feature = "local")]
            Self::Local(local) => local.attempt(earlier, script, write).await,
        }
    }

    fn response_timeout(&self) -> Duration {
        match self {
            Self::One(link) => link.response_timeout(),
            Self::Cluster(cluster) => cluster.response_timeout(),
            #[cfg(feature = "local")]
            Self::Local(_) => Duration::MAX,
        }
    }

    /// The link to the server that has `slot`, or `None` for a server in memory.
    pub(crate) fn link_of(&self, slot: u16) -> Result<Option<Arc<Link>>, CallError> {
        match self {
            Self::One(link) => Ok(Some(link.clone())),
            Self::Cluster(cluster) => cluster.link_of(slot).map(Some),
            #[cfg(feature = "local")]
            Self::Local(_) => Ok(None),
        }
    }

    /// The address of the server that has `slot`.
    pub(crate) fn server(&self, slot: u16) -> String {
        match self {
            Self::One(link) => link.server(),
            Self::Cluster(cluster) => match cluster.node_of(slot) {
                Some(node) => cluster.describe(&node),
                None => cluster.to_string(),
            },
            #[cfg(feature = "local")]
            Self::Local(_) => "local".to_owned(),
        }
    }

    /// Why the last attempt at the server that has `slot` failed, or `None` if the attempt
    /// succeeded.
    pub(crate) fn last_failure(&self, slot: u16) -> Option<String> {
        self.outages(slot, Outages::last_failure)
    }

    /// The current outage of the server that has `slot`.
    #[cfg(feature = "tower")]
    pub(crate) fn outage(&self, slot: u16) -> Option<Outage> {
        self.outages(slot, Outages::current)
    }

    fn outages<T>(&self, slot: u16, read: impl Fn(&Outages) -> Option<T>) -> Option<T> {
        match self {
            Self::One(link) => read(link.outages()),
            Self::Cluster(cluster) => match cluster.node_of(slot) {
                Some(node) => read(cluster.link(&node).outages()),
                None => read(cluster.unserved()),
            },
            #[cfg(feature = "local")]
            Self::Local(_) => None,
        }
    }

    /// Whether the servers are outside of this process.
    pub(crate) fn are_away(&self) -> bool {
        match self {
            Self::One(_) | Self::Cluster(_) => true,
            #[cfg(feature = "local")]
            Self::Local(_) => false,
        }
    }

    /// Called when the runtime of the connections ends. The next call to a server connects again.
    pub(crate) fn leave_connections(&self) {
        match self {
            Self::One(link) => link.leave_connection(),
            Self::Cluster(cluster) => cluster.leave_connections(),
            #[cfg(feature = "local")]
            Self::Local(_) => {}
        }
    }

    /// Handles the failure of a call over the additional connection of a semaphore that waits for
    /// replicas. In a cluster, records a redirect, and reads the map again.
    pub(crate) fn note_failure(&self, slot: u16, error: &RedisError) {
        if let Self::Cluster(cluster) = self {
            cluster.note_failure(slot, error);
        }
    }

    /// Runs a script, and retries the script after transient errors until the deadline. Returns when
    /// the last call was sent, and its reply.
    pub(crate) async fn run<T: FromRedisValue>(
        &self,
        slot: u16,
        earlier: &GivenUpBefore<'_>,
        script: &'static str,
        write: impl Fn(&mut Cmd),
        deadline: Deadline,
    ) -> Result<(Instant, T), Failure> {
        let mut backoff = Backoff::of_calls(deadline.left_at(Instant::now()) / 2);
        let mut before = None;
        loop {
            let sent = Instant::now();
            let response =
                self.attempt(slot, earlier, script, &write, deadline.left_at(sent)).await;
            called(script, sent, response.is_ok(), None);
            let last = match response {
                Ok(reply) => return Ok((sent, reply)),
                Err(failure) if failure.is_transient() => match before.take() {
                    Some(before) if failure.was_cut_short => before,
                    _ => failure,
                },
                Err(failure) => return Err(Failure::Rejected(failure.error)),
            };
            let pause = backoff.next();
            if deadline.left_at(Instant::now()) <= pause {
                return Err(Failure::NoResponse { elapsed: deadline.elapsed(), last });
            }
            tracing::debug!(script, error = %last.error, "the call failed and is retried");
            before = Some(last);
            tokio::time::sleep(pause).await;
        }
    }
}
