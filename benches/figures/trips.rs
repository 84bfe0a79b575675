//! N8: the number of round trips until the first permit, over a network whose round trips take much
//! longer than any work of clients and server. The handshake of TCP is not included.

use std::time::{Duration, Instant};

use redis_semaphore::SemaphoreClient;

use crate::network::steady_network;
use crate::support::Result;
use crate::support::figure::Figure;
use crate::support::rounds::{median, rounds_of};
use crate::support::server::unique_name;

const ROUNDS: usize = 5;
const ONE_WAY: Duration = Duration::from_millis(50);
/// One round trip for the first commands of redis-rs, and one for the acquire.
const LEAST_WITH_CONNECT: f64 = 2.0;
/// One more round trip than the least. In this round trip, the client subscribes to messages and
/// checks whether the server can be used.
const ACHIEVABLE_WITH_CONNECT: f64 = 3.0;
/// One round trip is enough, because the first request contains the semaphore and its limit.
const LEAST: f64 = 1.0;

pub async fn n8() -> Result<Vec<Figure>> {
    let (_network, client) = steady_network(ONE_WAY)?;
    let (mut from_connect, mut from_new) = (Vec::new(), Vec::new());
    for _ in 0..rounds_of(ROUNDS) {
        let connecting = Instant::now();
        let semaphores = SemaphoreClient::builder().connect_client(client.clone()).await?;
        from_connect.push(trips_to_permit(&semaphores, connecting).await?);
        from_new.push(trips_to_permit(&semaphores, Instant::now()).await?);
        semaphores.shutdown().await;
    }
    let figure = |id, what, least, counted: &mut [f64]| {
        Figure::new(id, what, "trips", (least, median(counted)))
    };
    let what = "round trips: connect to first permit";
    let connect = figure("N8", what, LEAST_WITH_CONNECT, &mut from_connect);
    let new = figure("N8a", "round trips: new semaphore to first permit", LEAST, &mut from_new);
    Ok(vec![connect.value_at_most(ACHIEVABLE_WITH_CONNECT), new.value_at_most(LEAST)])
}

/// Returns the number of round trips since `start` when a new semaphore grants its first permit.
async fn trips_to_permit(semaphores: &SemaphoreClient, start: Instant) -> Result<f64> {
    let semaphore = semaphores.semaphore(unique_name("n8")).limit(10).build()?;
    let permit = semaphore.acquire().await?;
    let trips = start.elapsed().as_secs_f64() / (2 * ONE_WAY).as_secs_f64();
    permit.release().await?;
    Ok(trips.floor())
}
