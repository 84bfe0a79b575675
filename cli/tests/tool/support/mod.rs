pub mod process;
pub mod server;
pub mod tool;

use std::thread;
use std::time::{Duration, Instant};

/// The longest wait of a test, even on a busy machine. A test that passes never waits this long.
pub const DEADLINE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(5);

pub fn unique_name() -> String {
    test_support::server::unique_name()
}

/// Waits until `look` returns a value.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "{what} never came");
        thread::sleep(PAUSE);
    }
}

/// Waits like [`eventually`] while other tasks run.
pub async fn eventually_async<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(Instant::now() < deadline, "{what} never came");
        tokio::time::sleep(PAUSE).await;
    }
}
