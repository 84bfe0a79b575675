//! Checks servers when a client connects. A problem that would make a script fail later is found
//! here, with its reason.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::RedisError;
use tokio::join;
use tokio::time::timeout;

use crate::diagnosis::{Probe, inquire, permission};
use crate::error::{ConnectErrorKind, Error, is_unknown_command};
use crate::server::{Address, Cluster, Link};
use crate::wakeup::{self, Channel, Subscription};

/// The time that further nodes of a cluster have for a reply after one node was checked.
const STRAGGLERS: Duration = Duration::from_millis(500);

/// The access that a user must have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Access {
    Full,
    /// Every call that does not write.
    ReadOnly,
    /// Full access. The doctor reports missing permissions, so read-only access is enough to
    /// connect.
    Diagnosis,
}

/// Checks a server outside a cluster, and subscribes there.
pub(crate) async fn check_one(
    link: &Arc<Link>,
    prefix: &str,
    channel: &Channel,
    access: Access,
) -> Result<Subscription, Error> {
    let probe = Probe::single(link, prefix);
    let subscribe = wakeup::subscribe_first(link, &channel.name);
    let (allowed, subscribed) = join!(try_out(&probe, access), subscribe);
    let subscribed = subscribed.map_err(|error| probe.explain(error));
    match allowed.and(subscribed) {
        Err(error) => Err(probe.inquire(error).await),
        done => done,
    }
}

/// Finds the nodes, and checks all reachable primaries, because each may have different users.
/// After one primary was checked, a silent primary delays connecting only briefly.
pub(crate) async fn check_cluster(
    cluster: &Arc<Cluster>,
    prefix: &str,
    access: Access,
) -> Result<(), Error> {
    if let Err((node, error)) = cluster.refresh().await {
        let error = explain_map(node.to_string(), prefix, error);
        let client = cluster.client(&node);
        return Err(inquire(cluster.dialer(), |_| Some(&client), error).await);
    }
    let nodes = cluster.nodes();
    let mut checks: FuturesUnordered<_> =
        nodes.iter().map(|node| check_node(cluster, node, prefix, access)).collect();
    let mut last = None;
    let mut is_reached = false;
    loop {
        let patience = if is_reached { STRAGGLERS } else { Duration::MAX };
        let checked = match timeout(patience, checks.next()).await {
            Ok(Some(checked)) => checked,
            Ok(None) => break,
            Err(_) => {
                tracing::warn!(silent = checks.len(), "a node of the cluster was not checked");
                break;
            }
        };
        match checked {
            Ok(()) => is_reached = true,
            // The other nodes are usable now. This node will be usable when it returns or is
            // replaced.
            Err(error) if error.is_transient() => {
                tracing::warn!(%error, "a node of the cluster was not checked");
                last = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    last.filter(|_| !is_reached).map_or(Ok(()), Err)
}

async fn check_node(
    cluster: &Arc<Cluster>,
    node: &Address,
    prefix: &str,
    access: Access,
) -> Result<(), Error> {
    let Some(probe) = Probe::at_node(cluster, node, prefix) else {
        return Ok(());
    };
    let listen = async {
        match access {
            Access::Full => probe.listen().await,
            // In a cluster, clients subscribe only when a request waits.
            Access::ReadOnly | Access::Diagnosis => Ok(()),
        }
    };
    let (allowed, received) = join!(try_out(&probe, access), listen);
    match allowed.and(received) {
        Err(error) => Err(probe.inquire(error).await),
        done => done,
    }
}

async fn try_out(probe: &Probe, access: Access) -> Result<(), Error> {
    match access {
        Access::Full => {
            let refused = probe.refused_commands().await?;
            refused.into_iter().next().map_or(Ok(()), Err)
        }
        Access::ReadOnly | Access::Diagnosis => probe.try_looks().await,
    }
}

/// Explains why no node returned the slots.
fn explain_map(address: String, prefix: &str, error: RedisError) -> Error {
    let text = error.to_string();
    // A sentinel does not know the command CLUSTER.
    if text.contains("cluster support disabled") || is_unknown_command(&text) {
        let reason =
            "the server is not a cluster node: connect to it as a single server or as a sentinel, \
             or use addresses of cluster nodes"
                .to_owned();
        let (kind, source) = (ConnectErrorKind::Cluster, Some(error));
        return Error::Connect { address, kind, reason, right: None, source };
    }
    permission::explain(address, prefix, true, "cluster|slots", error)
}
