//! Tests in which an operator revokes permits and requests of other processes.

use std::time::{Duration, Instant};

use redis_semaphore::{Error, Revoked, Semaphore, SemaphoreClient};

use test_support::observer::{Observer, in_time};
use test_support::scripts::{Scripts, id};
use test_support::server::{Server, connect, shared_admin_url, shared_url, unique_name};

const LEASE: Duration = Duration::from_secs(9);

/// Returns the semaphore over a separate connection, like a semaphore in another process.
async fn semaphore(name: &str) -> Semaphore {
    let builder = SemaphoreClient::builder().heartbeat_timeout(Duration::from_millis(600));
    let client = builder.connect(&shared_url()).await.unwrap();
    client.semaphore(name).limit(1).lease(LEASE).build().unwrap()
}

async fn operator(name: &str) -> Semaphore {
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    client.semaphore(name).existing_limit().build().unwrap()
}

#[tokio::test]
async fn a_revoked_permit_goes_to_the_next_waiter_and_its_holder_loses_it() {
    let name = unique_name();
    let permit = semaphore(&name).await.acquire().await.unwrap();
    let waiting = tokio::spawn(semaphore(&name).await.request().acquire());
    let operator = operator(&name).await;
    Observer::of(operator.clone()).sees(1, 1).await;
    let deadline = Instant::now() + permit.expires_in();
    let revoked = operator.revoke(permit.id()).await.unwrap();
    assert!(matches!(revoked, Revoked::Permit { lease, .. } if lease == LEASE), "{revoked:?}");
    let next = in_time("its turn", waiting).await.unwrap().unwrap();
    in_time("the loss", permit.lost()).await;
    assert!(Instant::now() < deadline);
    // The release of the revoked permit does not affect the next permit.
    assert!(matches!(permit.release().await, Err(Error::Lost { .. })));
    let now = operator.inspect().await.unwrap();
    assert_eq!((now.held, &*now.holders[0].id), (1, next.id()));
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_revoked_request_returns_to_the_queue_only_if_its_client_is_alive() {
    let name = unique_name();
    let holder = semaphore(&name).await.acquire().await.unwrap();
    let mut scripts = Scripts::new(connect(&shared_admin_url()), &name);
    let dead = id("N", "gone", 1, 60_000, "dead");
    scripts.ok("acquire", &format!("declare_if_unset 1 60000 {dead} wait"));
    let waiting = tokio::spawn(semaphore(&name).await.request().acquire());
    let operator = operator(&name).await;
    let observer = Observer::of(operator.clone());
    let now = observer.sees(1, 2).await;
    assert_eq!(now.waiters[0].id, dead);
    assert_eq!(operator.revoke(&dead).await.unwrap(), Revoked::Request);
    let now = observer.sees(1, 1).await;
    let alive = now.waiters[0].id.clone();
    assert_eq!(operator.revoke(&alive).await.unwrap(), Revoked::Request);
    let now = observer.sees(1, 1).await;
    assert_eq!(now.waiters[0].id, alive);
    holder.release().await.unwrap();
    in_time("its turn", waiting).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn revoke_finds_nothing_for_a_released_permit() {
    let name = unique_name();
    let permit = semaphore(&name).await.acquire().await.unwrap();
    let id = permit.id().to_owned();
    permit.release().await.unwrap();
    assert_eq!(operator(&name).await.revoke(&id).await.unwrap(), Revoked::Nothing);
}

#[tokio::test]
async fn revoke_rejects_an_invalid_id_without_a_call() {
    let mut server = Server::start();
    let client = SemaphoreClient::connect(&server.url()).await.unwrap();
    let semaphore = client.semaphore("jobs").existing_limit().build().unwrap();
    // From here on, calls get no reply.
    server.kill();
    for id in ["", "*", "jobs", "P:a:1:30000:short", "P:a:0:30000:9fJ2mQ0xV7sT1bLc"] {
        let refused = semaphore.revoke(id).await.unwrap_err();
        assert!(matches!(refused, Error::Invalid { what: "id", .. }), "{id}: {refused}");
    }
    let unanswered = semaphore.revoke("P:a:1:30000:9fJ2mQ0xV7sT1bLc").await.unwrap_err();
    assert!(unanswered.to_string().contains("revoke failed for"), "{unanswered}");
}
