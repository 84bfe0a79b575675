//! What the tests share.

pub mod exporter;
pub mod metrics;
pub mod process;
pub mod server;

use std::time::{Duration, Instant};

/// Long enough for a busy machine; a test that passes never waits for it.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Waits for what must come.
pub async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(Instant::now() < deadline, "{what} never came");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
