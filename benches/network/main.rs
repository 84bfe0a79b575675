//! The share of the possible turns that is taken over a network, with round trips of different
//! lengths, with and without jitter.
//!
//! ```text
//! scripts/with-redis cargo bench --bench network
//! scripts/with-redis cargo bench --bench network -- --json
//! ```

#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use clap::Parser;
use redis::Client;
use redis_semaphore::SemaphoreClient;
use serde::Serialize;
use support::Result;
use support::arguments::Arguments;
use support::baseline::Baseline;
use support::design::Design;
use support::load::{Load, round_trip};
use support::network::{Network, Way};
use support::ours::Ours;
use support::relay::Relay;
use support::rounds::{Rounds, length_of, median, rounds_of};
use support::server::{client, unique_name, url};

const LOAD: Load = Load { limit: 10, tasks: 100, work: Duration::from_millis(5) };
/// The delays in one direction. The loopback interface without a delay is measured, too.
const ONE_WAYS: [Duration; 8] = [
    Duration::from_micros(50),
    Duration::from_micros(100),
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2_500),
    Duration::from_millis(5),
    Duration::from_millis(10),
];
const JITTERS: [f64; 2] = [0.0, 0.5];
const ROUNDS: usize = 3;
/// The time in which turns are counted.
const ROUND: Duration = Duration::from_millis(1_500);

/// Medians of the rounds.
#[derive(Serialize)]
struct Point {
    design: &'static str,
    jitter: f64,
    round_trip_ms: f64,
    turns: f64,
    ideal: f64,
    share: f64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if !arguments.wants("network") {
        return Ok(());
    }
    let one_ways = if arguments.only_tests() { &ONE_WAYS[..1] } else { &ONE_WAYS[..] };
    let mut points = Vec::new();
    for jitter in JITTERS {
        if jitter == 0.0 {
            points.extend(at(&client()?, jitter).await?);
        }
        for &delay in one_ways {
            let network = Network::to(url()?, Way { delay, jitter })?;
            points.extend(at(&network.client()?, jitter).await?);
        }
    }
    print(&points, arguments.json)
}

/// Measures the crate and the baseline in alternating rounds.
async fn at(client: &Client, jitter: f64) -> Result<[Point; 2]> {
    let baseline = Baseline::at(client).await?;
    let mut trips = Vec::new();
    let (mut relay, mut ours) = (Rounds::default(), Rounds::default());
    for _ in 0..rounds_of(ROUNDS) {
        let trip = round_trip(&baseline).await?;
        trips.push(trip.as_secs_f64() * 1e3);
        let name = unique_name("network");
        let design = Relay::at(client, &name, LOAD.limit).await?;
        let turns = LOAD.turns(design, trip, length_of(ROUND)).await?;
        relay.add(turns.ideal, turns.taken);
        let semaphores = SemaphoreClient::builder().connect_client(client.clone()).await?;
        let semaphore = semaphores.semaphore(name).limit(LOAD.limit).build()?;
        let turns = LOAD.turns(Ours { semaphore }, trip, length_of(ROUND)).await?;
        ours.add(turns.ideal, turns.taken);
        semaphores.shutdown().await;
    }
    let round_trip_ms = median(&mut trips);
    let point = |design, rounds: &Rounds| {
        let ((ideal, turns), share) = rounds.medians();
        Point { design, jitter, round_trip_ms, turns, ideal, share }
    };
    Ok([point(Relay::NAME, &relay), point(Ours::NAME, &ours)])
}

fn print(points: &[Point], json: bool) -> Result<()> {
    if json {
        println!("{}", serde_json::to_string(points)?);
        return Ok(());
    }
    println!(
        "{:8} {:>6} {:>10} {:>9} {:>9} {:>6}",
        "", "jitter", "trip, ms", "turns/s", "ideal", "share"
    );
    for Point { design, jitter, round_trip_ms, turns, ideal, share } in points {
        println!(
            "{design:8} {jitter:>6.1} {round_trip_ms:>10.2} {turns:>9.0} {ideal:>9.0} {share:>6.2}"
        );
    }
    Ok(())
}
