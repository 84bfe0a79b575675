//! Tests of clients that share a server in memory, and of calls that concern this server as a whole.

use std::time::Duration;

use futures_util::future::join_all;
use redis_semaphore::{Error, SemaphoreClient, Verdict};
use tokio::runtime::Builder;

use test_support::observer::{eventually, in_time};
use test_support::server::shared_url;

#[tokio::test]
async fn each_call_of_local_creates_a_server_shared_by_clones_and_processes() {
    let (one, stranger) = (SemaphoreClient::local().unwrap(), SemaphoreClient::local().unwrap());
    let other = SemaphoreClient::builder().prefix("other").local().unwrap();
    let (same, process) = (one.clone(), one.another_process().unwrap());
    let build = |of: &SemaphoreClient| of.semaphore("jobs").limit(2).build().unwrap();
    let first = build(&one).acquire().await.unwrap();
    let second = build(&process).acquire().await.unwrap();
    assert!(build(&same).try_acquire().await.unwrap().is_none());
    assert!(build(&stranger).try_acquire().await.unwrap().is_some());
    let now = build(&other.another_process().unwrap()).inspect().await.unwrap();
    assert_eq!((now.held, now.declared_limit), (0, None));
    let now = build(&same).inspect().await.unwrap();
    let [first_client, second_client] = [0, 1].map(|index| now.holders[index].client());
    assert_ne!(first_client, second_client);
    assert_eq!(now.holders[0].client_name(), now.holders[1].client_name());
    drop((first, second));
}

#[tokio::test]
async fn names_returns_the_semaphores_that_were_used_under_the_prefix() {
    let client = SemaphoreClient::builder().prefix("shop:sem").local().unwrap();
    for name in ["uploads", "a b", "exports"] {
        drop(client.semaphore(name).limit(1).build().unwrap().acquire().await.unwrap());
    }
    let looked_at = client.semaphore("unused").limit(1).build().unwrap();
    looked_at.inspect().await.unwrap();
    let found = client.names().await.unwrap();
    assert_eq!(found.names, ["a b", "exports", "uploads"]);
}

#[tokio::test]
async fn the_doctor_reports_the_in_memory_server_as_critical() {
    let diagnosis = SemaphoreClient::local().unwrap().doctor().await.unwrap();
    assert_eq!(diagnosis.worst(), Verdict::Critical);
    assert!(diagnosis.to_string().contains("only in this process"), "{diagnosis}");
}

#[test]
fn local_returns_an_error_without_a_tokio_runtime() {
    let refused = SemaphoreClient::local().unwrap_err();
    assert!(matches!(refused, Error::Invalid { what: "runtime", .. }), "{refused}");
}

#[tokio::test]
async fn a_bad_prefix_and_another_process_of_a_real_server_are_errors() {
    let refused = SemaphoreClient::builder().prefix("{").local().unwrap_err();
    assert!(matches!(refused, Error::Invalid { what: "prefix", .. }), "{refused}");
    let real = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let refused = real.another_process().unwrap_err();
    assert!(matches!(refused, Error::Invalid { what: "server", .. }), "{refused}");
}

/// Each runtime has its own clock.
#[test]
fn a_release_in_one_runtime_wakes_a_waiter_in_another_runtime() {
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let (one, other) = (runtime(), runtime());
    let client = one.block_on(async { SemaphoreClient::local().unwrap() });
    let first = client.semaphore("jobs").limit(1).build().unwrap();
    let held = one.block_on(first.acquire()).unwrap();
    let process = other.block_on(async { client.another_process().unwrap() });
    let waiting = process.semaphore("jobs").limit(1).build().unwrap();
    let turn = async move { in_time("its turn", waiting.acquire()).await.map(drop) };
    let waits = std::thread::spawn(move || other.block_on(turn));
    one.block_on(async {
        let queued = async || first.inspect().await.unwrap().queued;
        eventually("it waits", queued, |queued| *queued == 1).await;
        held.release().await.unwrap();
    });
    waits.join().unwrap().unwrap();
}

/// The dead process neither shuts down its client nor releases its request, because its runtime has
/// ended.
#[test]
fn a_waiter_whose_runtime_has_ended_is_skipped() {
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let (one, dying) = (runtime(), runtime());
    let client = one.block_on(async { SemaphoreClient::local().unwrap() });
    let process = dying.block_on(async { client.another_process().unwrap() });
    let build = |of: &SemaphoreClient| of.semaphore("jobs").limit(1).build().unwrap();
    let (semaphore, dead) = (build(&client), build(&process));
    let held = one.block_on(semaphore.acquire()).unwrap();
    let queued = async |count| {
        let queued = async || semaphore.inspect().await.unwrap().queued;
        eventually("they wait", queued, |queued| *queued == count).await;
    };
    dying.spawn(async move { dead.acquire().await.map(drop) });
    std::thread::scope(|scope| {
        let (ended, has_ended) = tokio::sync::oneshot::channel::<()>();
        scope.spawn(|| dying.block_on(has_ended));
        one.block_on(queued(1));
        drop(ended);
    });
    drop(dying);
    one.block_on(async {
        let next = tokio::spawn(semaphore.request().acquire());
        queued(2).await;
        held.release().await.unwrap();
        // The next waiter does not wait for the lease of the dead waiter.
        let next = in_time("its turn", next).await.unwrap().unwrap();
        next.release().await.unwrap();
    });
}

/// The permit stays held, as after a crash.
#[test]
fn the_end_of_a_runtime_releases_no_permit() {
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let (one, dying) = (runtime(), runtime());
    let client = one.block_on(async { SemaphoreClient::local().unwrap() });
    let process = dying.block_on(async { client.another_process().unwrap() });
    let build = |of: &SemaphoreClient| of.semaphore("jobs").limit(1).build().unwrap();
    let permit = dying.block_on(build(&process).acquire()).unwrap();
    dying.spawn(async move {
        let _permit = permit;
        std::future::pending::<()>().await;
    });
    drop(dying);
    let now = one.block_on(build(&client).inspect()).unwrap();
    assert_eq!(now.held, 1);
}

#[test]
fn the_blocking_api_supports_the_in_memory_server() {
    use redis_semaphore::blocking::SemaphoreClient;

    let client = SemaphoreClient::local().unwrap();
    let build = |of: &SemaphoreClient| of.semaphore("jobs").limit(1).build().unwrap();
    let held = build(&client).acquire().unwrap();
    let process = client.another_process().unwrap();
    let waiting = build(&process);
    let turn = move || waiting.acquire_timeout(Duration::from_secs(60))?.release();
    let waits = std::thread::spawn(turn);
    while build(&client).inspect().unwrap().queued == 0 {
        assert!(!waits.is_finished(), "the request ended without a wait");
        std::thread::yield_now();
    }
    held.release().unwrap();
    waits.join().unwrap().unwrap();
    client.shutdown().unwrap();
}

/// Each of the two processes makes more requests at the same time than fit into a batch. The
/// processes run on different threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_requests_never_hold_more_permits_than_the_limit() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    let one = SemaphoreClient::local().unwrap();
    let processes = [one.another_process().unwrap(), one];
    let inside = Arc::new(AtomicU32::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for process in processes {
        let semaphore = process.semaphore("jobs").limit(7).build().unwrap();
        let inside = inside.clone();
        tasks.spawn(async move {
            let turn = |_| async {
                let permit = semaphore.acquire().await.unwrap();
                assert!(inside.fetch_add(1, Ordering::SeqCst) < 7);
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                permit.release().await.unwrap();
            };
            join_all((0..1500).map(turn)).await;
        });
    }
    in_time("all turns", tasks.join_all()).await;
}
