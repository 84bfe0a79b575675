//! Outside any runtime.

use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use futures_util::future::BoxFuture;
use redis_semaphore::{Error, Semaphores};

use super::{CALLS, END, Ending, Home, OK, Scene, doctor, ends, shutdown};
use crate::support::server::shared_url;

/// Polls in a thread without a runtime.
fn alone<T: Send + 'static>(
    with: T,
    call: impl FnOnce(T) -> BoxFuture<'static, Result<(), Error>> + Send + 'static,
) -> Ending {
    let (ended, ending) = mpsc::channel();
    thread::spawn(move || ended.send(block_on(call(with))));
    ending
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
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
    for (name, call, ..) in CALLS {
        // All permits are taken at first.
        let wanted = match name {
            "acquire" => continue,
            "acquire_timeout" => "Timeout",
            _ => OK,
        };
        ends(name, &alone(scene.clone(), call), wanted);
    }
    ends("a wait", &waits, OK);
    ends("acquire", &alone(scene.clone(), CALLS[1].1), OK);
    ends("doctor", &alone(scene.clone(), doctor), OK);
    ends("shutdown", &alone(scene, shutdown), OK);
    drop(guard);
}

#[test]
fn calls_outside_any_runtime_end_when_that_of_the_connection_has_ended() {
    let (scene, _, waits) = Scene::at(Home::Gone);
    ends("a wait", &waits, END);
    for (name, call, ..) in CALLS {
        ends(name, &alone(scene.clone(), call), END);
    }
    ends("doctor", &alone(scene.clone(), doctor), END);
    ends("shutdown", &alone(scene, shutdown), OK);
}

#[test]
fn connecting_outside_any_runtime_says_what_is_lacking() {
    let url = shared_url();
    let builder = Semaphores::builder;
    for refused in [
        block_on(Semaphores::connect(&url)),
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
