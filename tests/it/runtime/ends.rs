//! Tests of runtimes that end while calls are under way.

use std::sync::mpsc;
use std::time::Duration;

use futures_util::FutureExt;
use redis_semaphore::{Permit, Semaphore, SemaphoreClient};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use super::{DEADLINE, OK, Scene, ended, ends, guest, one_thread, one_worker};
use test_support::observer::{Observer, eventually, in_time};
use test_support::proxy::{Flow, Proxy};
use test_support::server::{Server, shared_url, unique_name};

/// A future must not use resources of one runtime after that runtime has ended.
#[test]
fn a_wait_with_a_timeout_goes_on_in_another_runtime() {
    let home = one_worker();
    let scene = home.block_on(Scene::set(1, DEADLINE));
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

/// The I/O runtime has ended, so the runtime of one caller also makes the calls of other callers.
#[test]
fn a_call_whose_runtime_ends_does_not_affect_other_calls_under_way() {
    let faults = Runtime::new().unwrap();
    let server = Server::start();
    let (proxy, observer, name) = faults.block_on(async {
        let (proxy, name) = (Proxy::start(server.port).await, unique_name());
        let observer = Observer::new(&server.url(), &name, 5).await;
        (proxy, observer, name)
    });
    let home = one_thread();
    let (semaphore, mut permits) = home.block_on(async {
        let client = SemaphoreClient::builder().response_timeout(DEADLINE);
        let client = client.connect(&proxy.url()).await.unwrap();
        let semaphore = client.semaphore(name).limit(5).build().unwrap();
        let permits = [semaphore.acquire().await, semaphore.acquire().await];
        (semaphore, permits.map(Result::unwrap).into_iter())
    });
    drop(home);
    let (end, ends_now) = oneshot::channel::<()>();
    let (connected, is_connected) = mpsc::channel();
    let (first, second) = (permits.next().unwrap(), permits.next().unwrap());
    let (go, goes) = oneshot::channel::<()>();
    let ends_early = guest(
        one_thread,
        (semaphore, first),
        move |(semaphore, permit): (Semaphore, Permit)| async move {
            // This call opens the connection for the following calls.
            semaphore.inspect().await.unwrap();
            connected.send(()).unwrap();
            goes.await.unwrap();
            tokio::select! {
                released = permit.release() => released,
                _ = ends_now => Ok(()),
            }
        },
    );
    is_connected.recv_timeout(DEADLINE).unwrap();
    proxy.replies(Flow::Hold);
    go.send(()).unwrap();
    faults.block_on(observer.sees(1, 0));
    let goes_on = guest(one_thread, second, async |permit| permit.release().await);
    faults.block_on(observer.sees(0, 0));
    end.send(()).unwrap();
    ends("the call whose runtime ends", &ends_early, OK);
    proxy.replies(Flow::Pass);
    ends("the other one", &goes_on, OK);
}
