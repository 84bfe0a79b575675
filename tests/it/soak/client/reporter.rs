//! The reports of a client process to the test run.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redis_semaphore::Error;
use tokio::sync::watch;
use tokio::time::sleep;

use super::super::DRAIN;
use super::super::history::{Event, What, now};

/// Precedes an event in a line of the output.
pub const MARK: &str = "event ";

pub struct Reporter {
    process: u32,
    turns: AtomicU64,
    pub ends: watch::Sender<bool>,
}

impl Reporter {
    pub fn new(process: u32) -> Arc<Self> {
        let reporter = Self { process, turns: AtomicU64::new(0), ends: watch::Sender::new(false) };
        Arc::new(reporter)
    }

    pub fn say(&self, what: What) {
        let event = Event { at: now(), process: self.process, what };
        let line = format!("\n{MARK}{}\n", serde_json::to_string(&event).unwrap());
        // The pipe is closed if the test run ended early.
        let _ = std::io::stdout().lock().write_all(line.as_bytes());
    }

    pub fn turn(&self) -> u64 {
        self.turns.fetch_add(1, Ordering::SeqCst)
    }

    pub fn says_failed(&self, turn: u64, operation: &str, error: &Error) {
        let excusable = matches!(error, Error::Unavailable { .. } | Error::Lost { .. });
        let (operation, error) = (operation.to_owned(), error.to_string());
        self.say(What::Failed { turn, operation, error, excusable });
    }

    pub fn ends(&self) -> bool {
        *self.ends.borrow()
    }

    /// Completes when requests that still wait at the end of the test run must be given up.
    pub async fn drained(&self) {
        let mut ends = self.ends.subscribe();
        ends.wait_for(|ends| *ends).await.expect("`self` owns the sender");
        sleep(DRAIN).await;
    }
}
