//! A cluster: a link for each node, and the map of slots to nodes.
//!
//! All keys of a semaphore are in one slot, so a call is routed to one node. redis-rs also has a
//! connection for clusters. However, that connection delays the calls to all nodes while redis-rs
//! looks for a missing node. It also keeps sending calls to a silent node. Here each node has a
//! separate link, so a failed node affects only its own calls.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::{Duration, Instant};

use redis::{Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, FromRedisValue, RedisError};
use redis::{ProtocolVersion, ServerErrorKind, Value};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::call_error::CallError;
use super::dialer::Dialer;
use super::link::Link;
use super::outage::Outages;
use super::slots::{Address, SlotMap};
use super::source::{Source, first_ok};
use crate::error::{Error, NO_NODE, NO_SLOTS, is_transient};
use crate::lock::Lock;
use crate::metrics::COMMANDS;
use crate::releases::GivenUpBefore;
use crate::scripts::CallBy;

/// The maximum number of attempts of one call. A call for a moving slot needs up to three attempts:
/// two of them are redirected. A call needs more attempts only if the nodes disagree.
const MAX_ATTEMPTS: u32 = 5;
/// The number of nodes that are queried for the map at the same time. The first valid map is used.
const ASKED_AT_ONCE: usize = 3;
const REFRESH_PAUSE: Duration = Duration::from_millis(100);
/// The text after the address of a node that is not configured, in errors and in the log.
const ANNOUNCED: &str = " (an address that the cluster announces)";

pub(crate) struct Cluster {
    /// The first configured node. All other nodes use its user, password and TLS settings.
    first: ConnectionInfo,
    seeds: Vec<Address>,
    call_by: CallBy,
    dialer: Dialer,
    /// The I/O runtime. A caller in another runtime may request that the map is read again.
    runtime: Handle,
    slots: Lock<SlotMap>,
    links: Lock<HashMap<Address, Arc<Link>>>,
    /// Notifies its receivers when the map changes.
    changes: watch::Sender<()>,
    is_refreshing: AtomicBool,
    /// The outage of the slots that no node serves.
    unserved: Outages,
    /// The last slot without a node that a call needed.
    unserved_slot: AtomicU16,
}

impl Cluster {
    /// Fails if no node is given, or if the address or settings of a node are invalid.
    pub(crate) fn new(
        nodes: Vec<ConnectionInfo>,
        call_by: CallBy,
        dialer: Dialer,
        runtime: Handle,
    ) -> Result<Self, Error> {
        let no_node = || Error::invalid("nodes", "at least one node of the cluster is needed");
        let seeds = nodes.iter().map(address_of).collect::<Result<Vec<_>, _>>()?;
        let first = nodes.into_iter().next().ok_or_else(no_node)?;
        // Invalid settings are found here, before the first connection.
        Client::open(first.clone())?;
        Ok(Self {
            first,
            seeds,
            call_by,
            dialer,
            runtime,
            slots: Lock::default(),
            links: Lock::default(),
            changes: watch::Sender::new(()),
            is_refreshing: AtomicBool::new(false),
            unserved: Outages::new(COMMANDS),
            unserved_slot: AtomicU16::new(0),
        })
    }

    pub(super) fn response_timeout(&self) -> Duration {
        self.dialer.response_timeout()
    }

    pub(super) async fn attempt<T: FromRedisValue>(
        self: &Arc<Self>,
        slot: u16,
        earlier: &GivenUpBefore<'_>,
        script: &str,
        write: impl Fn(&mut Cmd),
        limit: Duration,
    ) -> Result<T, CallError> {
        let started = Instant::now();
        let limit = limit.min(self.dialer.response_timeout());
        let mut node = self.node_or_none(slot)?;
        let (mut is_asking, mut left) = (false, limit);
        for _ in 0..MAX_ATTEMPTS {
            let link = self.link(&node);
            let failure = match link.attempt(is_asking, earlier, script, &write, left).await {
                Ok(reply) => return Ok(reply),
                Err(failure) => failure,
            };
            let Some(to) = self.redirected(&failure.error, slot, &node) else {
                // The node may be gone, or may have lost its slots.
                if failure.is_transient() {
                    self.refresh_soon();
                }
                return Err(failure);
            };
            is_asking = failure.error.kind() == ErrorKind::Server(ServerErrorKind::Ask);
            node = to;
            left = limit.saturating_sub(started.elapsed());
        }
        let reason = "the cluster nodes disagree about the slot's node";
        Err(CallError::unsent((ErrorKind::Io, reason).into()))
    }

    fn node_or_none(self: &Arc<Self>, slot: u16) -> Result<Address, CallError> {
        self.node_of(slot).ok_or_else(|| {
            self.refresh_soon();
            let code = "CLUSTERDOWN".to_owned();
            let error = redis::make_extension_error(code, Some(NO_NODE.to_owned()));
            let failure = CallError::unsent(error);
            self.unserved_slot.store(slot, Ordering::Relaxed);
            self.unserved.failed(Instant::now(), None, self.to_string(), &failure.error);
            failure
        })
    }

    /// The outage of the slots that no node serves.
    pub(super) fn unserved(&self) -> &Outages {
        &self.unserved
    }

    pub(super) fn link_of(self: &Arc<Self>, slot: u16) -> Result<Arc<Link>, CallError> {
        Ok(self.link(&self.node_or_none(slot)?))
    }

    pub(super) fn note_failure(self: &Arc<Self>, slot: u16, error: &RedisError) {
        if let Some(node) = self.node_of(slot) {
            self.redirected(error, slot, &node);
        }
        self.refresh_soon();
    }

    /// Returns the node to which an error redirects.
    fn redirected(
        self: &Arc<Self>,
        error: &RedisError,
        slot: u16,
        asked: &Address,
    ) -> Option<Address> {
        let (to, _) = error.redirect_node()?;
        let to = Address::parse(to, asked)?;
        if error.kind() == ErrorKind::Server(ServerErrorKind::Moved) {
            self.moved(slot, to.clone());
        }
        Some(to)
    }

    /// Records the new node of a slot. Then reads the whole map again, because other slots may have
    /// moved, too.
    fn moved(self: &Arc<Self>, slot: u16, node: Address) {
        tracing::debug!(slot, %node, "a slot has moved");
        self.slots.lock().moved(slot, node);
        self.changes.send_replace(());
        self.refresh_soon();
    }

    /// Records the redirect that the error of a subscription contains, if any. Returns whether the
    /// error redirects to another node.
    pub(crate) fn note_redirect(
        self: &Arc<Self>,
        error: &RedisError,
        slot: u16,
        asked: &Address,
    ) -> bool {
        self.redirected(error, slot, asked).is_some_and(|to| to != *asked)
    }

    pub(super) fn leave_connections(&self) {
        self.links.lock().values().for_each(|link| link.leave_connection());
    }

    pub(crate) fn node_of(&self, slot: u16) -> Option<Address> {
        self.slots.lock().node(slot).cloned()
    }

    pub(crate) fn unserved_slots(&self) -> usize {
        self.slots.lock().unserved()
    }

    pub(crate) fn nodes(&self) -> Vec<Address> {
        self.slots.lock().primaries_and_replicas().0
    }

    /// Returns a receiver that is notified when the map of the slots changes.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    pub(crate) fn link(&self, node: &Address) -> Arc<Link> {
        let new = || {
            let source = Source::Client(Box::new(self.client(node)));
            let link = Link::new(source, self.call_by, self.dialer.clone());
            Arc::new(link.with_origin(self.origin(node)))
        };
        self.links.lock().entry(node.clone()).or_insert_with(new).clone()
    }

    /// The address of a node, and its origin if the node is not configured.
    pub(crate) fn describe(&self, node: &Address) -> String {
        format!("{node}{}", self.origin(node))
    }

    fn origin(&self, node: &Address) -> &'static str {
        if self.seeds.contains(node) { "" } else { ANNOUNCED }
    }

    pub(crate) fn client(&self, node: &Address) -> Client {
        let settings = self.first.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let info = self.first.clone().set_addr(node.as_reached_by(self.first.addr()));
        let info = info.set_redis_settings(settings);
        Client::open(info).expect("a client with the same settings was opened")
    }

    /// Reads the map again in a task, unless another task is already reading the map.
    pub(crate) fn refresh_soon(self: &Arc<Self>) {
        if self.is_refreshing.swap(true, Ordering::AcqRel) {
            return;
        }
        let refreshing = Refreshing(self.clone());
        self.runtime.spawn(async move {
            if let Err((_, error)) = refreshing.0.refresh().await {
                tracing::debug!(%error, "no node returns the slots of the cluster");
            }
            // While a node is down, every call for its slots requests that the map is read again.
            // The pause limits how often this happens.
            tokio::time::sleep(REFRESH_PAUSE).await;
        });
    }

    /// Reads the map from the first node that returns a valid map. If no node does, returns the
    /// most useful error of the configured nodes, with its node: the first permanent error if one
    /// exists, otherwise the last error.
    pub(crate) async fn refresh(&self) -> Result<(), (Address, RedisError)> {
        let (mut primaries, mut replicas) = self.slots.lock().primaries_and_replicas();
        // The order is random, because one node may be cut off from the others.
        fastrand::shuffle(&mut primaries);
        fastrand::shuffle(&mut replicas);
        primaries.append(&mut replicas);
        // A configured node may have left the cluster. So the configured nodes are queried last,
        // and their map must contain a node of the last map.
        if self.refresh_from(primaries).await.is_ok() {
            return Ok(());
        }
        self.refresh_from(self.seeds.clone()).await.map_err(|errors| {
            let worse = |error: (Address, _), next| match is_transient(&error.1) {
                true => next,
                false => error,
            };
            errors.into_iter().reduce(worse).expect("at least one node is configured")
        })
    }

    async fn refresh_from(&self, nodes: Vec<Address>) -> Result<(), Vec<(Address, RedisError)>> {
        let attempts = nodes
            .into_iter()
            .map(async |node| self.read_map_of(&node).await.map_err(|error| (node, error)));
        first_ok(ASKED_AT_ONCE, attempts.collect()).await
    }

    async fn read_map_of(&self, node: &Address) -> Result<(), RedisError> {
        let reply: Value = self.link(node).query(redis::cmd("CLUSTER").arg("SLOTS")).await?;
        if reply == Value::Array(Vec::new()) {
            return Err((ErrorKind::Io, NO_SLOTS).into());
        }
        let slots = SlotMap::read(&reply, node).ok_or_else(|| {
            let detail = format!("{node} returned {reply:?}");
            (ErrorKind::UnexpectedReturnType, "the slots of the cluster cannot be read", detail)
        })?;
        if !slots.is_of_the_cluster_of(&self.slots.lock()) {
            let reason = "the node has left the cluster and belongs to another cluster";
            return Err((ErrorKind::Io, reason).into());
        }
        self.replace(slots);
        Ok(())
    }

    fn replace(&self, slots: SlotMap) {
        let known = |node: &Address| slots.knows(node) || self.seeds.contains(node);
        let (primaries, _) = slots.primaries_and_replicas();
        self.links.lock().retain(|node, _| known(node));
        // No script is called over the link of a replica.
        for (node, link) in self.links.lock().iter() {
            if !primaries.contains(node) {
                link.retire();
            }
        }
        if let Some(node) = slots.node(self.unserved_slot.load(Ordering::Relaxed)) {
            self.unserved.succeeded(None, || self.describe(node));
        }
        *self.slots.lock() = slots;
        self.changes.send_replace(());
    }

    pub(crate) fn dialer(&self) -> &Dialer {
        &self.dialer
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seeds: Vec<_> = self.seeds.iter().map(Address::to_string).collect();
        f.write_str(&seeds.join(", "))
    }
}

fn address_of(node: &ConnectionInfo) -> Result<Address, Error> {
    match node.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Ok(Address { host: host.clone(), port: *port })
        }
        other => Err(Error::invalid(
            "nodes",
            format!("{other} is not a host and port: a cluster has no sockets"),
        )),
    }
}

/// The task that reads the map owns this value, and counts as running until the value is dropped.
struct Refreshing(Arc<Cluster>);

impl Drop for Refreshing {
    fn drop(&mut self) {
        self.0.is_refreshing.store(false, Ordering::Release);
    }
}
