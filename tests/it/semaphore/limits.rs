//! Tests of limits, as seen by a process that has used a semaphore for a long time.

use redis_semaphore::{Error, Semaphore, SemaphoreClient};

use test_support::observer::{Observer, in_time};
use test_support::server::{Server, connect, shared_admin_url, shared_url, unique_name};

async fn use_once(semaphore: &Semaphore) {
    semaphore.acquire().await.unwrap().release().await.unwrap();
}

/// The server deletes the limit of an unused semaphore more than two hours after the last lease.
#[tokio::test]
async fn add_permits_adds_to_the_declared_limit_after_the_server_has_deleted_it() {
    let server = Server::start();
    let client = SemaphoreClient::connect(&server.url()).await.unwrap();
    let semaphore = client.semaphore("jobs").limit(4).build().unwrap();
    use_once(&semaphore).await;
    server.clock.run_ahead_by(3 * 3600 * 1_000_000);
    assert_eq!(semaphore.add_permits(1).await.unwrap(), 5);
    assert_eq!(semaphore.clear_limit().await.unwrap(), 4);
    server.clock.run_ahead_by(6 * 3600 * 1_000_000);
    assert_eq!(semaphore.set_limit(9).await.unwrap(), 4);
    assert_eq!(semaphore.clear_limit().await.unwrap(), 4);
}

#[tokio::test]
async fn a_limit_beyond_the_maximum_is_rejected() {
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let semaphore = client.semaphore(unique_name()).limit(2).build().unwrap();
    match semaphore.add_permits(u32::MAX - 1).await {
        Err(Error::Invalid { what: "n", reason, .. }) => {
            assert!(reason.contains("would exceed 4294967295"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(semaphore.limit().await.unwrap(), 2);
}

#[tokio::test]
async fn a_newer_declared_limit_is_kept_when_an_older_client_adds_permits() {
    let (url, name) = (shared_url(), unique_name());
    let build = async |limit| {
        let client = SemaphoreClient::connect(&url).await.unwrap();
        client.semaphore(&name).limit(limit).build().unwrap()
    };
    let (older, newer) = (build(3).await, build(5).await);
    use_once(&older).await;
    use_once(&newer).await;
    assert_eq!(older.add_permits(1).await.unwrap(), 6);
    assert_eq!(older.clear_limit().await.unwrap(), 5);
}

#[tokio::test]
async fn initial_permits_apply_again_after_the_limit_is_cleared() {
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let semaphore = client.semaphore(unique_name()).initial_permits(5).build().unwrap();
    use_once(&semaphore).await;
    assert_eq!(semaphore.add_permits(2).await.unwrap(), 7);
    assert_eq!(semaphore.clear_limit().await.unwrap(), 0);
    assert_eq!(semaphore.add_permits(1).await.unwrap(), 6);
    semaphore.clear_limit().await.unwrap();
}

#[tokio::test]
async fn existing_limit_uses_the_effective_limit_and_declares_none() {
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let name = unique_name();
    let service = client.semaphore(&name).limit(3).build().unwrap();
    use_once(&service).await;
    let job = client.semaphore(&name).existing_limit().build().unwrap();
    let permit = job.acquire_many(2).await.unwrap();
    assert!(job.request().weight(2).try_acquire().await.unwrap().is_none());
    let too_heavy = job.acquire_many(4).await.unwrap_err();
    assert!(matches!(too_heavy, Error::TooHeavy { weight: 4, limit: 3, .. }), "{too_heavy}");
    let now = job.inspect().await.unwrap();
    assert_eq!((now.limit, now.declared_limit, now.runtime_limit), (3, Some(3), None));
    permit.release().await.unwrap();
    assert_eq!(job.set_limit(5).await.unwrap(), 3);
    job.acquire_many(5).await.unwrap().release().await.unwrap();
    assert_eq!(job.clear_limit().await.unwrap(), 3);
}

#[tokio::test]
async fn existing_limit_fails_without_any_limit_and_writes_no_keys() {
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let name = unique_name();
    let job = client.semaphore(&name).existing_limit().build().unwrap();
    let refused = [
        in_time("the acquire", job.acquire()).await.map(drop).unwrap_err(),
        in_time("the try", job.try_acquire()).await.map(drop).unwrap_err(),
    ];
    for error in refused {
        assert!(matches!(error, Error::NoLimit { .. }), "{error:?}");
        assert_eq!(
            error.to_string(),
            format!("semaphore {name}: no limit exists: declare one, or set a runtime limit")
        );
    }
    let keys: Vec<String> = redis::cmd("KEYS")
        .arg(format!("sem:{{{name}}}:*"))
        .query(&mut connect(&shared_admin_url()))
        .unwrap();
    assert!(keys.is_empty(), "{keys:?}");
    assert_eq!(job.limit().await.unwrap(), 0);
    assert_eq!(job.set_limit(0).await.unwrap(), 0);
    assert!(job.try_acquire().await.unwrap().is_none());
    assert_eq!(job.clear_limit().await.unwrap(), 0);
}

/// The waiter's client declares no limit, and the restarted server no longer knows a limit.
#[tokio::test]
async fn a_wait_with_existing_limit_fails_after_the_server_restarts_empty() {
    let mut server = Server::start();
    let client = SemaphoreClient::connect(&server.url()).await.unwrap();
    let job = client.semaphore("jobs").existing_limit().build().unwrap();
    job.set_limit(1).await.unwrap();
    let permit = job.acquire().await.unwrap();
    let waiting = tokio::spawn(job.request().acquire());
    Observer::of(job.clone()).sees(1, 1).await;
    server.restart_empty();
    let ended = in_time("the end of the wait", waiting).await.unwrap();
    assert!(matches!(ended, Err(Error::NoLimit { .. })), "{ended:?}");
    drop(permit);
}
