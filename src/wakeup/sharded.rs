//! Grant messages of a cluster: sharded channels, at the nodes that have their slots.
//!
//! Each node has a separate connection for messages. The connection for commands must not also have
//! subscriptions: when a slot leaves the node, the server sends a message that redis-rs takes for
//! the reply to the last command. All later replies are then assigned to the wrong commands.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures_util::future::{join_all, ready};
use redis::{ErrorKind, PushInfo, PushKind, RedisError, Value};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::Router;
use super::channel::{Channel, Channels, Subscribed};
use crate::error::{is_refusal, is_transient};
use crate::metrics::{MESSAGES, reconnected};
use crate::server::{Address, Backoff, Cluster, Dialed, LOG_TARGET, Outages};

/// The maximum number of subscriptions in one step. Messages are handled before the next step.
const MAX_AT_ONCE: usize = 200;
/// The interval between reads of the slot map while a channel has no node.
const SEARCH_PAUSE: Duration = Duration::from_secs(1);

/// The channels to subscribe to at one node, by name.
type Wanted = BTreeMap<String, Weak<Channel>>;

/// Runs a task for each node that has a channel.
pub(super) async fn listen(router: &Arc<Router>, cluster: &Arc<Cluster>, channels: &Channels) {
    let (mut opened, mut moved) = (channels.changes(), cluster.changes());
    let mut reads = tokio::time::interval(router.map_interval);
    let mut nodes: HashMap<Address, (watch::Sender<Wanted>, AbortOnDropHandle<()>)> =
        HashMap::new();
    loop {
        let (mut wanted, all_have_nodes) = by_node(cluster, channels);
        if !all_have_nodes {
            cluster.refresh_soon();
        }
        nodes.retain(|node, _| wanted.contains_key(node));
        for (node, channels) in wanted.drain() {
            if let Some((sender, _)) = nodes.get(&node) {
                sender.send_if_modified(|now| {
                    let is_new = !names(now).eq(names(&channels));
                    *now = channels;
                    is_new
                });
                continue;
            }
            let (sender, receiver) = watch::channel(channels);
            let listener = NodeListener {
                router: router.clone(),
                cluster: cluster.clone(),
                node: node.clone(),
                wanted: receiver,
            };
            let task = AbortOnDropHandle::new(tokio::spawn(listener.run()));
            nodes.insert(node, (sender, task));
        }
        tokio::select! {
            _ = opened.changed() => {}
            _ = moved.changed() => {}
            () = sleep(SEARCH_PAUSE), if !all_have_nodes => {}
            // Nodes may change without a notification.
            _ = reads.tick() => cluster.refresh_soon(),
        }
    }
}

/// The name of each channel, and its address in memory. A new channel may have the name of a
/// dropped channel, but has a new address.
fn names(channels: &Wanted) -> impl Iterator<Item = (&str, *const Channel)> {
    channels.iter().map(|(name, channel)| (&**name, channel.as_ptr()))
}

/// The channels of each node, and whether all channels have a node.
fn by_node(cluster: &Cluster, channels: &Channels) -> (HashMap<Address, Wanted>, bool) {
    let mut wanted: HashMap<Address, Wanted> = HashMap::new();
    let mut all_have_nodes = true;
    for channel in channels.all() {
        let Some(node) = cluster.node_of(channel.slot) else {
            all_have_nodes = false;
            continue;
        };
        let name = channel.name.clone();
        wanted.entry(node).or_default().insert(name, Arc::downgrade(&channel));
    }
    (wanted, all_have_nodes)
}

/// Receives the messages of one node.
struct NodeListener {
    router: Arc<Router>,
    cluster: Arc<Cluster>,
    node: Address,
    wanted: watch::Receiver<Wanted>,
}

/// The subscriptions over one connection.
struct Subscriptions {
    dialed: Dialed,
    pushes: UnboundedReceiver<PushInfo>,
    subscribed: HashMap<String, Subscribed>,
    /// The channels to which the user may not subscribe. They are tried again with the next ping.
    refused: HashSet<String>,
}

/// The connection is not usable any more.
struct Lost;

impl NodeListener {
    async fn run(mut self) {
        let mut backoff = Backoff::of_connections(self.cluster.dialer().response_timeout());
        let (mut was_connected, outages) = (false, Outages::new(MESSAGES));
        let (cluster, node) = (self.cluster.clone(), self.node.clone());
        let server = || cluster.describe(&node);
        loop {
            let began = Instant::now();
            match connect(&self.cluster, &self.node).await {
                Ok(mut subscriptions) => {
                    if std::mem::replace(&mut was_connected, true) {
                        reconnected(MESSAGES);
                        tracing::debug!(
                            target: LOG_TARGET,
                            node = %self.node,
                            "subscribed to grant messages again"
                        );
                    }
                    outages.succeeded(None, server);
                    let Err(Lost) = self.listen(&mut subscriptions).await;
                    let lost = (ErrorKind::Io, "the subscription was lost").into();
                    outages.failed(Instant::now(), None, server(), &lost);
                    // If no channel could be subscribed to, the pauses keep growing.
                    if !subscriptions.subscribed.is_empty() {
                        backoff = Backoff::of_connections(self.cluster.dialer().response_timeout());
                    }
                    tracing::debug!(
                        target: LOG_TARGET,
                        node = %self.node,
                        "the connection for grant messages was lost"
                    );
                }
                Err(error) => {
                    outages.failed(began, None, server(), &error);
                    tracing::debug!(node = %self.node, %error, "cannot subscribe to grant \
                                                                messages");
                }
            }
            // Another node may have the slots now.
            self.cluster.refresh_soon();
            sleep(backoff.next()).await;
        }
    }

    /// Receives messages until the connection is lost.
    async fn listen(&mut self, subscriptions: &mut Subscriptions) -> Result<Infallible, Lost> {
        let (interval, dialed) = (self.router.ping_interval, subscriptions.dialed.clone());
        let mut pong = pin!(next_pong(interval, &dialed));
        let mut is_behind = true;
        loop {
            let mut asks_again = false;
            tokio::select! {
                push = subscriptions.pushes.recv() => {
                    self.handle(subscriptions, push)?;
                    continue;
                }
                _ = self.wanted.changed() => {}
                () = ready(()), if is_behind => {}
                response = &mut pong => {
                    response?;
                    pong.set(next_pong(interval, &dialed));
                    asks_again = true;
                }
            }
            is_behind = !self.subscribe(subscriptions, asks_again).await?;
        }
    }

    fn handle(&self, subscriptions: &Subscriptions, push: Option<PushInfo>) -> Result<(), Lost> {
        let Some(PushInfo { kind, data }) = push else {
            return Err(Lost);
        };
        let text = |index: usize| match data.get(index) {
            Some(Value::BulkString(bytes)) => bytes.as_slice(),
            _ => &[],
        };
        match kind {
            PushKind::SMessage => {
                let channel = String::from_utf8_lossy(text(0));
                self.router.receive(&channel, text(1));
            }
            // If this process did not unsubscribe, the slot has left the node. Later replies may be
            // assigned to the wrong commands.
            PushKind::SUnsubscribe => {
                let name = String::from_utf8_lossy(text(0));
                if subscriptions.subscribed.contains_key(&*name) {
                    return Err(Lost);
                }
            }
            PushKind::Disconnection => return Err(Lost),
            _ => {}
        }
        Ok(())
    }

    /// Unsubscribes from unneeded channels, and subscribes to up to 200 needed channels. Returns
    /// whether no needed channel remains untried.
    async fn subscribe(
        &mut self,
        subscriptions: &mut Subscriptions,
        asks_again: bool,
    ) -> Result<bool, Lost> {
        // Messages that have already arrived belong to the earlier subscriptions.
        for _ in 0..subscriptions.pushes.len() {
            let push = subscriptions.pushes.recv().await;
            self.handle(subscriptions, push)?;
        }
        let wanted = self.wanted.borrow_and_update().clone();
        unsubscribe(subscriptions, &wanted).await?;
        let Subscriptions { dialed, subscribed, refused, .. } = subscriptions;
        let new = wanted.values().filter_map(Weak::upgrade);
        let is_subscribed = |channel: &Arc<Channel>| {
            subscribed.get(&channel.name).is_some_and(|subscribed| subscribed.is_of(channel))
        };
        let may_be_asked = |channel: &Arc<Channel>| asks_again || !refused.contains(&channel.name);
        let new = new.filter(|channel| !is_subscribed(channel) && may_be_asked(channel));
        let new: Vec<_> = new.take(MAX_AT_ONCE).collect();
        let mut may_have_missed = Vec::new();
        let subscribing = new.iter().map(|channel| send(dialed, "SSUBSCRIBE", &channel.name));
        for (channel, response) in new.iter().zip(join_all(subscribing).await) {
            match response {
                Ok(()) => {
                    may_have_missed.push(&*channel.name);
                    refused.remove(&channel.name);
                    subscribed.insert(channel.name.clone(), channel.note_subscription());
                }
                // The map changes, and the task of another node gets the channel.
                Err(error) if self.cluster.note_redirect(&error, channel.slot, &self.node) => {}
                // The other channels are still subscribed.
                Err(error) if !is_transient(&error) => {
                    let channel = &channel.name;
                    if refused.insert(channel.clone()) {
                        tracing::warn!(channel, %error, "the user may not subscribe to grant \
                                                         messages: waits fail");
                    }
                }
                Err(error) => {
                    tracing::debug!(node = %self.node, %error, "subscribing failed");
                    return Err(Lost);
                }
            }
        }
        self.router.may_have_missed_at(may_have_missed.into_iter());
        Ok(new.len() < MAX_AT_ONCE)
    }
}

/// Unsubscribes from all channels that are not needed any more.
async fn unsubscribe(subscriptions: &mut Subscriptions, wanted: &Wanted) -> Result<(), Lost> {
    let Subscriptions { dialed, subscribed, refused, .. } = subscriptions;
    refused.retain(|name| wanted.contains_key(name));
    let gone: Vec<String> =
        subscribed.extract_if(|name, _| !wanted.contains_key(name)).map(|(name, _)| name).collect();
    let unsubscribing = gone.iter().map(|name| send(dialed, "SUNSUBSCRIBE", name));
    let responses = join_all(unsubscribing).await;
    responses.into_iter().collect::<Result<_, _>>().map_err(|_| Lost)
}

async fn connect(cluster: &Cluster, node: &Address) -> Result<Subscriptions, RedisError> {
    let dialer = cluster.dialer();
    let (sender, pushes) = unbounded_channel();
    let config = dialer.config().set_push_sender(sender);
    let dialed = dialer.connect(&cluster.client(node), &config).await?;
    Ok(Subscriptions { dialed, pushes, subscribed: HashMap::new(), refused: HashSet::new() })
}

/// Checks whether the user may subscribe at this node.
pub(crate) async fn try_sharded(
    cluster: &Cluster,
    node: &Address,
    channel: &str,
) -> Result<(), RedisError> {
    let Subscriptions { dialed, .. } = connect(cluster, node).await?;
    let [on, off] = ["SSUBSCRIBE", "SUNSUBSCRIBE"].map(|command| send(&dialed, command, channel));
    let (on, off) = tokio::join!(biased; on, off);
    on.and(off)
}

async fn send(dialed: &Dialed, command: &str, channel: &str) -> Result<(), RedisError> {
    redis::cmd(command).arg(channel).exec_async(&mut dialed.connection()).await
}

async fn next_pong(interval: Duration, dialed: &Dialed) -> Result<(), Lost> {
    sleep(interval).await;
    match redis::cmd("PING").exec_async(&mut dialed.connection()).await {
        Ok(_) => Ok(()),
        // A server that cannot save rejects a ping, but still sends messages.
        Err(error) if is_refusal(&error) => Ok(()),
        Err(_) => Err(Lost),
    }
}
