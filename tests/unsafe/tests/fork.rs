//! Tests in which a process forks while it is connected. The child has a copy of its parent's
//! memory, but neither its connections nor its threads.

use std::fs::File;
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, alarm, fork, pipe};
use redis_semaphore::{Error, SemaphoreClient, blocking};
use test_support::server::{shared_url, unique_name};
use tokio::runtime::{Builder, Runtime};

/// The time after which an alarm ends the child. A failing call takes much less, even on a busy
/// machine.
const SECONDS: u32 = 60;
/// Calls in the child must not wait for this timeout. The alarm would end such a wait.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Runs `work` in a forked child, and returns its result. If the child hangs, the alarm ends it.
fn in_a_child(work: impl FnOnce() -> String) -> String {
    let (from_child, to_parent) = pipe().unwrap();
    // SAFETY: the C library makes its own locks usable in the child. This test checks the locks of
    // the library under test.
    let child = match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            alarm::set(SECONDS);
            let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or("it panicked".to_owned());
            let written = File::from(to_parent).write_all(done.as_bytes());
            // SAFETY: `_exit` only ends the process.
            unsafe { nix::libc::_exit(i32::from(written.is_err())) }
        }
        ForkResult::Parent { child } => child,
    };
    drop(to_parent);
    let mut said = String::new();
    File::from(from_child).read_to_string(&mut said).unwrap();
    assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0), "it hung: {said}");
    said
}

/// Describes what is wrong with the result of a call, or returns `None`.
fn wrong<T>(call: &str, outcome: Result<T, Error>) -> Option<String> {
    match outcome {
        Err(Error::Invalid { what: "process", .. }) => None,
        Err(error) => Some(format!("{call}: {error}\n")),
        Ok(_) => Some(format!("{call} worked\n")),
    }
}

#[test]
fn each_blocking_call_fails_immediately_in_a_forked_child() {
    let (url, name) = (shared_url(), unique_name());
    let settings = SemaphoreClient::builder().response_timeout(PATIENCE);
    let client = blocking::SemaphoreClient::connect_with(settings.connect(&url)).unwrap();
    let semaphore = client.semaphore(&name).limit(3).build().unwrap();
    let [first, second, third] = [(); 3].map(|()| semaphore.acquire().unwrap());
    let (detached, id) = (third.detach(), first.id().to_owned());
    let its = (client.clone(), semaphore.clone());
    // The parent holds the permits, and the child gets copies of the values.
    let permits = std::cell::RefCell::new(Some((first, second)));
    let said = in_a_child(|| {
        let (client, semaphore) = its;
        let (first, second) = permits.take().unwrap();
        let request = || semaphore.request();
        let all = [
            wrong("acquire", semaphore.acquire()),
            wrong("acquire_many", semaphore.acquire_many(2)),
            wrong("acquire_timeout", semaphore.acquire_timeout(Duration::from_secs(2))),
            wrong("try_acquire", semaphore.try_acquire()),
            wrong("try_acquire_many", semaphore.try_acquire_many(2)),
            wrong("request", request().acquire()),
            wrong("request for a try", request().try_acquire()),
            wrong("acquire_all", blocking::acquire_all([request()])),
            wrong("available_permits", semaphore.available_permits()),
            wrong("inspect", semaphore.inspect()),
            wrong("limit", semaphore.limit()),
            wrong("set_limit", semaphore.set_limit(1)),
            wrong("wake", semaphore.wake()),
            wrong("revoke", semaphore.revoke(&id)),
            wrong("adopt", semaphore.adopt(detached.clone())),
            wrong("names", client.names()),
            wrong("doctor", client.doctor()),
            wrong("refresh", first.refresh()),
            wrong("lost", first.lost()),
            wrong("lost_timeout", first.lost_timeout(Duration::from_secs(2))),
            wrong("release", first.release()),
            wrong("shutdown", client.shutdown()),
        ];
        drop((second, semaphore, client));
        // The child may create its own client.
        let its = blocking::SemaphoreClient::connect(&url).unwrap();
        let held = its.semaphore(&name).limit(3).build().unwrap().inspect().unwrap().held;
        assert_eq!(held, 3, "the parent's permits");
        all.into_iter().flatten().collect()
    });
    assert_eq!(said, "");
    let (first, second) = permits.take().unwrap();
    first.refresh().unwrap();
    first.release().unwrap();
    second.release().unwrap();
}

async fn fails_at_once(
    client: SemaphoreClient,
    semaphore: redis_semaphore::Semaphore,
    permit: redis_semaphore::Permit,
    watch: redis_semaphore::PermitWatch,
) -> String {
    // These waits must end, although the timers of the parent's runtime no longer run.
    permit.lost().await;
    watch.ended().await;
    let all = [
        wrong("acquire", semaphore.acquire().await),
        wrong("acquire_timeout", semaphore.acquire_timeout(Duration::from_secs(2)).await),
        wrong("try_acquire", semaphore.try_acquire().await),
        wrong("request", semaphore.request().acquire().await),
        wrong("acquire_all", redis_semaphore::acquire_all([semaphore.request()]).await),
        wrong("inspect", semaphore.inspect().await),
        wrong("set_limit", semaphore.set_limit(5).await),
        wrong("names", client.names().await),
        wrong("doctor", client.doctor().await),
        wrong("refresh", permit.refresh().await),
        wrong("release", permit.release().await),
    ];
    client.shutdown().await;
    all.into_iter().flatten().collect()
}

/// The calls use a new runtime, and also the parent's runtime if the forking thread can drive it.
#[test]
fn each_async_call_fails_immediately_in_a_forked_child() {
    for is_of_one_thread in [true, false] {
        let runtime = match is_of_one_thread {
            true => Builder::new_current_thread().enable_all().build().unwrap(),
            false => Runtime::new().unwrap(),
        };
        let (client, semaphore, permits) = runtime.block_on(async {
            let settings = SemaphoreClient::builder().response_timeout(PATIENCE);
            let client = settings.connect(&shared_url()).await.unwrap();
            let semaphore = client.semaphore(unique_name()).limit(2).build().unwrap();
            let permits = [semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap()];
            (client, semaphore, permits)
        });
        let watch = permits[0].watch();
        let permits = std::cell::RefCell::new(Some(permits));
        let said = in_a_child(|| {
            let [first, second] = permits.take().unwrap();
            let calls = fails_at_once(client.clone(), semaphore.clone(), first, watch);
            let said = match is_of_one_thread {
                true => runtime.block_on(calls),
                false => Runtime::new().unwrap().block_on(calls),
            };
            drop(second);
            said
        });
        assert_eq!(said, "");
        let [first, second] = permits.take().unwrap();
        runtime.block_on(async {
            assert_eq!(semaphore.inspect().await.unwrap().held, 2);
            first.release().await.unwrap();
            second.release().await.unwrap();
        });
    }
}
