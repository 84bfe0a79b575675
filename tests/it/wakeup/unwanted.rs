//! Tests of unwanted grants. A client releases a permit that it no longer wants, but no message
//! makes the client release a permit that it holds.

use std::time::Duration;

use redis_semaphore::{Holder, Permit, Semaphore, SemaphoreClient};

use test_support::observer::{Observer, eventually, in_time};
use test_support::proxy::{Flow, Proxy};
use test_support::scripts::Scripts;
use test_support::server::Server;

const LONG: Duration = Duration::from_secs(300);

/// The release of an abandoned wait is lost, so the ID of the wait stays in the queue. The process
/// is alive, so the server grants a permit to this ID.
#[tokio::test]
async fn a_grant_to_a_wait_whose_release_was_lost_is_released_at_once() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let elsewhere = SemaphoreClient::connect(&server.url()).await.unwrap();
    let holder = elsewhere.semaphore("lost").limit(1).build().unwrap().acquire().await.unwrap();
    let observer = Observer::new(&server.url(), "lost", 1).await;
    // No call is retried before the end of the test.
    let client = SemaphoreClient::builder().response_timeout(LONG);
    let client = client.connect(&proxy.url()).await.unwrap();
    let semaphore = client.semaphore("lost").limit(1).lease(LONG).build().unwrap();
    let waiting = tokio::spawn(semaphore.request().acquire());
    let id = observer.sees(1, 1).await.waiters[0].id.clone();
    proxy.commands(Flow::Swallow);
    waiting.abort();
    let swallowed = async || proxy.swallowed_requests();
    eventually("its release is lost", swallowed, |swallowed| *swallowed > 0).await;
    proxy.commands(Flow::Pass);
    let before = observer.look().await;
    assert_eq!((before.held, &before.waiters[0].id), (1, &id));
    holder.release().await.unwrap();
    let after = observer.sees(0, 0).await;
    assert!(after.last_token > before.last_token, "it was never granted");
}

fn client_of(permit: &Permit) -> &str {
    permit.id().split(':').nth(1).unwrap()
}

/// The fencing token in the messages that [`publish`] sends.
const TOKEN: u64 = 9_000_000_000_000_000;

/// Publishes a message like the message of a script that hands off a permit.
fn publish(server: &Server, client: &str, id: &str) {
    let channel = format!("sem:wake:{client}");
    let message = format!("told\n{id} {TOKEN} 9000000000000");
    redis::cmd("PUBLISH").arg(channel).arg(message).exec(&mut server.connect()).unwrap();
}

async fn handed_over(semaphore: &Semaphore, held: u64, observer: &Observer) -> Permit {
    let holder = semaphore.acquire().await.unwrap();
    let waiting = tokio::spawn(semaphore.request().acquire());
    observer.sees(held + 1, 1).await;
    holder.release().await.unwrap();
    in_time("its turn", waiting).await.unwrap().unwrap()
}

/// Sends a message about a permit that the process never requested, and waits until the process
/// releases it. Messages arrive in order, so at that moment the process has handled all earlier
/// messages.
async fn give_back_a_stranger(server: &Server, client: &str, observer: &Observer) {
    let stranger = format!("P:{client}:1:300000:{}", "0".repeat(22));
    let mut scripts = Scripts::new(server.connect(), "told");
    let reply = scripts.ok("acquire", &format!("declare_if_unset 5 1000 {stranger} try"));
    assert_eq!(reply[3], 1, "granted");
    publish(server, client, &stranger);
    let holders = async || observer.look().await.holders;
    let is_gone = |holders: &Vec<Holder>| holders.iter().all(|holder| holder.id != stranger);
    eventually("released", holders, is_gone).await;
}

#[tokio::test]
async fn a_grant_message_with_the_weight_of_another_request_grants_nothing() {
    let server = Server::start();
    let client = SemaphoreClient::connect(&server.url()).await.unwrap();
    let semaphore = client.semaphore("told").limit(1).build().unwrap();
    let observer = Observer::new(&server.url(), "told", 1).await;
    let holder = semaphore.acquire().await.unwrap();
    let waiting = tokio::spawn(semaphore.request().acquire());
    let id = observer.sees(1, 1).await.waiters[0].id.clone();
    publish(&server, client_of(&holder), &id.replacen(":1:", ":2:", 1));
    // The grant message of this release arrives after the forged message.
    holder.release().await.unwrap();
    let permit = in_time("its turn", waiting).await.unwrap().unwrap();
    assert_ne!(permit.fencing_token(), TOKEN);
    permit.release().await.unwrap();
}

/// Late, duplicated and forged messages name a permit that is in use.
#[tokio::test]
async fn no_grant_message_ends_a_held_permit() {
    let server = Server::start();
    let client = SemaphoreClient::connect(&server.url()).await.unwrap();
    let build = |refresh| client.semaphore("told").limit(4).auto_refresh(refresh).build().unwrap();
    let (refreshed, left_alone) = (build(true), build(false));
    let observer = Observer::new(&server.url(), "told", 4).await;
    let permits = [
        refreshed.acquire().await.unwrap(),
        left_alone.acquire().await.unwrap(),
        left_alone.try_acquire().await.unwrap().unwrap(),
        handed_over(&refreshed, 3, &observer).await,
    ];
    let client = client_of(&permits[0]);
    for _ in 0..2 {
        permits.iter().for_each(|permit| publish(&server, client, permit.id()));
    }
    refreshed.set_limit(5).await.unwrap();
    give_back_a_stranger(&server, client, &observer).await;
    observer.sees(4, 0).await;
    for permit in permits {
        permit.release().await.unwrap();
    }
}

/// The permit is in use until the server has executed the forget. A release instead of the forget
/// would not reduce the limit.
#[tokio::test]
async fn no_grant_message_ends_a_permit_that_is_being_forgotten() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    // No call is retried before the end of the test.
    let client = SemaphoreClient::builder().response_timeout(LONG);
    let client = client.connect(&proxy.url()).await.unwrap();
    let semaphore = client.semaphore("told").limit(4).build().unwrap();
    let observer = Observer::new(&server.url(), "told", 4).await;
    let permit = semaphore.acquire().await.unwrap();
    let (client, id) = (client_of(&permit).to_owned(), permit.id().to_owned());
    proxy.commands(Flow::Swallow);
    let _consumed = tokio::spawn(permit.forget());
    let swallowed = async || proxy.swallowed_requests();
    eventually("the call is lost", swallowed, |swallowed| *swallowed > 0).await;
    proxy.commands(Flow::Pass);
    publish(&server, &client, &id);
    give_back_a_stranger(&server, &client, &observer).await;
    assert_eq!(observer.look().await.holders[0].id, id);
}

/// Another process may use the permit now. If this client released the permit, one holder too many
/// would be admitted.
#[tokio::test]
async fn no_grant_message_ends_a_detached_or_expiring_permit() {
    let server = Server::start();
    let client = SemaphoreClient::connect(&server.url()).await.unwrap();
    let semaphore = client.semaphore("told").limit(4).lease(LONG).build().unwrap();
    let observer = Observer::new(&server.url(), "told", 4).await;
    let (passed_on, left, dropped) = (
        semaphore.acquire().await.unwrap(),
        semaphore.acquire().await.unwrap(),
        client.semaphore("told").limit(4).lease(LONG).let_expire_on_drop(true).build().unwrap(),
    );
    let dropped = dropped.acquire().await.unwrap();
    let client = client_of(&left).to_owned();
    let ids = [&passed_on, &left, &dropped].map(|permit| permit.id().to_owned());
    let detached = passed_on.detach();
    left.let_expire().await.unwrap();
    drop(dropped);
    ids.iter().for_each(|id| publish(&server, &client, id));
    give_back_a_stranger(&server, &client, &observer).await;
    observer.sees(3, 0).await;
    semaphore.adopt(detached).await.unwrap().release().await.unwrap();
}

/// The client keeps the ID for one lease. If the ID is granted after that time, the client releases
/// the granted permit.
#[tokio::test]
async fn ids_of_detached_and_expiring_permits_are_kept_for_one_lease_only() {
    let server = Server::start();
    let client = SemaphoreClient::connect(&server.url()).await.unwrap();
    let lease = Duration::from_millis(500);
    let semaphore = client.semaphore("told").limit(4).lease(lease).build().unwrap();
    let observer = Observer::new(&server.url(), "told", 4).await;
    let permits = [semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap()];
    let client = client_of(&permits[0]).to_owned();
    let ids = permits.each_ref().map(|permit| permit.id().to_owned());
    let [left, passed_on] = permits;
    left.let_expire().await.unwrap();
    let _ = passed_on.detach();
    for id in ids {
        is_forgotten(&server, &client, &id, &observer).await;
    }
}

/// Checks that the client releases a permit that is now granted to this ID.
async fn is_forgotten(server: &Server, client: &str, id: &str, observer: &Observer) {
    let mut scripts = Scripts::new(server.connect(), "told");
    // The permit is granted again each time, so that it does not expire.
    let mut is_reported = false;
    let report_again = async || {
        let held = observer.look().await.holders.iter().any(|holder| holder.id == id);
        scripts.ok("acquire", &format!("declare_if_unset 4 1000 {id} try"));
        publish(server, client, id);
        held || !std::mem::replace(&mut is_reported, true)
    };
    eventually("forgotten and released", report_again, |is_held| !is_held).await;
}

/// The message of a handoff overtakes the reply to a heartbeat. The reply arrives after the permit
/// was detached.
#[tokio::test]
async fn a_late_heartbeat_reply_does_not_restore_a_detached_permit() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let elsewhere = SemaphoreClient::connect(&server.url()).await.unwrap();
    let holder = elsewhere.semaphore("told").limit(4).build().unwrap();
    let holder = holder.acquire_many(4).await.unwrap();
    let observer = Observer::new(&server.url(), "told", 4).await;
    let builder = SemaphoreClient::builder().heartbeat_timeout(Duration::from_secs(1));
    let client = builder.response_timeout(LONG).connect(&proxy.url()).await.unwrap();
    // The lease is so long that the permit is not refreshed during the test: the reply to a refresh
    // would be held back, too.
    let lease = Duration::from_secs(8);
    let semaphore = client.semaphore("told").limit(4).lease(lease).build().unwrap();
    let waiting = tokio::spawn(semaphore.request().acquire());
    observer.sees(4, 1).await;
    proxy.replies(Flow::Hold);
    let before = proxy.passed_requests();
    let passed = async || proxy.passed_requests();
    eventually("a heartbeat", passed, |passed| *passed > before).await;
    holder.release().await.unwrap();
    let permit = in_time("its turn", waiting).await.unwrap().unwrap();
    let (client, id) = (client_of(&permit).to_owned(), permit.id().to_owned());
    let _ = permit.detach();
    proxy.replies(Flow::Pass);
    is_forgotten(&server, &client, &id, &observer).await;
}

/// A delayed heartbeat arrives after another process has adopted the permit, and queues the old ID
/// again. The ping on the connection for messages is delayed, too, but it does not delay any
/// message.
#[tokio::test]
async fn a_late_heartbeat_of_a_detached_permit_is_removed_from_the_queue() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let elsewhere = SemaphoreClient::connect(&server.url()).await.unwrap();
    let elsewhere = elsewhere.semaphore("told").limit(1).build().unwrap();
    let holder = elsewhere.acquire().await.unwrap();
    let observer = Observer::new(&server.url(), "told", 1).await;
    let builder = SemaphoreClient::builder().heartbeat_timeout(Duration::from_secs(3));
    let client = builder.response_timeout(LONG).connect(&proxy.url()).await.unwrap();
    // The lease is so long that the permit is not refreshed during the test: a refresh would be
    // delayed, too.
    let lease = Duration::from_secs(8);
    let semaphore = client.semaphore("told").limit(1).lease(lease).build().unwrap();
    let waiting = tokio::spawn(semaphore.request().acquire());
    observer.sees(1, 1).await;
    proxy.requests(Flow::Hold);
    let held_up = async || proxy.held_requests();
    eventually("a heartbeat, and a ping", held_up, |held_up| *held_up == 2).await;
    holder.release().await.unwrap();
    let permit = in_time("its turn", waiting).await.unwrap().unwrap();
    let adopted = elsewhere.adopt(permit.detach()).await.unwrap();
    proxy.requests(Flow::Pass);
    observer.sees(1, 1).await;
    observer.sees(1, 0).await;
    adopted.release().await.unwrap();
}

#[tokio::test]
async fn a_try_acquire_whose_grant_expired_returns_none_and_keeps_no_permit() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let observer = Observer::new(&server.url(), "told", 4).await;
    let client = SemaphoreClient::builder().response_timeout(LONG);
    let client = client.connect(&proxy.url()).await.unwrap();
    let lease = Duration::from_secs(3);
    let semaphore = client.semaphore("told").limit(4).lease(lease).build().unwrap();
    proxy.replies(Flow::Hold);
    let trying = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.try_acquire_many(4).await }
    });
    let id = observer.sees(4, 0).await.holders[0].id.clone();
    observer.sees(0, 0).await;
    let elsewhere = SemaphoreClient::connect(&server.url()).await.unwrap();
    let holder = elsewhere.semaphore("told").limit(4).build().unwrap();
    let holder = holder.acquire_many(4).await.unwrap();
    proxy.replies(Flow::Pass);
    assert!(in_time("a reply", trying).await.unwrap().unwrap().is_none());
    holder.release().await.unwrap();
    let client = id.split(':').nth(1).unwrap();
    is_forgotten(&server, client, &id, &observer).await;
}
