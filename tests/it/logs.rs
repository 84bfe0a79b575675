//! What is logged.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis_semaphore::{Error, Semaphores};
use tracing_subscriber::util::SubscriberInitExt;

use crate::support::observer::in_time;
use crate::support::server::{shared_url, unique_name};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn losses_of(&self, id: &str) -> usize {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| line.contains("permit lost") && line.contains(id)).count()
    }
}

/// However it is found out, and also where its holder drops it at that moment.
#[tokio::test]
async fn each_loss_is_told_once() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone());
    // While there is only one subscriber, tracing asks the thread that comes to a line first whether
    // anybody wants it. In the thread of another test nobody does, and then nobody gets it.
    let _not_the_only_one = tracing_subscriber::fmt().with_writer(io::sink).finish().set_default();
    let _logged_here = subscriber.with_ansi(false).finish().set_default();
    let semaphores = Semaphores::connect(&shared_url()).await.unwrap();
    let builder = || semaphores.semaphore(unique_name()).limit(1);
    let mut lost = Vec::new();

    let unrenewed = builder().lease(Duration::from_millis(100)).auto_renew(false).build().unwrap();
    for drops in [true, false] {
        let permit = unrenewed.acquire().await.unwrap();
        lost.push(permit.id().to_owned());
        in_time("the loss", permit.lost()).await;
        match drops {
            true => drop(permit),
            false => drop(permit.into_parts()),
        }
    }
    let renewed = builder().lease(Duration::from_secs(3)).build().unwrap();
    let permit = renewed.acquire().await.unwrap();
    lost.push(permit.id().to_owned());
    renewed.revoke(permit.id()).await.unwrap();
    in_time("the next renewal", permit.lost()).await;
    assert!(matches!(permit.release().await, Err(Error::Lost { .. })));

    let permit = renewed.acquire().await.unwrap();
    lost.push(permit.id().to_owned());
    renewed.revoke(permit.id()).await.unwrap();
    assert!(matches!(permit.release().await, Err(Error::Lost { .. })));
    let sound = renewed.acquire().await.unwrap();
    let held = sound.id().to_owned();
    sound.release().await.unwrap();

    semaphores.shutdown().await;
    assert_eq!(lost.iter().map(|id| log.losses_of(id)).collect::<Vec<_>>(), [1; 4]);
    assert_eq!(log.losses_of(&held), 0);
}
