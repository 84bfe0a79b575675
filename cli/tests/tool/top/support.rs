//! The CLI in a terminal, and the text that it must show.

use std::time::Duration;

use redis_semaphore::Semaphore;

use super::pane::Pane;
use crate::support::server::{Server, until_queued};
use crate::support::tool::TOOL;

/// Returns the command line of `top` with a short interval.
pub fn top(server: &Server) -> String {
    format!("{TOOL} --url {} top --every 100ms", server.url)
}

pub fn watch(server: &Server) -> Pane {
    Pane::start(&top(server))
}

/// Starts a task that waits for a permit, and then holds it until the test ends. Returns when the
/// request of the task is queued.
pub async fn queue(semaphore: &Semaphore, ahead: Duration) {
    let before = semaphore.inspect().await.unwrap().queued;
    let request = semaphore.request().head_start(ahead).acquire();
    tokio::spawn(async {
        let _permit = request.await;
        std::future::pending::<()>().await;
    });
    until_queued(semaphore, before + 1).await;
}
