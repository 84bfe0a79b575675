//! What the tests share.

pub mod process;
pub mod server;
pub mod tool;

use std::thread;
use std::time::{Duration, Instant};

/// Long enough for a busy machine; a test that passes never waits for it.
pub const DEADLINE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(5);

/// A name that no other test uses.
pub fn unique_name() -> String {
    test_support::server::unique_name()
}

/// Waits for what must come.
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

/// The same where other tasks must go on meanwhile.
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
