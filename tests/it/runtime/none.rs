//! Tests of calls outside any runtime.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use redis_semaphore::{Error, Permit, SemaphoreClient};

use super::{CALLS, DEADLINE, END, Ending, Home, OK, Scene};
use super::{doctor, ends, one_worker, served, shutdown};
use test_support::server::{shared_url, unique_name};

/// Polls a future in a thread without a runtime.
fn alone<T: Send + 'static>(
    with: T,
    call: impl FnOnce(T) -> BoxFuture<'static, Result<(), Error>> + Send + 'static,
) -> Ending {
    let (ended, ending) = mpsc::channel();
    thread::spawn(move || ended.send(block_on(call(with))));
    ending
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn calls_outside_any_runtime_are_served() {
    let (scene, guard, waits) = Scene::at(Home::Runs);
    for (name, call) in CALLS.into_iter().filter(|(name, _)| *name != "acquire") {
        ends(name, &alone(scene.clone(), call), served(name));
    }
    ends("a wait", &waits, OK);
    ends("acquire", &alone(scene.clone(), CALLS[1].1), OK);
    ends("doctor", &alone(scene.clone(), doctor), OK);
    ends("shutdown", &alone(scene, shutdown), OK);
    drop(guard);
}

#[test]
fn calls_outside_any_runtime_end_after_the_io_runtime_has_ended() {
    let (scene, _, waits) = Scene::at(Home::Gone);
    ends("a wait", &waits, END);
    for (name, call) in CALLS {
        ends(name, &alone(scene.clone(), call), END);
    }
    ends("doctor", &alone(scene.clone(), doctor), END);
    ends("shutdown", &alone(scene, shutdown), OK);
}

async fn permit_of(lease: Duration) -> Permit {
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let semaphore = client.semaphore(unique_name()).limit(1).lease(lease).auto_refresh(false);
    semaphore.build().unwrap().acquire().await.unwrap()
}

type Watches = fn(Permit) -> BoxFuture<'static, Result<(), Error>>;

/// `Permit::lost` and `PermitWatch::ended`, which both wait for the end of a permit.
const WATCHES: [(&str, Watches); 2] =
    [("lost", |permit| lost(permit).boxed()), ("a watch", |permit| watched(permit).boxed())];

async fn lost(permit: Permit) -> Result<(), Error> {
    permit.lost().await;
    assert!(permit.is_lost() && permit.expires_in().is_zero());
    Ok(())
}

async fn watched(permit: Permit) -> Result<(), Error> {
    let watch = permit.watch();
    watch.ended().await;
    assert!(watch.is_lost() && !watch.is_held());
    Ok(())
}

#[test]
fn a_loss_is_reported_outside_any_runtime() {
    let home = one_worker();
    for (what, watches) in WATCHES {
        let permit = home.block_on(permit_of(Duration::from_millis(300)));
        ends(what, &alone(permit, watches), OK);
    }
}

/// After the I/O runtime has ended, no task refreshes the permit, and no timer measures the lease.
/// So the permit is lost immediately, long before its lease expires.
#[test]
fn a_permit_is_lost_outside_any_runtime_after_the_io_runtime_has_ended() {
    for (what, watches) in WATCHES {
        let permit = one_worker().block_on(permit_of(DEADLINE * 10));
        ends(what, &alone(permit, watches), OK);
        // The I/O runtime may also end during the wait.
        let home = one_worker();
        let permit = home.block_on(permit_of(DEADLINE * 10));
        let (waits, is_waiting) = mpsc::channel();
        let reported = alone(permit, move |permit| {
            let mut watching = watches(permit);
            poll_fn(move |cx| {
                let reported = watching.as_mut().poll(cx);
                // The receiver waits only for the first poll.
                let _ = waits.send(());
                reported
            })
            .boxed()
        });
        is_waiting.recv_timeout(DEADLINE).unwrap();
        drop(home);
        ends(what, &reported, OK);
    }
}

#[test]
fn connecting_outside_any_runtime_reports_the_missing_runtime() {
    let url = shared_url();
    let builder = SemaphoreClient::builder;
    for refused in [
        block_on(SemaphoreClient::connect(&url)),
        block_on(builder().connect_client(redis::Client::open(&*url).unwrap())),
        block_on(builder().connect_primary_of([&*url])),
        block_on(builder().connect_cluster([&*url])),
    ] {
        match refused {
            Err(Error::Invalid { what: "runtime", reason, .. }) => {
                assert!(reason.contains("tokio"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
}
