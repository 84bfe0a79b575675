//! Reports that take much time and memory. All processes together create at most three at the same
//! time.
//!
//! ```text
//! scripts/with-redis cargo run --example axum
//! ```
//!
//! A fourth request waits for a permit for up to five seconds. If the wait times out, the response
//! has the status 503.

use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use redis_semaphore::SemaphoreClient;
use redis_semaphore::tower::SemaphoreLayer;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().len() > 1 {
        println!("Usage: axum\n\nServes /report at a free port, with the semaphores of REDIS_URL");
        return Ok(());
    }
    let url = std::env::var("REDIS_URL").unwrap_or("redis://127.0.0.1/".to_owned());
    let client = SemaphoreClient::connect(&url).await?;
    let patience = Duration::from_secs(5);
    let reports = client.semaphore("reports").limit(3).acquire_timeout(patience).build()?;

    let layer = SemaphoreLayer::new(reports.clone()).max_waiting(100);
    let app = Router::new().route("/report", get(report)).route_layer(layer);

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("curl http://{}/report", listener.local_addr()?);
    let end = async move {
        interrupted().await;
        // Waiting requests end, and active requests keep their permits.
        reports.close();
    };
    axum::serve(listener, app).with_graceful_shutdown(end).await?;
    client.shutdown().await;
    Ok(())
}

async fn report() -> String {
    tokio::time::sleep(Duration::from_secs(1)).await;
    "a thousand pages\n".to_owned()
}

/// Completes when the process gets ^C or a signal to end. Remove the process from the load balancer
/// before that: a connection that the server has not accepted yet is closed without a response.
async fn interrupted() {
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = terminated() => {}
    }
}

#[cfg(unix)]
async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};

    match signal(SignalKind::terminate()) {
        Ok(mut signals) => _ = signals.recv().await,
        Err(_) => std::future::pending().await,
    }
}

/// Never completes. On systems without signals, only ^C ends the service.
#[cfg(not(unix))]
async fn terminated() {
    std::future::pending().await
}
