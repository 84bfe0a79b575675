//! Tests that a program's own calls, including drops and canceled calls, take effect in the order
//! in which the program makes them. Tokio's semaphore, whose calls never overlap, behaves in the
//! same way.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use futures_util::future::{join_all, maybe_done, try_join_all};
use nix::sys::signal::Signal;
use redis_semaphore::{Error, ScriptRegistry, Semaphore, SemaphoreClient, acquire_all, blocking};

use test_support::acl;
use test_support::observer::{eventually, in_time};
use test_support::proxy::{Flow, Proxy};
use test_support::server::{Server, shared_url, unique_name};

const ROUNDS: usize = 100;

/// The lease is longer than any test, so a permit that is not released stays taken.
const LEASE: Duration = Duration::from_secs(600);

fn build(client: &SemaphoreClient, limit: u32) -> Semaphore {
    client.semaphore(unique_name()).limit(limit).lease(LEASE).build().unwrap()
}

async fn poll_once(future: impl Future) {
    let mut future = pin!(future);
    poll_fn(|cx| {
        _ = future.as_mut().poll(cx).is_ready();
        Poll::Ready(())
    })
    .await;
}

/// Checks that the whole limit is free for the next call.
async fn all_is_free(semaphore: &Semaphore, limit: u32, what: &str) {
    let permit = semaphore.try_acquire_many(limit).await.unwrap();
    assert!(permit.is_some(), "{what}, then try_acquire");
    permit.unwrap().release().await.unwrap();
}

async fn permits_that_are_dropped(semaphore: &Semaphore) {
    drop(semaphore.acquire().await.unwrap());
    all_is_free(semaphore, 2, "drop").await;
    drop(semaphore.acquire_many(2).await.unwrap());
    assert_eq!(semaphore.available_permits().await.unwrap(), 2, "drop, then available_permits");
    drop(semaphore.acquire_many(2).await.unwrap());
    let permit = semaphore.acquire_timeout(Duration::ZERO).await;
    drop(permit.expect("drop, then a timeout of zero"));
    let (first, second) = (semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap());
    drop((first, second));
    all_is_free(semaphore, 2, "two drops").await;
}

async fn ends_that_are_dropped(semaphore: &Semaphore) {
    drop(semaphore.acquire_many(2).await.unwrap().release());
    all_is_free(semaphore, 2, "a release that is not polled").await;
    poll_once(semaphore.acquire_many(2).await.unwrap().release()).await;
    all_is_free(semaphore, 2, "a release that is polled once").await;
    let before = semaphore.available_permits().await.unwrap();
    poll_once(semaphore.acquire().await.unwrap().forget()).await;
    let after = semaphore.available_permits().await.unwrap();
    assert_eq!(after, before - 1, "a forget that is polled once");
    semaphore.clear_limit().await.unwrap();
}

async fn waits_that_are_canceled(semaphore: &Semaphore) {
    poll_once(semaphore.acquire_many(2)).await;
    all_is_free(semaphore, 2, "an acquire that is polled once").await;
    poll_once(semaphore.try_acquire_many(2)).await;
    all_is_free(semaphore, 2, "a try that is polled once").await;
    let permit = semaphore.acquire_many(2).await.unwrap();
    let timeout = semaphore.acquire_timeout(Duration::from_millis(1)).await;
    assert!(matches!(timeout, Err(Error::Timeout { .. })), "{timeout:?}");
    let mut waits = tokio::task::JoinSet::new();
    for _ in 0..3 {
        waits.spawn(semaphore.request().acquire());
    }
    let queued = async || semaphore.inspect().await.unwrap().queued;
    eventually("queued", queued, |queued| *queued == 3).await;
    waits.shutdown().await;
    assert_eq!(semaphore.inspect().await.unwrap().queued, 0, "waits that were aborted");
    drop(permit);
    all_is_free(semaphore, 2, "a drop after waits were aborted").await;
}

async fn changes_that_are_dropped(semaphore: &Semaphore) {
    all_is_free(semaphore, 2, "at first").await;
    poll_once(semaphore.add_permits(3)).await;
    assert_eq!(semaphore.available_permits().await.unwrap(), 5, "add_permits, polled once");
    poll_once(semaphore.set_limit(1)).await;
    assert!(semaphore.try_acquire_many(2).await.unwrap().is_none(), "set_limit, polled once");
    poll_once(semaphore.clear_limit()).await;
    all_is_free(semaphore, 2, "clear_limit, polled once").await;
    let permit = semaphore.acquire_many(2).await.unwrap();
    poll_once(semaphore.revoke(permit.id())).await;
    all_is_free(semaphore, 2, "revoke, polled once").await;
    drop(permit);
}

async fn several_at_once(client: &SemaphoreClient) {
    let (one, other) = (build(client, 2), build(client, 2));
    let both = || [one.request().weight(2), other.request().weight(2)];
    drop(acquire_all(both()).await.unwrap());
    all_is_free(&one, 2, "the first of two").await;
    all_is_free(&other, 2, "the second of two").await;
    poll_once(acquire_all(both())).await;
    all_is_free(&one, 2, "acquire_all, polled once").await;
    all_is_free(&other, 2, "acquire_all, polled once").await;
}

/// Semaphores with the same name are one semaphore, however often they are built.
async fn closed_and_built_again(client: &SemaphoreClient) {
    let name = unique_name();
    let again = || client.semaphore(&name).limit(2).lease(LEASE).build().unwrap();
    let permit = again().acquire_many(2).await.unwrap();
    drop(permit);
    all_is_free(&again(), 2, "a drop at another semaphore of that name").await;
    let (closed, open) = (again(), again());
    let permit = open.acquire_many(2).await.unwrap();
    let waiting = tokio::spawn(closed.request().acquire());
    let queued = async || open.inspect().await.unwrap().queued;
    eventually("queued", queued, |queued| *queued == 1).await;
    closed.close();
    assert_eq!(open.inspect().await.unwrap().queued, 0, "waits that were closed");
    drop(permit);
    all_is_free(&open, 2, "a close").await;
    assert!(matches!(waiting.await.unwrap(), Err(Error::Closed { .. })));
}

async fn detached_and_adopted(client: &SemaphoreClient) {
    let semaphore = build(client, 1);
    let detached = semaphore.acquire().await.unwrap().detach();
    let text = detached.to_string();
    poll_once(semaphore.adopt(detached)).await;
    // If the canceled adoption did not take effect, this adoption succeeds.
    drop(semaphore.adopt(text.parse().unwrap()).await);
    all_is_free(&semaphore, 1, "an adoption, polled once").await;
    let detached = semaphore.acquire().await.unwrap().detach();
    drop(semaphore.adopt(detached).await.unwrap());
    all_is_free(&semaphore, 1, "an adopted permit that is dropped").await;
}

async fn tasks_and_threads_that_synchronize(semaphore: &Semaphore) {
    let permit = semaphore.acquire_many(2).await.unwrap();
    let (dropped, is_dropped) = tokio::sync::oneshot::channel();
    thread::spawn(move || {
        drop(permit);
        dropped.send(()).expect("the test waits for it");
    });
    in_time("the thread", is_dropped).await.unwrap();
    all_is_free(semaphore, 2, "a drop by a thread").await;
    let permit = semaphore.acquire_many(2).await.unwrap();
    tokio::spawn(async move { drop(permit) }).await.unwrap();
    all_is_free(semaphore, 2, "a drop by a task").await;
}

async fn every_behavior(client: SemaphoreClient) {
    let semaphore = build(&client, 2);
    for _ in 0..ROUNDS {
        permits_that_are_dropped(&semaphore).await;
        ends_that_are_dropped(&semaphore).await;
        waits_that_are_canceled(&semaphore).await;
        changes_that_are_dropped(&semaphore).await;
        several_at_once(&client).await;
        closed_and_built_again(&client).await;
        detached_and_adopted(&client).await;
        tasks_and_threads_that_synchronize(&semaphore).await;
    }
    client.shutdown().await;
}

/// Connects with a timeout that is long enough for a busy machine. A call that is repeated after a
/// timeout may reach the server late, and G16 allows what a late copy of an acquire does.
async fn patient(url: &str) -> SemaphoreClient {
    let builder = SemaphoreClient::builder().response_timeout(Duration::from_secs(20));
    builder.connect(url).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_keep_the_order_of_the_program() {
    every_behavior(patient(&shared_url()).await).await;
}

#[tokio::test]
async fn calls_keep_the_order_of_the_program_on_one_thread() {
    every_behavior(patient(&shared_url()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_keep_the_order_of_the_program_in_memory() {
    every_behavior(SemaphoreClient::local().unwrap()).await;
}

#[test]
fn blocking_calls_keep_the_order_of_the_program() {
    let servers = [
        blocking::SemaphoreClient::connect(&shared_url()).unwrap(),
        blocking::SemaphoreClient::local().unwrap(),
    ];
    for client in servers {
        let semaphore = client.semaphore(unique_name()).limit(1).lease(LEASE).build().unwrap();
        for _ in 0..ROUNDS {
            drop(semaphore.acquire().unwrap());
            drop(semaphore.try_acquire().unwrap().expect("drop, then try_acquire"));
            assert_eq!(semaphore.available_permits().unwrap(), 1);
            let permit = semaphore.acquire().unwrap();
            thread::spawn(move || drop(permit)).join().unwrap();
            drop(semaphore.try_acquire().unwrap().expect("a drop by a thread"));
        }
    }
}

/// A task drops a permit and begins a call. Then another task makes a call.
async fn dropped_before_a_call_of_another_task(client: &SemaphoreClient) {
    let semaphore = build(client, 1);
    let other = client.semaphore(semaphore.name()).limit(1).lease(LEASE).build().unwrap();
    let permit = semaphore.acquire().await.unwrap();
    let (dropped, is_dropped) = tokio::sync::oneshot::channel();
    let available = tokio::spawn(async move {
        is_dropped.await.expect("the test drops the permit");
        other.available_permits().await.unwrap()
    });
    drop(permit);
    let mut call = pin!(maybe_done(semaphore.limit()));
    poll_once(call.as_mut()).await;
    dropped.send(()).expect("the task waits for it");
    call.await;
    assert_eq!(available.await.unwrap(), 1);
}

/// Does `work` while another task makes many calls.
async fn among_many_calls(client: &SemaphoreClient, work: impl Future) {
    let busy = build(client, 1);
    let calls = async move { try_join_all((0..400).map(|_| busy.limit())).await.map(drop) };
    let calls = tokio::spawn(calls);
    work.await;
    calls.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_keep_the_order_of_the_program_among_many_calls() {
    let client = patient(&shared_url()).await;
    for _ in 0..ROUNDS {
        among_many_calls(&client, dropped_before_a_call_of_another_task(&client)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_begin_together_take_effect_in_the_order_of_their_first_polls() {
    const CALLS: u32 = 2000;
    let client = patient(&shared_url()).await;
    for _ in 0..ROUNDS {
        let semaphore = build(&client, CALLS);
        let acquires = async {
            // As with tokio's semaphore, a call does not begin if its task has used up its turn.
            tokio::task::yield_now().await;
            let permits = try_join_all((0..CALLS).map(|_| semaphore.acquire())).await.unwrap();
            assert!(permits.is_sorted_by_key(|permit| permit.fencing_token()));
        };
        among_many_calls(&client, acquires).await;
    }
}

fn calls(observer: &mut redis::Connection) -> u64 {
    let stats: String = redis::cmd("INFO").arg("commandstats").query(observer).unwrap();
    let evalsha = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:"));
    evalsha.and_then(|line| line.split(['=', ',']).nth(1)).map_or(0, |count| count.parse().unwrap())
}

/// The release of a dropped permit and the next call are under way at the same time.
#[tokio::test]
async fn the_order_of_calls_costs_no_round_trip() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let client = patient(&proxy.url()).await;
    let semaphore = build(&client, 1);
    // The first release over a connection contains the script's text.
    semaphore.acquire().await.unwrap().release().await.unwrap();
    let permit = semaphore.acquire().await.unwrap();
    let mut observer = server.connect();
    let before = calls(&mut observer);
    proxy.replies(Flow::Hold);
    drop(permit);
    let mut next = pin!(semaphore.try_acquire());
    let made = async || {
        poll_once(next.as_mut()).await;
        calls(&mut observer) - before
    };
    eventually("both calls", made, |made| *made == 2).await;
    proxy.replies(Flow::Pass);
    assert!(next.await.unwrap().is_some());
}

/// After a cut, the release is sent again before the call that follows the release.
#[tokio::test(flavor = "multi_thread")]
async fn the_order_of_calls_is_kept_when_connections_are_cut() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let client = patient(&proxy.url()).await;
    let semaphore = build(&client, 1);
    for round in 0..ROUNDS {
        let permit = semaphore.acquire().await.unwrap();
        // The connection is cut at different moments: before the release is written, while the
        // release is under way, and after the release.
        if round % 3 == 0 {
            proxy.cut_commands();
        }
        drop(permit);
        if round % 3 == 1 {
            proxy.cut_commands();
        }
        let cut = async {
            if round % 3 == 2 {
                tokio::task::yield_now().await;
                proxy.cut_commands();
            }
        };
        let (permit, ()) = tokio::join!(semaphore.try_acquire(), cut);
        assert!(permit.unwrap().is_some(), "round {round}");
    }
}

/// Lets all tasks run. If tokio's clock is paused, it does not advance.
async fn let_tasks_run() {
    for _ in 0..10_000 {
        tokio::task::yield_now().await;
    }
}

/// The socket is full, so a release waits in the connection's buffer until the release times out.
/// redis-rs does not send a command that has timed out, but sends the next call.
#[tokio::test]
async fn a_call_does_not_overtake_a_release_that_times_out_before_it_is_sent() {
    const TIMEOUT: Duration = Duration::from_secs(120);
    let server = Server::start();
    let builder = SemaphoreClient::builder().response_timeout(TIMEOUT);
    let (socket, user, password) = (server.socket(), acl::USER, acl::PASSWORD);
    let url = format!("unix://{}?user={user}&pass={password}", socket.display());
    let client = builder.connect(&url).await.unwrap();
    let semaphore = build(&client, 1);
    let permit = semaphore.acquire().await.unwrap();
    let busy = build(&client, 1);
    server.signal(Signal::SIGSTOP);
    tokio::time::pause();
    // The buffer of the socket is smaller than these calls.
    let calls = tokio::spawn(async move { join_all((0..3000).map(|_| busy.limit())).await });
    let_tasks_run().await;
    drop(permit);
    let_tasks_run().await;
    tokio::time::advance(TIMEOUT / 2).await;
    let next = tokio::spawn(async move { semaphore.try_acquire().await });
    let_tasks_run().await;
    // The release times out, but not the next call.
    tokio::time::advance(TIMEOUT * 3 / 4).await;
    let_tasks_run().await;
    tokio::time::resume();
    server.signal(Signal::SIGCONT);
    assert!(next.await.unwrap().unwrap().is_some());
    calls.await.unwrap();
}

/// A server that was restarted or promoted may know the script of the next call, but not the script
/// `release`. In that case, the release takes one more round trip.
#[tokio::test]
async fn the_order_of_calls_is_kept_when_the_server_lacks_a_script() {
    let server = Server::start();
    let client = SemaphoreClient::connect(&server.url()).await.unwrap();
    let semaphore = build(&client, 1);
    let mut admin = server.connect();
    let acquire = ScriptRegistry::embedded().script("acquire").unwrap();
    for _ in 0..ROUNDS {
        let permit = semaphore.acquire().await.unwrap();
        let mut pipeline = redis::pipe();
        pipeline.cmd("SCRIPT").arg("FLUSH").cmd("SCRIPT").arg("LOAD").arg(acquire.source());
        pipeline.exec(&mut admin).unwrap();
        drop(permit);
        assert!(semaphore.try_acquire().await.unwrap().is_some());
    }
}
