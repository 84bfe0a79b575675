//! Tests of the results of inspections.

use std::time::Duration;

use futures_util::future::try_join_all;
use redis_semaphore::SemaphoreClient;

use test_support::observer::{Observer, in_time};
use test_support::server::{connect, shared_admin_url, shared_url, unique_name};

const CHANGES: usize = 100;

/// Each change of the limit stores an idempotency key for some time.
#[tokio::test]
async fn idempotency_keys_are_not_listed_as_holders() {
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let semaphore = client.semaphore(unique_name()).limit(2).build().unwrap();
    let permit = semaphore.acquire().await.unwrap();
    let changes = (0..CHANGES).map(|_| semaphore.add_permits(1));
    in_time("all changes", try_join_all(changes)).await.unwrap();
    let now = semaphore.inspect().await.unwrap();
    assert_eq!((now.limit as usize, now.held), (2 + CHANGES, 1));
    let holders: Vec<&str> = now.holders.iter().map(|holder| holder.id.as_str()).collect();
    assert_eq!(holders, [permit.id()]);
    assert_eq!(semaphore.inspect_range(1..9, 0..0).await.unwrap().holders.len(), 0);
    assert_eq!(semaphore.inspect_range(0..0, 0..0).await.unwrap().holders.len(), 0);
    let all = semaphore.inspect_range(0..u64::MAX, 0..9).await.unwrap();
    assert_eq!(all.holders[0].id, permit.id());
    permit.release().await.unwrap();
    semaphore.clear_limit().await.unwrap();
}

#[tokio::test]
async fn a_waiter_counts_as_alive_for_its_clients_heartbeat_timeout() {
    let (url, name) = (shared_url(), unique_name());
    let heartbeat_timeout = Duration::from_secs(600);
    let client = SemaphoreClient::builder()
        .client_name("patient")
        .heartbeat_timeout(heartbeat_timeout)
        .connect(&url);
    let client = client.await.unwrap();
    let semaphore = client.semaphore(&name).limit(2).build().unwrap();
    let holder = semaphore.acquire_many(2).await.unwrap();
    let waiting = tokio::spawn(semaphore.request().weight(2).acquire());
    let now = Observer::new(&url, &name, 2).await.sees(2, 1).await;
    let waiter = &now.waiters[0];
    assert_eq!((waiter.client_name(), waiter.weight, waiter.position), ("patient", 2, 1));
    assert_eq!(waiter.client(), now.holders[0].client());
    let left = waiter.alive_for.expect("it is there");
    assert!(left > heartbeat_timeout / 2 && left <= heartbeat_timeout, "{left:?}");
    holder.release().await.unwrap();
    in_time("its turn", waiting).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_foreign_member_of_the_permits_key_is_not_listed_as_a_holder() {
    let (url, name) = (shared_url(), unique_name());
    let observer = Observer::new(&url, &name, 2).await;
    let mut connection = connect(&shared_admin_url());
    let permits = format!("sem:{{{name}}}:permits");
    let far = 9_000_000_000_000_i64;
    redis::cmd("ZADD").arg(&permits).arg(far).arg(b"other:\xff").exec(&mut connection).unwrap();
    let now = observer.look().await;
    assert!(now.holders.is_empty(), "{now:?}");
    redis::cmd("DEL").arg(&permits).exec(&mut connection).unwrap();
}
