//! D: the share of the possible turns that tasks take over networks of different lengths, with and
//! without jitter. The figures compare this crate with the baseline of a handoff.

use std::time::Duration;

use redis::Client;
use redis_semaphore::SemaphoreClient;
use serde_json::json;
use test_support::delay::Delay;

use crate::load::TYPICAL;
use crate::network::{network, round_trip};
use crate::support::Result;
use crate::support::arguments::only_tests;
use crate::support::baseline::Baseline;
use crate::support::design::Design;
use crate::support::figure::Figure;
use crate::support::ours::Ours;
use crate::support::relay::Relay;
use crate::support::rounds::{Rounds, length_of, median, rounds_of};
use crate::support::server::{client, unique_name};

/// The delays in one direction, in ms. The loopback interface without a delay is measured, too.
const ONE_WAYS: [f64; 8] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
const JITTER: f64 = 0.5;
const ROUNDS: usize = 3;
/// The time in which turns are counted.
const ROUND: Duration = Duration::from_millis(1_500);

pub async fn all() -> Result<Vec<Figure>> {
    let one_ways = if only_tests() { &ONE_WAYS[..1] } else { &ONE_WAYS[..] };
    let mut figures = at(&client()?, 0.0).await?;
    for jitter in [0.0, JITTER] {
        for one_way in one_ways {
            let one_way = Duration::from_secs_f64(one_way / 1e3);
            let (_network, client) = network(Delay { one_way, jitter })?;
            figures.extend(at(&client, jitter).await?);
        }
    }
    Ok(figures)
}

/// Measures the crate and the baseline in alternating rounds.
async fn at(client: &Client, jitter: f64) -> Result<Vec<Figure>> {
    let baseline = Baseline::at(client).await?;
    let mut trips = Vec::new();
    let (mut relay, mut ours) = (Rounds::default(), Rounds::default());
    for _ in 0..rounds_of(ROUNDS) {
        let trip = round_trip(&baseline).await?;
        trips.push(trip.as_secs_f64() * 1e3);
        let design = Relay::at(client, &unique_name("distance"), TYPICAL.limit).await?;
        relay.add(TYPICAL.turns(design, trip, length_of(ROUND)).await?);
        let semaphores = SemaphoreClient::builder().connect_client(client.clone()).await?;
        ours.add(TYPICAL.turns_of_ours(semaphores, trip, length_of(ROUND)).await?);
    }
    let trip = median(&mut trips);
    let figure = |design: &str, rounds: &Rounds| {
        let what = format!("{design}: turns, round trip {trip:.2} ms, jitter {jitter:.1}");
        let details = json!({ "design": design, "jitter": jitter, "round_trip_ms": trip });
        Figure::of("D", what, "/s", rounds).with_details(details)
    };
    Ok(vec![figure(Relay::NAME, &relay)?, figure(Ours::NAME, &ours)?])
}
