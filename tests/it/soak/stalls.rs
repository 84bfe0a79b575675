//! Notices when the tasks of a process do not run, because delays on an overloaded machine are not
//! an error of the semaphores.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::history::{What, now};

const LOOK: Duration = Duration::from_millis(20);
const STALL: Duration = Duration::from_millis(100);

pub fn watch(say: impl Fn(What) + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut last = now();
        loop {
            sleep(LOOK).await;
            let since = std::mem::replace(&mut last, now());
            if u128::from(last - since) > (LOOK + STALL).as_nanos() {
                say(What::Stalled { since });
            }
        }
    })
}
