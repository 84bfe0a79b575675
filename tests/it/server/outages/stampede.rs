//! Tests that many clients that lost Redis at the same moment do not reconnect at the same moment.

use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt};
use redis_semaphore::SemaphoreClient;
use tokio::net::TcpListener;
use tokio::time::timeout;

use test_support::observer::eventually;
use test_support::server::Server;

const CLIENTS: usize = 1000;
/// Each client has one connection for commands and one for messages.
const CONNECTIONS: usize = 2 * CLIENTS;
const COUNTED: Duration = Duration::from_secs(3);
const DEADLINE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn reconnects_of_a_thousand_clients_are_spread_over_time() {
    let mut server = Server::start_with(&["--maxclients", "9000", "--tcp-backlog", "4096"]);
    let url = server.url();
    let connect = async |_| {
        let builder = SemaphoreClient::builder().response_timeout(Duration::from_secs(60));
        builder.connect(&url).await.unwrap()
    };
    let connecting = stream::iter(0..CLIENTS).map(connect).buffer_unordered(20);
    let clients: Vec<SemaphoreClient> = connecting.collect().await;
    server.kill();
    let listener = TcpListener::bind(("127.0.0.1", server.port)).await.unwrap();
    let growing = attempts(&listener).await;
    assert!(growing.len() < CLIENTS * 12, "{}", growing.len());
    // After the pauses have grown, a client tries to connect every 750 ms on average. If the
    // machine stalls, attempts accumulate, so only a later period may meet the condition.
    let deadline = Instant::now() + DEADLINE;
    loop {
        let grown = attempts(&listener).await;
        assert!(grown.len() < CLIENTS * 8, "{}", grown.len());
        let tenths = tenths(&grown);
        let busy = tenths.iter().filter(|tenth| **tenth > grown.len() / 100).count();
        if grown.len() > CLIENTS / 4 && busy >= tenths.len() * 2 / 3 {
            break;
        }
        assert!(Instant::now() < deadline, "in each tenth of a second: {tenths:?}");
    }
    drop(listener);

    server.start_again();
    let mut connection = server.connect();
    let mut stat = |name: &str| -> usize {
        let info: redis::InfoDict = redis::cmd("INFO").query(&mut connection).unwrap();
        info.get(name).unwrap()
    };
    eventually("connected", async || stat("connected_clients"), |n| *n > CONNECTIONS).await;
    // Few clients have connected more often than necessary.
    let connected = stat("total_connections_received");
    assert!(connected < CONNECTIONS + CLIENTS / 2, "{connected}");
    drop(clients);
}

/// Accepts and closes connections instead of the server, and returns the times of the attempts.
async fn attempts(listener: &TcpListener) -> Vec<Duration> {
    let started = Instant::now();
    let mut attempts = Vec::new();
    while let Some(left) = COUNTED.checked_sub(started.elapsed()) {
        if let Ok(accepted) = timeout(left, listener.accept()).await {
            drop(accepted.unwrap());
            attempts.push(started.elapsed());
        }
    }
    attempts
}

fn tenths(attempts: &[Duration]) -> [usize; 30] {
    let mut tenths = [0; 30];
    for at in attempts {
        tenths[at.as_millis() as usize / 100 % 30] += 1;
    }
    tenths
}
