//! N0 to N4: how exact the delays of a simulated network are, and how many of the possible turns
//! are taken over this network.

use std::time::Duration;

use redis::Client;
use redis_semaphore::{Error, SemaphoreClient};

use crate::support::Result;
use crate::support::baseline::Baseline;
use crate::support::figure::{Better, Figure};
use crate::support::load::{Load, round_trip};
use crate::support::network::{Network, Way};
use crate::support::ours::Ours;
use crate::support::rounds::{Rounds, length_of, micros, rounds_of};
use crate::support::server::{client, unique_name, url};

pub const NEAR: Duration = Duration::from_millis(1);
pub const FAR: Duration = Duration::from_millis(10);
const ROUNDS: usize = 5;
/// The time in which turns are counted.
const ROUND: Duration = Duration::from_secs(2);

/// A load, and the delay of the network.
pub struct Contention {
    pub id: &'static str,
    pub what: &'static str,
    pub one_way: Duration,
    pub load: Load,
}

pub const CONTENTIONS: [Contention; 4] = [
    Contention {
        id: "N1",
        what: "1 ms one way: limit 10, 100 tasks, 5 ms of work",
        one_way: NEAR,
        load: Load { limit: 10, tasks: 100, work: Duration::from_millis(5) },
    },
    Contention {
        id: "N2",
        what: "1 ms one way: limit 4, 20 tasks, 2 ms of work",
        one_way: NEAR,
        load: Load { limit: 4, tasks: 20, work: Duration::from_millis(2) },
    },
    Contention {
        id: "N3",
        what: "10 ms one way: limit 10, 100 tasks, 5 ms of work",
        one_way: FAR,
        load: Load { limit: 10, tasks: 100, work: Duration::from_millis(5) },
    },
    Contention {
        id: "N4",
        what: "10 ms one way: limit 1, 10 tasks, 5 ms of work",
        one_way: FAR,
        load: Load { limit: 1, tasks: 10, work: Duration::from_millis(5) },
    },
];

impl Contention {
    pub async fn figure(&self) -> Result<Figure> {
        let client = Network::to(url()?, Way::of(self.one_way))?.client()?;
        let connect = async || SemaphoreClient::builder().connect_client(client.clone()).await;
        self.figure_at(&client, connect).await
    }

    /// Measures the figure on the server to which this client connects.
    pub async fn figure_at(
        &self,
        client: &Client,
        connect: impl AsyncFn() -> std::result::Result<SemaphoreClient, Error>,
    ) -> Result<Figure> {
        let baseline = Baseline::at(client).await?;
        let mut rounds = Rounds::default();
        for _ in 0..rounds_of(ROUNDS) {
            // The round trip is measured while no other call is under way.
            let round_trip = round_trip(&baseline).await?;
            let semaphores = connect().await?;
            let name = unique_name(self.id);
            let semaphore = semaphores.semaphore(name).limit(self.load.limit).build()?;
            let turns = self.load.turns(Ours { semaphore }, round_trip, length_of(ROUND)).await?;
            semaphores.shutdown().await;
            rounds.add(turns.ideal, turns.taken);
        }
        let (medians, ratio) = rounds.medians();
        Ok(Figure::new(self.id, self.what, "/s", medians, ratio, Better::AtLeast(0.93)))
    }
}

/// Compares a round trip of a script that does nothing with twice the delay plus a round trip
/// without a network.
pub async fn n0() -> Result<Vec<Figure>> {
    Ok(vec![
        own_error("N0", "the network's own error: 1 ms one way", NEAR, 1.05).await?,
        own_error("N0a", "the network's own error: 10 ms one way", FAR, 1.02).await?,
    ])
}

async fn own_error(
    id: &'static str,
    what: &'static str,
    one_way: Duration,
    target: f64,
) -> Result<Figure> {
    let network = Network::to(url()?, Way::of(one_way))?;
    let through = Baseline::at(&network.client()?).await?;
    let direct = Baseline::at(&client()?).await?;
    let mut rounds = Rounds::default();
    for _ in 0..rounds_of(ROUNDS) {
        let trip = round_trip(&direct).await? + 2 * one_way;
        rounds.add(micros(trip), micros(round_trip(&through).await?));
    }
    let (medians, ratio) = rounds.medians();
    Ok(Figure::new(id, what, "us", medians, ratio, Better::AtMost(target)))
}
