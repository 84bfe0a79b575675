//! The test run: it injects one fault after the other, waits after each fault until all processes
//! work again, and judges the history at the end.

use std::time::{Duration, Instant};

use redis_semaphore::{Semaphore, SemaphoreClient};
use tokio::task::JoinHandle;
use tokio::time::{sleep, sleep_until};

use test_support::observer::in_time;
use test_support::scripts::keys_of;

use super::checker::{Violation, judge};
use super::crew::{Crew, Log};
use super::faults::{Fault, Field};
use super::history::{ALL, Moment, What, now};
use super::report::Report;
use super::topology::{Topology, cluster::Cluster, sentinel::Sentinel, single::Single};
use super::{DRAIN, HEARTBEAT_TIMEOUT, KINDS, Kind, LEASE, Special, stalls, timeline, watcher};

const PROCESSES: usize = 4;
/// A calm period follows each fault. The checker judges the order of grants in these periods. Some
/// of these periods are long enough for the slow semaphores.
const CALM: Duration = Duration::from_millis(200);
const LONG_CALM: Duration = Duration::from_millis(2500);
const FAULTS_UNTIL_LONG_CALM: usize = 6;
/// The interval at which the limit changes. Between two changes, forgotten permits reduce the
/// limit.
const NEW_LIMIT: Duration = Duration::from_millis(300);
/// The time that the processes may take to end after the last wait.
const END: Duration = Duration::from_secs(60);
/// Events are printed if they occurred less than this time before a violation. A violation develops
/// in less time.
const BEFORE: Moment = 5_000_000_000;
/// The idempotency key of a limit change is kept for less than this time.
const MARK: Duration = Duration::from_secs(15);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_promise_is_broken_on_single() {
    play(Single::start().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_promise_is_broken_on_sentinel() {
    play(Sentinel::start()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_promise_is_broken_on_cluster() {
    let Some(cluster) = Cluster::start().await else { return };
    play(cluster).await;
}

async fn play<T: Topology>(topology: T) {
    let setting = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let time = Duration::from_secs(setting("SOAK_SECONDS").unwrap_or(20));
    let seed = setting("SOAK_SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
    println!("{}, seed {seed}", T::NAME);
    let mut campaign = Campaign::start(topology, seed).await;
    campaign.rage(time.saturating_sub(LONG_CALM)).await;
    let events = campaign.end().await;
    let violations = judge(&events, T::BOUNDS).unwrap();
    if let Ok(path) = std::env::var("SOAK_LOG") {
        let lines = events.iter().map(|event| serde_json::to_string(event).unwrap() + "\n");
        std::fs::write(path, lines.collect::<String>()).unwrap();
    }
    if let Ok(path) = std::env::var("SOAK_TIMELINE") {
        std::fs::write(path, timeline::draw(seed, &events, &violations)).unwrap();
    }
    let report = Report::new(T::NAME, seed, &events, &violations);
    println!("{report}");
    for Violation { at, what, .. } in &violations {
        // A reader may have only this output, and no log.
        println!("what came before {at}:");
        let before = *at - BEFORE.min(*at)..=*at;
        let about =
            events.iter().filter(|event| before.contains(&event.at) && event.is_about(what));
        about.for_each(|event| println!("{}", serde_json::to_string(event).unwrap()));
    }
    if let Ok(path) = std::env::var("SOAK_JSON") {
        let all = match std::env::var("SOAK_EARLIER") {
            Ok(earlier) => report.clone().after(Report::read(earlier.as_ref())),
            Err(_) => report.clone(),
        };
        std::fs::write(path, all.json()).unwrap();
    }
    assert!(report.violation_texts.is_empty(), "promises were broken, see above");
}

struct Campaign<T> {
    field: Field<T>,
    plan: fastrand::Rng,
    limits: fastrand::Rng,
    log: Log,
    /// These semaphores do not use the proxy.
    semaphores: Vec<Semaphore>,
    limit_changed: Instant,
    watchers: Vec<JoinHandle<()>>,
}

impl<T: Topology> Campaign<T> {
    async fn start(topology: T, seed: u64) -> Self {
        let log = Log::default();
        let stalled = log.clone();
        stalls::watch(move |what| stalled.say(ALL, what));
        for (semaphore, kind) in KINDS.iter().enumerate() {
            let limit = kind.limit.into();
            log.say(ALL, What::SetsLimit { semaphore, limit });
            log.say(ALL, What::LimitIs { semaphore, limit });
        }
        let mut crew = Crew::new(&topology, seed, &log);
        (0..PROCESSES).for_each(|_| crew.start_one());
        let mut watchers = vec![watcher::look(&connect(&topology).await, &log)];
        for url in topology.servers() {
            watchers.push(watcher::ping(&url, &log));
            watchers.push(watcher::check_expiry(&url, &topology.names(), &log));
        }
        let semaphores = connect(&topology).await;
        let field = Field { topology, crew, log: log.clone(), lasted: 0 };
        let plan = fastrand::Rng::with_seed(seed);
        let limits = fastrand::Rng::with_seed(!seed);
        let limit_changed = Instant::now();
        let mut campaign = Self { field, plan, limits, log, semaphores, limit_changed, watchers };
        campaign.all_work_since(0).await;
        campaign
    }

    /// Injects all faults in random order, repeatedly.
    async fn rage(&mut self, time: Duration) {
        let (begin, until) = (Instant::now(), Instant::now() + time);
        let (mut deck, mut all_work) = (Vec::new(), true);
        for number in 1.. {
            if deck.is_empty() {
                deck = [&Fault::CLIENTS, T::FAULTS].concat();
                self.plan.shuffle(&mut deck);
            }
            let due = self.field.topology.due();
            // The campaign ends only when all servers are running.
            if due.is_none() && (!all_work || Instant::now() >= until) {
                return;
            }
            let fault = due.or_else(|| deck.pop()).expect("the deck was filled");
            all_work = self.survives(fault).await;
            match number % FAULTS_UNTIL_LONG_CALM {
                0 => {
                    let (passed, time) = (begin.elapsed().as_secs(), time.as_secs());
                    let topology = std::env::var("SOAK_TOPOLOGY").unwrap_or(T::NAME.to_owned());
                    eprintln!("{topology}: {passed} of {time} s, {number} faults");
                    sleep(LONG_CALM).await;
                }
                _ => sleep(CALM).await,
            }
        }
    }

    async fn survives(&mut self, fault: Fault) -> bool {
        let (kind, spoils_order) = (fault.name(), fault.spoils_order());
        self.log.say(ALL, What::Fault { kind: kind.clone(), spoils_order });
        self.field.inflict(fault, &mut self.plan).await;
        let undone = now();
        self.log.say(ALL, What::Undone { kind: kind.clone() });
        let all_work = self.all_work_since(undone).await;
        self.log.say(ALL, What::Healed { kind });
        all_work
    }

    async fn change_limit(&mut self) {
        if self.limit_changed.elapsed() < NEW_LIMIT {
            return;
        }
        self.limit_changed = Instant::now();
        for (semaphore, kind) in
            KINDS.iter().enumerate().filter(|(_, kind)| kind.special == Special::Changes)
        {
            let new = (self.limits.u32(0..4) > 0).then(|| self.limits.u32(2..=6));
            let limit = new.unwrap_or(kind.limit).into();
            self.log.say(ALL, What::SetsLimit { semaphore, limit });
            let changed = match new {
                Some(limit) => self.semaphores[semaphore].set_limit(limit).await,
                None => self.semaphores[semaphore].clear_limit().await,
            };
            if changed.is_ok() {
                self.log.say(ALL, What::LimitIs { semaphore, limit });
            }
        }
    }

    /// Waits until each process has been granted a permit of each quick semaphore since this
    /// moment. After a failure, a client pauses, so its request takes longer than usual.
    async fn all_work_since(&mut self, since: Moment) -> bool {
        let deadline = Instant::now() + T::RECOVERY;
        let numbers = self.field.crew.numbers();
        let quick = KINDS.iter().enumerate().filter(|(_, kind)| kind.is_quick());
        let all =
            numbers.iter().flat_map(|process| quick.clone().map(|(kind, _)| (*process, kind)));
        let mut rest: Vec<_> = all.collect();
        while !rest.is_empty() {
            if Instant::now() >= deadline {
                let what = format!("processes and semaphores {rest:?} do not work again");
                self.found("recovery", what);
                return false;
            }
            self.change_limit().await;
            sleep(Duration::from_millis(5)).await;
            let grants = self.log.last_grants();
            rest.retain(|one| grants.get(one).is_none_or(|at| *at < since));
        }
        true
    }

    /// Ends all processes and checks the keys. Anything that remains is an error, because the last
    /// process was killed long enough ago.
    async fn end(mut self) -> Vec<super::history::Event> {
        sleep(LEASE.max(LONG_CALM)).await;
        self.field.crew.dismiss();
        let deadline = Instant::now() + DRAIN + END;
        while !self.field.crew.is_gone() {
            if Instant::now() > deadline {
                self.found("recovery", "the processes do not end".to_owned());
                return self.log.take();
            }
            self.change_limit().await;
            sleep(Duration::from_millis(5)).await;
        }
        self.field.crew.join();
        self.watchers.iter().for_each(JoinHandle::abort);
        // Detached permits, and permits that were left to expire, remain until their leases expire.
        let lasts =
            |number: &usize| matches!(KINDS[*number].special, Special::Leaves | Special::Passes);
        let mut numbers: Vec<_> = (0..KINDS.len()).collect();
        numbers.sort_by_key(lasts);
        let last = Instant::now() + LEASE;
        for number in numbers {
            if lasts(&number) {
                sleep_until(last.into()).await;
            }
            let semaphore = &self.semaphores[number];
            semaphore.clear_limit().await.unwrap();
            let left = in_time("an inspection", semaphore.inspect()).await.unwrap();
            if (left.held, left.queued) != (0, 0) {
                self.found("left behind", format!("{left:?}"));
            }
            self.check_keys(number);
        }
        self.log.take()
    }

    /// Checks that no request waits, and that all keys expire.
    fn check_keys(&self, semaphore: usize) {
        let topology = &self.field.topology;
        let (name, mut connection) = (&topology.names()[semaphore], topology.home_of(semaphore));
        // Keys live for up to twice the time for which they are needed, or for a minute longer than
        // needed. Keys are needed while the last token is ahead of the clock, which may have moved
        // back.
        let needed = 2 * (LEASE + HEARTBEAT_TIMEOUT + MARK + topology.clock_moved());
        let needed = needed.as_millis() as i64;
        for (number, key) in keys_of(name).iter().enumerate() {
            let lives: i64 = redis::cmd("PTTL").arg(key).query(&mut connection).unwrap();
            let is_state = number == 3;
            let longest = needed + 60_000 + if is_state { 7_200_000 } else { 0 };
            let is_queue = number == 1;
            if is_queue && lives != -2 || lives == -1 || lives > longest {
                self.found("left behind", format!("the key {key} lives for {lives} ms"));
            }
        }
    }

    fn found(&self, rule: &str, what: String) {
        self.log.say(ALL, What::Found { rule: rule.to_owned(), what });
    }
}

async fn connect(topology: &impl Topology) -> Vec<Semaphore> {
    let semaphores = topology.direct_address().connect(SemaphoreClient::builder()).await.unwrap();
    let build = |(name, kind): (String, &Kind)| {
        semaphores.semaphore(name).limit(kind.limit).build().unwrap()
    };
    topology.names().into_iter().zip(&KINDS).map(build).collect()
}
