//! Tests of runtimes that end while calls are under way.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use redis_semaphore::{Error, Permit, SemaphoreClient};

use super::{DEADLINE, Scene, ended, one_thread, one_worker};
use test_support::observer::{Observer, eventually, in_time};
use test_support::server::{shared_url, unique_name};

/// A future must not use resources of one runtime after that runtime has ended.
#[test]
fn a_wait_with_a_timeout_goes_on_in_another_runtime() {
    let home = one_worker();
    let scene = home.block_on(Scene::set(1));
    let (first, second) = (one_thread(), one_thread());
    let mut wait = Box::pin(scene.semaphore.acquire_timeout(Duration::from_secs(3)));
    first.block_on(async {
        let queued = async || scene.semaphore.inspect().await.unwrap().queued;
        tokio::select! {
            _ = &mut wait => panic!("no permit is free"),
            _ = eventually("it is queued", queued, |queued| *queued == 1) => {}
        }
    });
    drop(first);
    let failed = second.block_on(wait).map(drop);
    assert_eq!(ended(&failed), "Timeout", "{failed:?}");
}

#[test]
fn waiting_for_the_loss_of_a_permit_continues_in_another_runtime() {
    let home = one_worker();
    let lease = Duration::from_millis(300);
    let permit = home.block_on(async {
        let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
        let semaphore = client.semaphore(unique_name()).limit(1).lease(lease);
        semaphore.auto_refresh(false).build().unwrap().acquire().await.unwrap()
    });
    let (first, second) = (one_thread(), one_thread());
    let mut lost = Box::pin(permit.lost());
    // The permit may be lost already, if the machine was suspended or too busy.
    let is_lost = first.block_on(async { (&mut lost).now_or_never().is_some() });
    drop((first, home));
    if !is_lost {
        second.block_on(in_time("the loss", lost));
    }
    assert!(permit.is_lost());
}

/// A supervisor would kill a program that takes long to end. Then no permit would be released.
#[test]
fn a_runtime_with_thousands_of_semaphores_ends_quickly() {
    for home in [one_thread(), one_worker()] {
        home.block_on(async {
            let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
            let acquires = (0..6000).map(|_| {
                let semaphore = client.semaphore(unique_name()).limit(1).build().unwrap();
                async move { semaphore.acquire().await.unwrap() }
            });
            drop(join_all(acquires).await);
        });
        let (ends, has_ended) = mpsc::channel();
        thread::spawn(move || {
            drop(home);
            ends.send(()).expect("the test waits for it");
        });
        has_ended.recv_timeout(DEADLINE).expect("the runtime ends");
    }
}

/// The timer of the I/O runtime ends with the I/O runtime.
#[test]
fn waiting_for_a_loss_that_began_in_the_io_runtime_continues_after_its_end() {
    let home = one_worker();
    let scene = home.block_on(Scene::set(1));
    let permit = scene.permit();
    let mut lost = Box::pin(permit.lost());
    let is_lost = home.block_on(async { (&mut lost).now_or_never().is_some() });
    assert!(!is_lost, "the lease has just begun");
    drop(home);
    one_thread().block_on(in_time("the loss", lost));
    assert!(permit.is_lost());
}

/// Dropping a permit does not wait for the release, wherever the permit is dropped.
#[test]
fn a_permit_that_is_dropped_after_the_io_runtime_has_ended_is_released() {
    let home = one_worker();
    let scene = home.block_on(Scene::set(1));
    let permit = scene.permit();
    drop(home);
    drop(permit);
    one_thread().block_on(async {
        let observer = Observer::new(&shared_url(), scene.semaphore.name(), 1).await;
        observer.sees(0, 0).await;
    });
}

/// A task may release its permit in a `Drop`, and wait for the release.
#[test]
fn a_release_awaited_while_the_io_runtime_ends_returns_an_error() {
    struct Guard(Option<Permit>, mpsc::Sender<Result<(), Error>>);
    impl Drop for Guard {
        fn drop(&mut self) {
            let release = self.0.take().unwrap().release();
            // The receiver waits for this result.
            let _ = self.1.send(futures_util::FutureExt::now_or_never(release).unwrap());
        }
    }
    let home = one_worker();
    let (released, is_released) = mpsc::channel();
    home.block_on(async {
        let scene = Scene::set(1).await;
        let guard = Guard(Some(scene.permit()), released);
        tokio::spawn(async move {
            let _guard = guard;
            std::future::pending::<()>().await;
        });
        tokio::task::yield_now().await;
    });
    drop(home);
    let result = is_released.recv_timeout(DEADLINE).unwrap();
    assert!(matches!(result, Err(Error::Shutdown)), "{result:?}");
}
