//! One server: one subscription, at the server that the commands go to. When their connection is
//! replaced, so is this one.

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
use crate::metrics::{SUBSCRIPTION, reconnected};
use crate::runtime::clock;
use crate::server::{Backoff, LOG_TARGET, Line, Link, Outages};

pub(crate) struct Subscription {
    sink: PubSubSink,
    messages: PubSubStream,
    /// The connection for commands at the same server.
    beside: u64,
}

/// For the first time. A server that is always the same one need not be found before.
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
    // Where the commands go: another server would not hear of the hand-offs there.
    let connected = link.connection().await?;
    let (sink, messages) = open(link, &connected.client, channel).await?;
    Ok(Subscription { sink, messages, beside: connected.number })
}

/// redis-rs has no timeouts of its own for subscriptions.
async fn open(
    link: &Link,
    client: &Client,
    channel: &str,
) -> Result<(PubSubSink, PubSubStream), RedisError> {
    let (mut sink, messages) = link.dialer().listen(client).await?.split();
    timeout(link.response_timeout(), sink.subscribe(channel))
        .await
        .unwrap_or_else(|_| Err((ErrorKind::Io, "no answer to SUBSCRIBE").into()))?;
    Ok((sink, messages))
}

pub(super) async fn listen(
    router: &Router,
    link: &Arc<Link>,
    channel: &Channel,
    mut subscription: Subscription,
) {
    let mut connections = link.connections();
    let outages = Outages::new(Line::Messages);
    loop {
        let end = receive(router, link, &mut subscription, &mut connections).await;
        if end == End::Lost {
            let lost = (ErrorKind::Io, "the subscription is lost").into();
            outages.failed(Instant::now(), None, link.server(), &lost);
            tracing::debug!(target: LOG_TARGET, "the wake-up connection to Redis is lost");
        }
        // The old one may go on, or come back: there is no moment without.
        let Subscription { messages, beside, .. } = &mut subscription;
        let mut next = pin!(subscribe_again(link, channel, end, *beside, &outages));
        let next = loop {
            tokio::select! {
                biased;
                Some(message) = messages.next() => {
                    router.hear(message.get_channel_name(), message.get_payload_bytes());
                }
                next = &mut next => break next,
            }
        };
        subscription = next;
        reconnected(SUBSCRIPTION);
        outages.succeeded(None);
        tracing::debug!(target: LOG_TARGET, "listening for wake-ups again");
        router.may_have_missed();
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
                    router.hear(message.get_channel_name(), message.get_payload_bytes());
                }
                None => return End::Lost,
            },
            true = other_than(connections, *beside) => return End::Moved,
            () = &mut silent => return End::Lost,
        }
    }
}

/// Once a ping is not answered in time.
async fn silent(router: &Router, link: &Arc<Link>, sink: &mut PubSubSink) {
    let mut pings = tokio::time::interval(router.ping_interval);
    pings.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        pings.tick().await;
        clock::rest_if_paused().await;
        let ping = sink.ping::<redis::Value>();
        match timeout(link.response_timeout(), ping).await {
            Ok(Ok(_)) => {}
            // A server that cannot save refuses even that, and goes on to send messages.
            Ok(Err(error)) if is_refusal(&error) => {}
            Ok(Err(_)) | Err(_) => return,
        }
        if link.source().may_move() {
            link.check().await;
        }
    }
}

/// Whether another connection has taken that one's place, as soon as it has.
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
        clock::rest_if_paused().await;
        // Once commands get through again, whoever queues and is not listening loses its turn.
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
                tracing::debug!(%error, "subscribing failed, trying again");
                // Is that server gone, the next attempt must look for another.
                link.check().await;
            }
        }
    }
}
