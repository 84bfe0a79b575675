//! A subscriber of `tracing` that panics. For example, `tracing_subscriber::fmt` panics if standard
//! output and standard error are pipes without a reader.

use std::io::{self, Write};

use redis_semaphore::SemaphoreClient;
use tracing_subscriber::filter::LevelFilter;

use crate::logs::log_here;
use test_support::observer::in_time;
use test_support::server::{shared_url, unique_name};

struct PanicsAt(&'static str);

impl Write for PanicsAt {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        assert!(!String::from_utf8_lossy(text).contains(self.0), "the subscriber panics");
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_permit_is_released_if_the_log_of_its_grant_panics() {
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let semaphore = client.semaphore(unique_name()).limit(1).build().unwrap();
    let panicking = log_here(LevelFilter::DEBUG, || PanicsAt("granted"));
    let panicked = tokio::spawn(semaphore.request().acquire()).await.unwrap_err();
    assert!(panicked.is_panic());
    drop(panicking);
    in_time("a permit", semaphore.acquire()).await.unwrap().release().await.unwrap();
}
