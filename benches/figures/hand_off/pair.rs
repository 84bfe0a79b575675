//! Handoffs of a permit from this process to a waiter in another process.

use std::sync::Arc;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use tokio::sync::Mutex;

use super::partner::Partner;
use crate::support::Result;
use crate::support::design::Design;
use crate::support::server::unique_name;

/// The other process prints a line, and then queues its request. After this time, the request is in
/// the queue.
const TIME_TO_QUEUE: Duration = Duration::from_millis(5);

/// The holder in this process, and the waiter in the other process.
pub struct Pair<D> {
    here: Arc<Mutex<D>>,
    there: Partner,
}

impl<D: Design> Pair<D> {
    pub async fn start() -> Result<Self> {
        let name = unique_name("handoff");
        let here = Arc::new(Mutex::new(D::open(&name, 1).await?));
        Ok(Self { here, there: Partner::start(D::NAME, &name)? })
    }

    /// Returns the time from a release in this process until the waiter runs.
    pub async fn hand_off(&mut self) -> Result<Duration> {
        let permit = self.here.lock().await.acquire().await?;
        self.there.asks()?;
        tokio::time::sleep(TIME_TO_QUEUE).await;
        let here = self.here.clone();
        // The call runs in a task, as in a program.
        let release = tokio::spawn(async move {
            let mut here = here.lock().await;
            let begun = now()?;
            here.release(permit).await.map(|()| begun)
        });
        let begun = release.await??;
        Ok(self.there.received()? - begun)
    }
}

/// Returns the time by the system's monotonic clock, which all processes of a machine share.
pub fn now() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_MONOTONIC)?.into())
}
