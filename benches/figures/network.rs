//! A network to the measured server. N0: how exact its delays are.

use std::time::{Duration, Instant};

use redis::{Client, ConnectionAddr, IntoConnectionInfo};
use test_support::delay::Delay;
use test_support::proxy::Proxy;

use crate::support::Result;
use crate::support::baseline::Baseline;
use crate::support::figure::Figure;
use crate::support::rounds::{Rounds, median, micros, rounds_of};
use crate::support::server::{client, url};

pub const NEAR: Duration = Duration::from_millis(1);
pub const FAR: Duration = Duration::from_millis(10);
const ROUNDS: usize = 5;
/// The number of measurements of a round trip.
const ROUND_TRIPS: usize = 50;

/// Returns a proxy that delays the data of the measured server, and a client of this proxy. The
/// loopback interface, which benches use, has no delay.
pub fn network(delay: Delay) -> Result<(Proxy, Client)> {
    let server = url()?.into_connection_info()?;
    let ConnectionAddr::Tcp(host, port) = server.addr() else {
        return Err("a network is measured with a server that has a TCP port without TLS".into());
    };
    if !["127.0.0.1", "localhost"].contains(&host.as_str()) {
        return Err("a network is measured with a server on this machine".into());
    }
    let proxy = Proxy::start_with_delay(*port, delay);
    let address = ConnectionAddr::Tcp(host.clone(), proxy.port());
    let client = Client::open(server.clone().set_addr(address))?;
    Ok((proxy, client))
}

pub fn steady_network(one_way: Duration) -> Result<(Proxy, Client)> {
    network(Delay::of(one_way))
}

/// Returns the round trip time of a script that does nothing. The calls run in a task, as in a
/// program.
pub async fn round_trip(baseline: &Baseline) -> Result<Duration> {
    let mut baseline = baseline.clone();
    let task = tokio::spawn(async move {
        let mut times = Vec::new();
        for _ in 0..ROUND_TRIPS {
            let begun = Instant::now();
            baseline.release().await?;
            times.push(begun.elapsed().as_secs_f64());
        }
        Ok(Duration::from_secs_f64(median(&mut times)))
    });
    task.await?
}

/// Compares a round trip of a script that does nothing with twice the delay plus a round trip
/// without a network.
pub async fn n0() -> Result<Vec<Figure>> {
    let near = Figure::of("N0", "the network's own error: 1 ms one way", "us", &trips(NEAR).await?);
    let far = Figure::of("N0a", "the network's own error: 10 ms one way", "us", &trips(FAR).await?);
    Ok(vec![near.ratio_at_most(1.05), far.ratio_at_most(1.02)])
}

async fn trips(one_way: Duration) -> Result<Rounds> {
    let (_network, client_of_network) = steady_network(one_way)?;
    let through = Baseline::at(&client_of_network).await?;
    let direct = Baseline::at(&client()?).await?;
    let mut rounds = Rounds::default();
    for _ in 0..rounds_of(ROUNDS) {
        let trip = round_trip(&direct).await? + 2 * one_way;
        rounds.add((micros(trip), micros(round_trip(&through).await?)));
    }
    Ok(rounds)
}
