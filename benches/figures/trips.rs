//! N8: the number of round trips until the first permit. They are counted, not timed. The
//! handshakes of TCP and TLS are not included.

use std::time::Duration;

use redis_semaphore::SemaphoreClient;

use crate::support::Result;
use crate::support::figure::{Better, Figure};
use crate::support::network::{Network, Way};
use crate::support::rounds::{median, rounds_of};
use crate::support::server::{unique_name, url};

const ROUNDS: usize = 5;
/// The delay in one direction. It is longer than any work of clients and server between two round
/// trips.
const ONE_WAY: Duration = Duration::from_millis(20);
/// One round trip for the first commands of redis-rs, and one for the acquire.
const LEAST_WITH_CONNECT: f64 = 2.0;
/// One more round trip than the least. In this round trip, the client subscribes to messages and
/// checks whether the server can be used.
const ACHIEVABLE_WITH_CONNECT: f64 = 3.0;
/// One round trip is enough, because the first request contains the semaphore and its limit.
const LEAST: f64 = 1.0;

pub async fn n8() -> Result<Vec<Figure>> {
    let network = Network::to(url()?, Way::of(ONE_WAY))?;
    let (mut from_connect, mut from_new) = (Vec::new(), Vec::new());
    for _ in 0..rounds_of(ROUNDS) {
        let connecting = network.round_trips();
        let semaphores = SemaphoreClient::builder().connect_client(network.client()?).await?;
        from_connect.push(first_permit(&network, &semaphores).await? - connecting);
        let idle = network.round_trips();
        from_new.push(first_permit(&network, &semaphores).await? - idle);
        semaphores.shutdown().await;
    }
    let figure = |id, what, counted: &[u32], baseline, target| {
        let mut counted: Vec<f64> = counted.iter().copied().map(f64::from).collect();
        let counted = median(&mut counted);
        Figure::of_value(id, what, "trips", (baseline, counted), Better::AtMost(target))
    };
    let (baseline, target) = (LEAST_WITH_CONNECT, ACHIEVABLE_WITH_CONNECT);
    Ok(vec![
        figure("N8", "round trips: connect to first permit", &from_connect, baseline, target),
        figure("N8a", "round trips: new semaphore to first permit", &from_new, LEAST, LEAST),
    ])
}

/// Returns the number of round trips until a new semaphore has granted its first permit. When this
/// function returns, no call is under way.
async fn first_permit(network: &Network, semaphores: &SemaphoreClient) -> Result<u32> {
    let semaphore = semaphores.semaphore(unique_name("n8")).limit(10).build()?;
    let permit = semaphore.acquire().await?;
    let round_trips = network.round_trips();
    permit.release().await?;
    Ok(round_trips)
}
