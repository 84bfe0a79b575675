//! The wake-up side: one subscription for a whole process, kept alive across cuts.
//!
//! A message only saves time. What counts is in the keys, so after each new subscription the worker
//! asks again for all that waits.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use redis::aio::{PubSubSink, PubSubStream};
use redis::{Client, ErrorKind, Msg, RedisError};
use tokio::sync::{mpsc::WeakUnboundedSender, watch};
use tokio::time::timeout;

use crate::client::Shared;
use crate::message::{self, HandOff};
use crate::worker::{AskWhen, Task};

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct Subscription {
    sink: PubSubSink,
    messages: PubSubStream,
}

/// redis-rs has no timeouts of its own for subscriptions.
pub(crate) async fn subscribe(
    client: &Client,
    channel: &str,
    patience: Duration,
) -> Result<Subscription, RedisError> {
    let subscribe = async {
        let (mut sink, messages) = client.get_async_pubsub().await?.split();
        sink.subscribe(channel).await?;
        Ok(Subscription { sink, messages })
    };
    timeout(patience, subscribe)
        .await
        .unwrap_or_else(|_| Err((ErrorKind::Io, "no answer to SUBSCRIBE").into()))
}

/// Hands messages to the claims that they are for, until the worker ends.
pub(crate) async fn listen(
    shared: Arc<Shared>,
    mut subscription: Subscription,
    tasks: WeakUnboundedSender<Task>,
) {
    let mut connections = shared.link.connections();
    loop {
        let end = receive(&shared, &mut subscription, &mut connections, &tasks).await;
        if end == End::Lost {
            tracing::warn!("the wake-up connection to Redis is lost, connecting again");
        }
        let next = subscribe_again(&shared).await;
        // Where only the server has changed the old one went on: there is no moment without.
        while let Some(Some(message)) = subscription.messages.next().now_or_never() {
            deliver(&shared, &message, &tasks);
        }
        subscription = next;
        tracing::info!("listening for wake-ups again");
        let Some(tasks) = tasks.upgrade() else {
            return;
        };
        if tasks.send(Task::Ask(AskWhen::Now)).is_err() {
            return;
        }
    }
}

#[derive(Debug, PartialEq)]
enum End {
    /// The connection ended, or went silent.
    Lost,
    /// Commands have a new connection, maybe to another server: that is where messages come from.
    Moved,
}

async fn receive(
    shared: &Shared,
    subscription: &mut Subscription,
    connections: &mut watch::Receiver<u64>,
    tasks: &WeakUnboundedSender<Task>,
) -> End {
    let mut pings = tokio::time::interval(shared.settings.ask_interval());
    pings.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            message = subscription.messages.next() => match message {
                Some(message) => deliver(shared, &message, tasks),
                None => return End::Lost,
            },
            _ = connections.changed() => return End::Moved,
            _ = pings.tick() => {
                let ping = subscription.sink.ping::<redis::Value>();
                if !matches!(timeout(shared.settings.response_timeout, ping).await, Ok(Ok(_))) {
                    return End::Lost;
                }
            }
        }
    }
}

async fn subscribe_again(shared: &Shared) -> Subscription {
    let mut pause = FIRST_PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        let patience = shared.settings.response_timeout;
        match subscribe(shared.link.client(), &shared.channel, patience).await {
            Ok(subscription) => return subscription,
            Err(error) => tracing::debug!(%error, "subscribing failed, trying again"),
        }
    }
}

/// Tells the claims that a message is about. What no script can have sent is somebody else's: it is
/// left alone, and told of once for each power of two, for there may be a flood of it.
fn deliver(shared: &Shared, message: &Msg, tasks: &WeakUnboundedSender<Task>) {
    let (name, hand_offs) = match message::read(message.get_payload_bytes()) {
        Ok(read) => read,
        Err(reason) => {
            let count = shared.strange_messages.fetch_add(1, Ordering::Relaxed) + 1;
            if count.is_power_of_two() {
                let channel = &shared.channel;
                tracing::warn!(channel, count, reason, "not a wake-up message: who may publish?");
            }
            return;
        }
    };
    let mut ask = false;
    for HandOff { id, token, ends } in hand_offs {
        match shared.wait_of(id).filter(|claim| claim.gate.name == name) {
            // Granted by a reply meanwhile, or given up: the worker gives that back.
            None => {}
            Some(_) if token == 0 => ask = true,
            Some(claim) => claim.granted_by_message(token, ends),
        }
    }
    if let Some(tasks) = tasks.upgrade().filter(|_| ask) {
        // A worker that has ended has ended all waits.
        let _ = tasks.send(Task::Ask(AskWhen::Now));
    }
}
