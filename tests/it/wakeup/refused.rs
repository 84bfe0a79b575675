//! Tests of a user that may subscribe to the channels of only some semaphores.

use std::time::Duration;

use redis_semaphore::{Error, SemaphoreClient};

use test_support::acl;
use test_support::cluster::Cluster;
use test_support::observer::{eventually, in_time};

#[tokio::test]
async fn a_denied_channel_does_not_block_messages_of_other_channels() {
    let Some(mut cluster) = Cluster::start(1, false).await else { return };
    let builder = SemaphoreClient::builder().outage_tolerance(Duration::from_secs(4));
    // The timeout is so long that only messages end a wait in time.
    let builder = builder.heartbeat_timeout(Duration::from_secs(600));
    let client = builder.connect_cluster(cluster.urls()).await.unwrap();
    let fewer = acl::cluster_rules().iter().map(|rule| rule.replace("&sem:{*", "&sem:{heard*"));
    cluster.nodes[0].set_user(&fewer.collect::<Vec<_>>());

    let build = |name| client.semaphore(name).limit(1).build().unwrap();
    // The client subscribes to the channel of `a-refused-one` first. To acquire a free permit, a
    // client needs no channel.
    let (refused, received) = (build("a-refused-one"), build("heard"));
    let _held = in_time("a free permit", refused.acquire()).await.unwrap();
    let refused = tokio::spawn(async move { refused.acquire().await });
    for _ in 0..3 {
        let permit = in_time("a permit", received.acquire()).await.unwrap();
        let waiting = tokio::spawn(received.request().acquire());
        let queued = async || received.inspect().await.unwrap().queued;
        eventually("it waits", queued, |queued| *queued == 1).await;
        in_time("the release", permit.release()).await.unwrap();
        in_time("its turn", waiting).await.unwrap().unwrap().release().await.unwrap();
    }
    let refused = in_time("the end of the wait", refused).await.unwrap().unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused}");
}

/// Until a client has subscribed, its waiting requests are skipped at their turn, but they keep
/// their places in the queue.
#[tokio::test]
async fn a_client_that_is_not_yet_subscribed_keeps_its_place_in_the_queue() {
    let Some(mut cluster) = Cluster::start(1, false).await else { return };
    let other = SemaphoreClient::builder().connect_cluster([cluster.nodes[0].admin_url()]);
    let other = other.await.unwrap();
    // The client tries to subscribe at intervals of a third of this timeout.
    let heartbeat_timeout = Duration::from_secs(3);
    let builder = SemaphoreClient::builder().heartbeat_timeout(heartbeat_timeout);
    let client = builder.connect_cluster(cluster.urls()).await.unwrap();
    deny_channels(&mut cluster);

    let semaphore = other.semaphore("queued").limit(1).build().unwrap();
    let own = client.semaphore("queued").limit(1).build().unwrap();
    let queued = async |number: u64| {
        let queued = async || semaphore.inspect().await.unwrap().queued;
        eventually("they wait", queued, |queued| *queued == number).await;
    };
    let holder = semaphore.acquire().await.unwrap();
    let first = tokio::spawn(own.request().acquire());
    queued(1).await;
    let second = tokio::spawn(semaphore.request().acquire());
    queued(2).await;
    let third = tokio::spawn(semaphore.request().acquire());
    queued(3).await;
    holder.release().await.unwrap();
    let holder = in_time("the turn of a live client", second).await.unwrap().unwrap();

    cluster.nodes[0].set_user(acl::cluster_rules());
    let channels = async || -> usize {
        let channels: Vec<String> =
            redis::cmd("PUBSUB").arg("SHARDCHANNELS").query(&mut cluster.connect(0)).unwrap();
        channels.len()
    };
    eventually("both clients are subscribed", channels, |channels| *channels == 2).await;
    queued(2).await;
    holder.release().await.unwrap();
    let holder = in_time("the turn of the first request", first).await.unwrap().unwrap();
    assert!(!third.is_finished());
    holder.release().await.unwrap();
    in_time("the turn of the last request", third).await.unwrap().unwrap().release().await.unwrap();
}

/// A heartbeat grants the permit, because the request is in the call.
#[tokio::test]
async fn a_permit_reaches_a_client_that_is_not_yet_subscribed() {
    let Some(mut cluster) = Cluster::start(1, false).await else { return };
    let other = SemaphoreClient::builder().connect_cluster([cluster.nodes[0].admin_url()]);
    let other = other.await.unwrap().semaphore("queued").limit(1).build().unwrap();
    let client = SemaphoreClient::builder().heartbeat_timeout(Duration::from_secs(3));
    let client = client.outage_tolerance(Duration::from_secs(600));
    let client = client.connect_cluster(cluster.urls()).await.unwrap();
    deny_channels(&mut cluster);

    let holder = other.acquire().await.unwrap();
    let own = client.semaphore("queued").limit(1).build().unwrap();
    let waiting = tokio::spawn(own.request().acquire());
    let queued = async || other.inspect().await.unwrap().queued;
    eventually("it waits", queued, |queued| *queued == 1).await;
    holder.release().await.unwrap();
    in_time("its turn", waiting).await.unwrap().unwrap().release().await.unwrap();
}

/// Calls succeed, but subscriptions are rejected.
fn deny_channels(cluster: &mut Cluster) {
    let rules = acl::cluster_rules().iter().filter(|rule| !rule.starts_with('&')).cloned();
    cluster.nodes[0].set_user(&rules.chain(["resetchannels".to_owned()]).collect::<Vec<_>>());
}
