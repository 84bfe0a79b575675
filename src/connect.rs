//! Connecting fails fast and says why: what would fail half-way through a script later is looked
//! for first.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use uuid::Uuid;

use crate::keys::Keys;
use crate::servers::{Address, Cluster, Link, slot_of};
use crate::wakeups::{self, Channel, Subscription, sharded_name};
use crate::{Error, ScriptRegistry};

/// Checks a server that is no part of a cluster, and listens there.
pub(crate) async fn check_one(
    link: &Arc<Link>,
    prefix: &str,
    channel: &Channel,
) -> Result<Subscription, Error> {
    check_server(link, prefix, &probe_name(), &channel.name, "publish").await?;
    let subscription = wakeups::subscribe(link, channel).await;
    subscription.map_err(|error| explain(link.source(), error))
}

/// Finds the nodes, and checks all primaries that can be reached: they need not have the same users.
pub(crate) async fn check_cluster(cluster: &Arc<Cluster>, prefix: &str) -> Result<(), Error> {
    cluster.refresh().await.map_err(|error| explain(cluster, error))?;
    let nodes = cluster.nodes();
    let checked = join_all(nodes.iter().map(|node| check_node(cluster, node, prefix))).await;
    let mut last = None;
    let mut is_reached = false;
    for checked in checked {
        match checked {
            Ok(()) => is_reached = true,
            // The others can be used, and this one when it is back, or has been replaced.
            Err(error @ Error::Connect { .. }) => {
                tracing::warn!(%error, "a node of the cluster was not checked");
                last = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    last.filter(|_| !is_reached).map_or(Ok(()), Err)
}

async fn check_node(cluster: &Arc<Cluster>, node: &Address, prefix: &str) -> Result<(), Error> {
    const MOST_NAMES: usize = 1_000_000;
    let is_there = |name: &String| cluster.node_of(slot_of(name)).as_ref() == Some(node);
    let Some(name) = (0..MOST_NAMES).map(|_| probe_name()).find(is_there) else {
        return Ok(()); // It has lost its slots meanwhile.
    };
    let channel = sharded_name(prefix, &name);
    check_server(&cluster.link(node), prefix, &name, &channel, "spublish").await?;
    let subscribed = wakeups::try_sharded(cluster, node, &channel).await;
    subscribed.map_err(|error| explain(node, error))
}

/// No semaphore has it.
fn probe_name() -> String {
    format!("probe-{}", Uuid::new_v4().simple())
}

/// Loads the scripts, and lets the server try every command that they use.
async fn check_server(
    link: &Arc<Link>,
    prefix: &str,
    name: &str,
    channel: &str,
    wake: &str,
) -> Result<(), Error> {
    let explain = |error| explain(link.source(), error);
    let mut connection = link.connection().await.map_err(explain)?.connection;
    // Before anything large: a server that wants a password closes the connection on that.
    redis::cmd("PING").exec_async(&mut connection).await.map_err(explain)?;
    let server = hello(&mut connection).await;
    if wake == "publish" && server.get("mode").is_some_and(|mode| mode == "cluster") {
        let advice = "it is a node of a cluster, where semaphores need connect_cluster()";
        return Err(Error::Unsupported(advice.to_owned()));
    }
    // Only needed when the server has forgotten a script, which is no time to find it refused.
    let keys = Keys::new(prefix, name);
    let mut eval = redis::cmd("EVAL");
    eval.arg("return 1").arg(1).arg(&keys.0[0]);
    eval.exec_async(&mut connection).await.map_err(explain)?;
    let registry = ScriptRegistry::embedded();
    let explain = |error| match error {
        Error::Redis(error) => explain(error),
        other => other,
    };
    registry.load(&mut connection).await.map_err(explain)?;
    let failed: Vec<(String, String)> =
        registry.run(&mut connection, "probe", &keys.0, &[channel, wake]).await.map_err(explain)?;
    match failed.into_iter().next() {
        Some((command, reason)) => Err(explain_command(command, reason.trim_end(), &server, wake)),
        None => Ok(()),
    }
}

/// What the server says of itself. Every user may ask that, but what stands in front of a server
/// may not know it.
async fn hello(connection: &mut MultiplexedConnection) -> HashMap<String, String> {
    let answer: Result<HashMap<String, Value>, _> =
        redis::cmd("HELLO").query_async(connection).await;
    let texts = answer.unwrap_or_default().into_iter();
    texts.filter_map(|(key, value)| Some((key, redis::from_redis_value(value).ok()?))).collect()
}

/// Says what it means that a command fails in a script.
fn explain_command(
    command: String,
    reason: &str,
    server: &HashMap<String, String>,
    wake: &str,
) -> Error {
    let reason = reason.to_owned();
    // Servers put it in different words.
    let words = reason.to_lowercase();
    if words.contains("readonly") || words.contains("read only replica") {
        return Error::Unsupported(format!("it is a replica, not a primary ({reason})"));
    }
    if words.contains("unknown") && words.contains("command") {
        let version = server.get("version").map_or("unknown", String::as_str);
        let needed = match wake {
            "spublish" => "for a cluster Redis 7.0 or newer, or Valkey, is needed",
            _ => "Redis 6.2 or newer, or Valkey, is needed",
        };
        return Error::Unsupported(format!(
            "its version is {version}, which does not know {command} as it is needed ({reason}); {needed}"
        ));
    }
    let refusals = ["noperm", "no permissions", "the user executing the script can't"];
    if refusals.iter().any(|refusal| words.contains(refusal)) {
        return Error::Permission { command, reason };
    }
    Error::Unsupported(format!("{command} failed: {reason}"))
}

/// Says what an error on the way to a working connection means.
fn explain(server: &impl Display, error: RedisError) -> Error {
    let reason = error.to_string();
    if error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) {
        // Redis names a command in quotes, unless it is the keys that are refused: all that is sent
        // with keys are scripts.
        let command = reason.split('\'').nth(1).unwrap_or("evalsha").to_owned();
        return Error::Permission { command, reason };
    }
    if error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly) {
        return Error::Unsupported(format!("it is a replica, not a primary ({reason})"));
    }
    if reason.contains("cluster support disabled") {
        let advice = "it is no node of a cluster, so semaphores need connect()";
        return Error::Unsupported(format!("{server}: {advice}"));
    }
    Error::Connect { address: server.to_string(), reason }
}
