//! Grant messages of one server: one subscription, at the server that executes the commands. When
//! the connection for commands is replaced, the subscription is replaced, too.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use futures_util::StreamExt;
use redis::aio::{PubSubSink, PubSubStream};
use redis::{Client, ErrorKind, RedisError};
use tokio::sync::watch;
use tokio::time::timeout;

use super::{Channel, Router};
use crate::error::is_refusal;
use crate::metrics::{MESSAGES, reconnected};
use crate::server::{Backoff, LOG_TARGET, Link, Outages};

pub(crate) struct Subscription {
    sink: PubSubSink,
    messages: PubSubStream,
    /// The number of the connection for commands to the same server.
    beside: u64,
}

/// Subscribes for the first time. If the server is always the same, it need not be looked up. Then
/// the connections for commands and for messages are opened at the same time.
pub(crate) async fn subscribe_first(
    link: &Arc<Link>,
    channel: &str,
) -> Result<Subscription, RedisError> {
    let Some(client) = link.source().client() else {
        return subscribe(link, channel).await;
    };
    let (connected, opened) = tokio::join!(link.connection(), open(link, client, channel));
    let (sink, messages) = opened?;
    Ok(Subscription { sink, messages, beside: connected?.number })
}

pub(crate) async fn subscribe(link: &Arc<Link>, channel: &str) -> Result<Subscription, RedisError> {
    // Uses the server of the commands, because no other server sends the grant messages.
    let connected = link.connection().await?;
    let (sink, messages) = open(link, &connected.client, channel).await?;
    Ok(Subscription { sink, messages, beside: connected.number })
}

/// Opens a subscription, with a timeout. redis-rs has no timeout for subscriptions.
async fn open(
    link: &Link,
    client: &Client,
    channel: &str,
) -> Result<(PubSubSink, PubSubStream), RedisError> {
    let (mut sink, messages) = link.dialer().listen(client).await?.split();
    timeout(link.response_timeout(), sink.subscribe(channel))
        .await
        .unwrap_or_else(|_| Err((ErrorKind::Io, "no reply to SUBSCRIBE").into()))?;
    Ok((sink, messages))
}

pub(super) async fn listen(
    router: &Router,
    link: &Arc<Link>,
    channel: &Channel,
    mut subscription: Subscription,
) {
    let mut connections = link.connections();
    let outages = Outages::new(MESSAGES);
    loop {
        let end = receive(router, link, &mut subscription, &mut connections).await;
        if end == End::Lost {
            let lost = (ErrorKind::Io, "the subscription was lost").into();
            outages.failed(Instant::now(), None, link.server(), &lost);
            tracing::debug!(target: LOG_TARGET, "the connection for grant messages was lost");
        }
        // The old subscription may still receive messages until the new one exists.
        let Subscription { messages, beside, .. } = &mut subscription;
        let mut next = pin!(subscribe_again(link, channel, end, *beside, &outages));
        let next = loop {
            tokio::select! {
                biased;
                Some(message) = messages.next() => {
                    router.receive(message.get_channel_name(), message.get_payload_bytes());
                }
                next = &mut next => break next,
            }
        };
        subscription = next;
        reconnected(MESSAGES);
        outages.succeeded(None, || link.server());
        tracing::debug!(target: LOG_TARGET, "subscribed to grant messages again");
        router.may_have_missed();
    }
}

#[derive(Debug, PartialEq)]
enum End {
    /// The connection ended, or was silent.
    Lost,
    /// The commands use a new connection, perhaps to another server. That server sends the grant
    /// messages.
    Moved,
}

async fn receive(
    router: &Router,
    link: &Arc<Link>,
    subscription: &mut Subscription,
    connections: &mut watch::Receiver<u64>,
) -> End {
    let Subscription { sink, messages, beside } = subscription;
    let mut silent = pin!(silent(router, link, sink));
    loop {
        tokio::select! {
            message = messages.next() => match message {
                Some(message) => {
                    router.receive(message.get_channel_name(), message.get_payload_bytes());
                }
                None => return End::Lost,
            },
            true = other_than(connections, *beside) => return End::Moved,
            () = &mut silent => return End::Lost,
        }
    }
}

/// Completes when a ping fails or gets no reply in time.
async fn silent(router: &Router, link: &Arc<Link>, sink: &mut PubSubSink) {
    let mut pings = tokio::time::interval(router.ping_interval);
    pings.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        pings.tick().await;
        let ping = sink.ping::<redis::Value>();
        match timeout(link.response_timeout(), ping).await {
            Ok(Ok(_)) => {}
            // A server that cannot save rejects even a ping, but still sends messages.
            Ok(Err(error)) if is_refusal(&error) => {}
            Ok(Err(_)) | Err(_) => return,
        }
        if link.source().may_move() {
            link.check().await;
        }
    }
}

/// Waits until another connection has replaced connection `number`. Returns `false` if no other
/// connection will be made.
async fn other_than(connections: &mut watch::Receiver<u64>, number: u64) -> bool {
    connections.wait_for(|newest| *newest != number).await.is_ok()
}

async fn subscribe_again(
    link: &Arc<Link>,
    channel: &Channel,
    end: End,
    beside: u64,
    outages: &Outages,
) -> Subscription {
    if end == End::Lost {
        link.check().await;
    }
    let mut backoff = Backoff::of_connections(link.response_timeout());
    let mut connections = link.connections();
    let mut is_late = *connections.borrow() != beside;
    loop {
        // If a new connection for commands exists, subscribing starts without a pause. A request
        // that is queued without a subscription loses its turn.
        if !std::mem::take(&mut is_late) {
            tokio::select! {
                () = tokio::time::sleep(backoff.next()) => {}
                Ok(()) = connections.changed() => {}
            }
        }
        let began = Instant::now();
        match subscribe(link, &channel.name).await {
            Ok(subscription) => return subscription,
            Err(error) => {
                outages.failed(began, None, link.server(), &error);
                tracing::debug!(%error, "subscribing failed; it is retried");
                // If the server is down, the next attempt must look for another server.
                link.check().await;
            }
        }
    }
}
