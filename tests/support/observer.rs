use std::time::{Duration, Instant};

use redis_semaphore::{Inspection, Permit, Semaphore, SemaphoreClient, SemaphoreClientBuilder};

/// The deadline is long enough for a busy machine. A test that passes never waits until this
/// deadline. The deadline is shorter than a default lease (30 s), as `tests/it/local/clients.rs`
/// requires. The deadline is also shorter than 25 s, the time that the 50 waits in
/// `tests/it/semaphore/background.rs` would take one after the other.
const DEADLINE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until a condition holds. At the deadline, fails with the last value.
pub async fn eventually<T: std::fmt::Debug>(
    what: &str,
    mut look: impl AsyncFnMut() -> T,
    holds: impl Fn(&T) -> bool,
) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let seen = look().await;
        if holds(&seen) {
            return seen;
        }
        assert!(Instant::now() < deadline, "not {what}: {seen:?}");
        tokio::time::sleep(PAUSE).await;
    }
}

pub async fn passed(moment: Instant) {
    eventually("later", async || Instant::now(), |now| *now > moment).await;
}

/// Waits like [`eventually`], without a runtime. The deadline is long enough to start six servers
/// on a slow machine.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE * 3;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(PAUSE);
    }
}

/// Waits for a result, and fails if the result is missing at the deadline.
pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.unwrap_or_else(|_| panic!("{what} never came"))
}

/// Connects. Repeats attempts, because a busy machine may exceed a short response timeout.
pub async fn connected(builder: SemaphoreClientBuilder, url: &str) -> SemaphoreClient {
    let connect = async || builder.clone().connect(url).await;
    eventually("connected", connect, Result::is_ok).await.unwrap()
}

/// Waits until the lease of a permit has been refreshed.
pub async fn refreshed(permit: &Permit) {
    // `end` is slightly too late. The expiry in the comparison below is slightly too early. So the
    // comparison is true only after a refresh.
    let left = permit.expires_in();
    let end = Instant::now() + left;
    let is_later = async || Instant::now() + permit.expires_in() > end;
    eventually("refreshed", is_later, |is_later| *is_later).await;
}

/// Inspects a semaphore over a separate connection.
pub struct Observer {
    semaphore: Semaphore,
}

impl Observer {
    /// Creates an observer. Use the limit of the client under test, because the newest declaration
    /// applies.
    pub async fn new(url: &str, name: &str, limit: u32) -> Self {
        let client = SemaphoreClient::connect(url).await.unwrap();
        Self::of(client.semaphore(name).limit(limit).build().unwrap())
    }

    pub fn of(semaphore: Semaphore) -> Self {
        Self { semaphore }
    }

    pub async fn look(&self) -> Inspection {
        self.semaphore.inspect().await.unwrap()
    }

    /// Waits until this weight is held and the queue has this length. Repeats failed calls, because
    /// a call to a node that has just stopped may time out.
    pub async fn sees(&self, held: u64, queued: u64) -> Inspection {
        let what = format!("{held} held and {queued} queued");
        let holds = |now: &Inspection| (now.held, now.queued) == (held, queued);
        let look = async || self.semaphore.inspect().await;
        eventually(&what, look, |now| now.as_ref().is_ok_and(holds)).await.unwrap()
    }
}
