use std::time::{Duration, Instant};

use redis_semaphore::{Inspection, Permit, Semaphore, SemaphoreClient, SemaphoreClientBuilder};

/// Long enough for a busy machine; a test that passes never waits for it. Shorter than what must
/// not be waited for: a usual lease (`local::clients`), and 50 waits one after the other
/// (`maintenance`).
const DEADLINE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until a condition holds, and fails with what was seen last when it never does.
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

/// Waits until that moment has passed.
pub async fn passed(moment: Instant) {
    eventually("later", async || Instant::now(), |now| *now > moment).await;
}

/// The same without a runtime, for servers: a machine with little to spare takes its time for six.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE * 3;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(PAUSE);
    }
}

/// Waits for what must come, and fails when it never does.
pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.unwrap_or_else(|_| panic!("{what} never came"))
}

/// Connects with a response timeout that a busy machine may not meet at once.
pub async fn connected(builder: SemaphoreClientBuilder, url: &str) -> SemaphoreClient {
    let connect = async || builder.clone().connect(url).await;
    eventually("connected", connect, Result::is_ok).await.unwrap()
}

/// Waits until the lease of a permit has begun anew.
pub async fn renewed(permit: &Permit) {
    // Taken for a little later than it is, and then for a little earlier.
    let left = permit.expires_in();
    let end = Instant::now() + left;
    let is_later = async || Instant::now() + permit.expires_in() > end;
    eventually("renewed", is_later, |is_later| *is_later).await;
}

/// Looks at a semaphore over a connection of its own.
pub struct Observer {
    semaphore: Semaphore,
}

impl Observer {
    /// The limit is that of the client under test: the newest declaration counts.
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

    /// Waits for this held weight and this length of the queue, and for a server that answers: a
    /// node that has just gone silent may cost one call all its time.
    pub async fn sees(&self, held: u64, queued: u64) -> Inspection {
        let what = format!("{held} held and {queued} queued");
        let holds = |now: &Inspection| (now.held, now.queued) == (held, queued);
        let look = async || self.semaphore.inspect().await;
        eventually(&what, look, |now| now.as_ref().is_ok_and(holds)).await.unwrap()
    }
}
