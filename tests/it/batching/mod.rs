//! Tests of calls that contain requests of several callers. A task makes each call, so a caller
//! that is not polled delays no other caller.

mod network;

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use redis_semaphore::{Error, Semaphore, SemaphoreClient};

use test_support::observer::{Observer, in_time};
use test_support::proxy::{Flow, Proxy};
use test_support::server::{Server, shared_url, unique_name};

/// Polls a future once. After this poll, the future's request is under way, but nothing polls the
/// future again.
async fn begin<F: Future + ?Sized>(future: &mut std::pin::Pin<&mut F>) {
    poll_fn(|cx| {
        assert!(future.as_mut().poll(cx).is_pending(), "no reply arrives immediately");
        Poll::Ready(())
    })
    .await;
}

async fn warm(url: &str, limit: u32) -> Semaphore {
    let client = SemaphoreClient::connect(url).await.unwrap();
    let semaphore = client.semaphore(unique_name()).limit(limit).build().unwrap();
    // The first acquire declares the limit.
    semaphore.acquire().await.unwrap().release().await.unwrap();
    semaphore
}

#[tokio::test]
async fn an_unpolled_call_does_not_block_calls_of_the_same_semaphore() {
    let semaphore = warm(&shared_url(), 3).await;
    let mut left = pin!(semaphore.acquire());
    begin(&mut left).await;
    let second = in_time("a permit", semaphore.acquire()).await.unwrap();
    let first = in_time("the first permit", left).await.unwrap();
    assert!(first.fencing_token() < second.fencing_token(), "it keeps its turn");

    let mut left = pin!(first.refresh());
    begin(&mut left).await;
    in_time("a refresh", second.refresh()).await.unwrap();
    left.await.unwrap();

    let third = semaphore.acquire().await.unwrap();
    let mut left = pin!(second.release());
    begin(&mut left).await;
    in_time("a release", third.release()).await.unwrap();
    left.await.unwrap();
}

/// Inspections and changes of the limit are not batched. Each unpolled call could therefore occupy
/// one of the slots that redis-rs has for commands.
#[tokio::test]
async fn many_unpolled_inspections_and_limit_changes_do_not_block_an_acquire() {
    let builder = SemaphoreClient::builder().response_timeout(Duration::from_secs(600));
    let client = builder.connect(&shared_url()).await.unwrap();
    let build = || client.semaphore(unique_name()).limit(3).build().unwrap();
    let left: Vec<_> = (0..200).map(|_| build()).collect();
    let mut looks = pin!(join_all(left.iter().map(Semaphore::inspect)));
    let mut changes = pin!(join_all(left.iter().map(|semaphore| semaphore.set_limit(4))));
    begin(&mut looks).await;
    begin(&mut changes).await;
    in_time("a permit", build().acquire()).await.unwrap().release().await.unwrap();
    assert!(looks.await.iter().all(Result::is_ok));
    assert!(changes.await.iter().all(Result::is_ok));
}

#[tokio::test]
async fn an_unpolled_acquire_does_not_block_another_when_their_call_is_retried() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let semaphore = warm(&proxy.url(), 3).await;
    proxy.requests(Flow::Swallow);
    let mut left = pin!(semaphore.acquire());
    begin(&mut left).await;
    let second = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await }
    });
    proxy.cut_commands();
    proxy.requests(Flow::Pass);
    let second = in_time("a permit", second).await.unwrap().unwrap();
    let first = in_time("the first permit", left).await.unwrap();
    assert!(first.fencing_token() < second.fencing_token(), "it keeps its turn");
}

#[tokio::test]
async fn a_dropped_acquire_does_not_block_others_and_is_removed_from_the_server() {
    let (url, name) = (shared_url(), unique_name());
    let observer = Observer::new(&url, &name, 1).await;
    let client = SemaphoreClient::connect(&url).await.unwrap();
    let semaphore = client.semaphore(&name).limit(1).build().unwrap();
    for others in 0..3 {
        {
            let mut dropped = pin!(semaphore.acquire());
            begin(&mut dropped).await;
        }
        for _ in 0..others {
            let permit = in_time("a permit", semaphore.acquire()).await.unwrap();
            permit.release().await.unwrap();
        }
        observer.sees(0, 0).await;
    }
}

/// A runtime other than the I/O runtime may end while a call from that runtime is under way.
#[test]
fn an_acquire_whose_runtime_has_ended_does_not_block_another_acquire() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let home = runtime();
    let semaphore = home.block_on(warm(&shared_url(), 2));
    for _ in 0..20 {
        let guest = runtime();
        let mut left = Box::pin(semaphore.acquire());
        guest.block_on(begin(&mut left.as_mut()));
        drop(guest);
        let permit = home.block_on(in_time("a permit", semaphore.acquire())).unwrap();
        let first = home.block_on(in_time("the first permit", left)).unwrap();
        assert!(first.fencing_token() < permit.fencing_token(), "it keeps its turn");
    }
}

/// All semaphores of a process share one connection, and one attempt to connect.
#[tokio::test]
async fn an_unpolled_call_that_reconnects_does_not_block_other_semaphores() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let timeout = Duration::from_millis(300);
    let client = SemaphoreClient::builder().response_timeout(timeout);
    let client = client.connect(&proxy.url()).await.unwrap();
    let build = |name| client.semaphore(name).limit(5).build().unwrap();
    let (one, other) = (build("one"), build("other"));
    let held = other.acquire().await.unwrap();
    drop(one.acquire().await.unwrap());
    let calls: [BoxFuture<'_, ()>; 4] = [
        async { drop(one.acquire().await.unwrap()) }.boxed(),
        async { drop(one.inspect().await.unwrap()) }.boxed(),
        async { assert_eq!(one.set_limit(4).await.unwrap(), 5) }.boxed(),
        async { assert_eq!(one.clear_limit().await.unwrap(), 5) }.boxed(),
    ];
    for mut left in calls {
        proxy.refuse_connections(true);
        proxy.cut_commands();
        assert!(build("third").try_acquire().await.is_err(), "the connection is lost");
        proxy.refuse_connections(false);
        begin(&mut left.as_mut()).await;
        in_time("a refresh", held.refresh()).await.unwrap();
        assert!(other.try_acquire().await.unwrap().is_some());
        in_time("a reply for the first caller", left).await;
    }
}

/// In each connection, redis-rs has 50 slots for commands, and assigns them in order of arrival.
#[tokio::test]
async fn unpolled_acquires_of_many_semaphores_do_not_block_releases() {
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let prefix = unique_name();
    let names = (0..150).map(|number| format!("{prefix}-{number}"));
    let all: Vec<_> = names.map(|name| client.semaphore(name).limit(2).build().unwrap()).collect();
    let mut held = Vec::new();
    for semaphore in &all {
        held.push(semaphore.acquire().await.unwrap());
    }
    let mut left: Vec<_> = all.iter().map(|semaphore| Box::pin(semaphore.acquire())).collect();
    for left in &mut left {
        begin(&mut left.as_mut()).await;
    }
    for permit in held {
        in_time("a release", permit.release()).await.unwrap();
    }
    for left in left {
        drop(in_time("a permit", left).await.unwrap());
    }
}

#[tokio::test]
async fn an_unpolled_acquire_that_declares_the_limit_does_not_block_a_try_acquire() {
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let semaphore = client.semaphore(unique_name()).limit(2).build().unwrap();
    let mut left = pin!(semaphore.acquire());
    begin(&mut left).await;
    assert!(in_time("a try", semaphore.try_acquire()).await.unwrap().is_some());
    drop(in_time("the first permit", left).await.unwrap());
}

/// The server rejects the whole call. The server's error names only one of the requests that are
/// too heavy. The other requests must not wait for thousands of separate rejections.
#[tokio::test]
async fn many_too_heavy_requests_do_not_block_a_valid_request_and_cost_few_calls() {
    let server = Server::start();
    let client = SemaphoreClient::connect(&server.url()).await.unwrap();
    let semaphore = client.semaphore("heavy").limit(3).build().unwrap();
    drop(semaphore.acquire().await.unwrap());
    let calls = || server.calls("evalsha");
    let before = calls();
    let mut heavy = tokio::task::JoinSet::new();
    for weight in 0..3000 {
        let semaphore = semaphore.clone();
        heavy.spawn(async move { semaphore.try_acquire_many(4 + weight % 2).await });
    }
    let good = in_time("a permit", semaphore.acquire()).await.unwrap();
    for refused in heavy.join_all().await {
        assert!(
            matches!(refused, Err(Error::TooHeavy { weight: 4 | 5, limit: 3, .. })),
            "{refused:?}"
        );
    }
    good.release().await.unwrap();
    let calls = calls() - before;
    assert!(calls < 50, "{calls} calls");
}
