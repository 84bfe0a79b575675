//! The campaign itself: faults one after the other, each until all processes work again, and the
//! judgement at the end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use redis_semaphore::{Semaphore, Semaphores};
use tokio::time::sleep;

use crate::support::observer::eventually;
use crate::support::proxy::Proxy;
use crate::support::server::Server;

use super::checker::{Bounds, judge};
use super::crew::{Crew, Log};
use super::faults::{Fault, Field};
use super::history::{Moment, What, now};
use super::{KINDS, LEASE, LIVENESS};

const PROCESSES: usize = 4;
/// After a fault has been undone all processes must be let in again within this time.
const RECOVERY: Duration = Duration::from_secs(30);
/// While nothing is wrong the order is judged.
const CALM: Duration = Duration::from_millis(600);

const BOUNDS: Bounds = Bounds {
    late: 1_000_000_000,
    way: 500_000_000,
    // Two leases of those who work for long before each of the others in the queue.
    wait: 40_000_000_000,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_campaign_of_faults_breaks_no_promise() {
    let setting = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let time = Duration::from_secs(setting("SOAK_SECONDS").unwrap_or(20));
    let seed = setting("SOAK_SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
    println!("seed {seed}");
    let mut campaign = Campaign::start(seed).await;
    campaign.rage(Instant::now() + time).await;
    campaign.end().await;
}

struct Campaign {
    field: Field,
    random: fastrand::Rng,
    log: Log,
    /// Not through the proxy.
    semaphores: Vec<Semaphore>,
    faults: BTreeMap<Fault, (u32, Duration)>,
}

impl Campaign {
    async fn start(seed: u64) -> Self {
        let server = Server::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
        let proxy = Proxy::start(server.port).await;
        let log = Log::default();
        let direct = Semaphores::connect(&server.url()).await.unwrap();
        let mut semaphores = Vec::new();
        for (semaphore, kind) in KINDS.iter().enumerate() {
            let limit = kind.limit.into();
            log.say(0, What::SetsLimit { semaphore, limit });
            log.say(0, What::LimitIs { semaphore, limit });
            semaphores.push(direct.semaphore(kind.name).limit(kind.limit).build().unwrap());
        }
        let mut crew = Crew::new(&proxy.url(), seed, &log);
        (0..PROCESSES).for_each(|_| crew.start_one());
        let (field, random) = (Field { server, proxy, crew }, fastrand::Rng::with_seed(seed));
        let campaign = Self { field, random, log, semaphores, faults: BTreeMap::new() };
        campaign.all_work_since(0).await;
        campaign
    }

    async fn rage(&mut self, until: Instant) {
        while Instant::now() < until {
            self.change_limit().await;
            let fault = *self.random.choice(&Fault::ALL).unwrap();
            let kind = fault.name();
            self.log.say(0, What::Fault { kind: kind.clone() });
            self.field.inflict(fault, &mut self.random).await;
            let undone = now();
            self.all_work_since(undone).await;
            self.log.say(0, What::Healed { kind });
            let (times, slowest) = self.faults.entry(fault).or_default();
            *times += 1;
            *slowest = (*slowest).max(Duration::from_nanos(now() - undone));
            sleep(CALM).await;
        }
    }

    async fn change_limit(&mut self) {
        for (semaphore, _) in KINDS.iter().enumerate().filter(|(_, kind)| kind.changes) {
            let limit = self.random.u32(2..=6);
            self.log.say(0, What::SetsLimit { semaphore, limit: limit.into() });
            if self.semaphores[semaphore].set_limit(limit).await.is_ok() {
                self.log.say(0, What::LimitIs { semaphore, limit: limit.into() });
            }
        }
    }

    /// Waits until each process has been granted a permit of each semaphore since then: a request
    /// that meets the pause after a failure is later on its way than others.
    async fn all_work_since(&self, since: Moment) {
        let deadline = Instant::now() + RECOVERY;
        let numbers = self.field.crew.numbers();
        let all = numbers.iter().flat_map(|process| (0..KINDS.len()).map(|kind| (*process, kind)));
        let mut rest: Vec<_> = all.collect();
        loop {
            let grants = self.log.last_grants();
            rest.retain(|one| grants.get(one).is_none_or(|at| *at < since));
            if rest.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "processes and semaphores {rest:?} do not recover");
            sleep(Duration::from_millis(5)).await;
        }
    }

    async fn end(mut self) {
        self.field.crew.dismiss();
        for (semaphore, kind) in self.semaphores.iter().zip(&KINDS) {
            let look = async || {
                let seen = semaphore.inspect().await.unwrap();
                (seen.held, seen.queued)
            };
            let began = Instant::now();
            eventually("nothing is left behind", look, |left| *left == (0, 0)).await;
            // What was killed in the middle goes with its lease, or when it is not heard of.
            assert!(began.elapsed() < 2 * (LEASE + LIVENESS), "{}", kind.name);
        }
        let events = self.log.take();
        if let Ok(path) = std::env::var("SOAK_LOG") {
            let lines = events.iter().map(|event| serde_json::to_string(event).unwrap() + "\n");
            std::fs::write(path, lines.collect::<String>()).unwrap();
        }
        let violations = judge(&events, BOUNDS).unwrap();
        let grants = events.iter().filter(|event| matches!(event.what, What::Holds { .. })).count();
        println!(
            "{grants} permits, {} faults",
            self.faults.values().map(|(times, _)| times).sum::<u32>()
        );
        for (fault, (times, slowest)) in &self.faults {
            println!("{times:4} {:18} recovered within {slowest:.0?}", fault.name());
        }
        assert!(violations.is_empty(), "{violations:#?}");
    }
}
