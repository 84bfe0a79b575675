//! A client process: tasks that take turns at the semaphores, and tell what they believe.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use redis_semaphore::{Permit, Semaphore, Semaphores};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::history::{Event, What, now};
use super::{KINDS, Kind, LEASE, LIVENESS, RESPONSE_TIMEOUT};

/// In a line of the output, before an event.
pub const MARK: &str = "event ";
const TASKS: usize = 4;
/// How often a holder looks whether its lease lasts longer by now.
const LOOK: Duration = Duration::from_millis(10);

/// What the process is told when it is started.
#[derive(Debug, Clone)]
pub struct Orders {
    pub url: String,
    pub process: u32,
    pub seed: u64,
}

impl Orders {
    pub fn write(&self) -> String {
        format!("{} {} {}", self.process, self.seed, self.url)
    }

    pub fn read(text: &str) -> Self {
        let mut words = text.split(' ');
        let mut word = || words.next().unwrap();
        let (process, seed) = (word().parse().unwrap(), word().parse().unwrap());
        Self { process, seed, url: word().to_owned() }
    }
}

struct Teller {
    process: u32,
    turns: AtomicU64,
    ends: AtomicBool,
}

impl Teller {
    fn say(&self, what: What) {
        let event = Event { at: now(), process: self.process, what };
        let line = format!("\n{MARK}{}\n", serde_json::to_string(&event).unwrap());
        // Nobody listens when the campaign was ended early.
        let _ = std::io::stdout().lock().write_all(line.as_bytes());
    }
}

/// Works until its input is closed.
pub fn run(orders: &Orders) {
    let teller = Arc::new(Teller {
        process: orders.process,
        turns: AtomicU64::new(0),
        ends: AtomicBool::new(false),
    });
    let input = teller.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        input.ends.store(true, Ordering::SeqCst);
    });
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let semaphores = connect(&orders.url, &teller).await;
        let mut tasks = JoinSet::new();
        for (number, kind) in KINDS.iter().enumerate() {
            let semaphore = semaphores.semaphore(kind.name).limit(kind.limit).lease(LEASE);
            let semaphore = semaphore.build().unwrap();
            for task in 0..TASKS {
                let random =
                    fastrand::Rng::with_seed(orders.seed ^ ((number * TASKS + task) as u64));
                let (semaphore, teller) = (semaphore.clone(), teller.clone());
                tasks.spawn(Task { semaphore, number, kind, random, teller }.run());
            }
        }
        tasks.join_all().await;
        semaphores.shutdown().await;
    });
}

/// The server may be away right now.
async fn connect(url: &str, teller: &Teller) -> Semaphores {
    loop {
        let builder = Semaphores::builder().liveness(LIVENESS).response_timeout(RESPONSE_TIMEOUT);
        match builder.connect(url).await {
            Ok(semaphores) => return semaphores,
            Err(_) if teller.ends.load(Ordering::SeqCst) => std::process::exit(0),
            Err(_) => sleep(Duration::from_millis(50)).await,
        }
    }
}

struct Task {
    semaphore: Semaphore,
    number: usize,
    kind: &'static Kind,
    random: fastrand::Rng,
    teller: Arc<Teller>,
}

impl Task {
    async fn run(mut self) {
        while !self.teller.ends.load(Ordering::SeqCst) {
            self.turn().await;
        }
    }

    async fn turn(&mut self) {
        let turn = self.teller.turns.fetch_add(1, Ordering::SeqCst);
        let weight = self.random.u32(1..=self.kind.heaviest);
        self.teller.say(What::Asks { turn, semaphore: self.number, weight: weight.into() });
        // Some lose their patience.
        let patience = match self.random.u32(0..20) {
            0 => Duration::from_millis(self.random.u64(0..50)),
            _ => Duration::from_secs(60),
        };
        match timeout(patience, self.acquire(weight)).await {
            Ok(Some(permit)) => self.hold(turn, permit).await,
            Ok(None) => {
                self.teller.say(What::GivesUp { turn });
                sleep(Duration::from_millis(50)).await;
            }
            Err(_) => self.teller.say(What::GivesUp { turn }),
        }
    }

    /// Nothing when it fails, or when the process is to end.
    async fn acquire(&self, weight: u32) -> Option<Permit> {
        let ends = async {
            while !self.teller.ends.load(Ordering::SeqCst) {
                sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            permit = self.semaphore.acquire_many(weight) => permit.ok(),
            () = ends => None,
        }
    }

    async fn hold(&mut self, turn: u64, permit: Permit) {
        // The clock is read first: rather too early than too late.
        let lasts = || now() + permit.expires_in().as_nanos() as u64;
        let mut until = lasts();
        self.teller.say(What::Holds {
            turn,
            semaphore: self.number,
            token: permit.fencing_token(),
            until,
        });
        // Some work for longer than a lease.
        let work = match self.random.u32(0..50) {
            0 => self.random.u64(500..3000),
            _ => self.random.u64(1..15),
        };
        let end = now() + work * 1_000_000;
        while now() < end {
            let pause = LOOK.min(Duration::from_nanos(end.saturating_sub(now())));
            let is_lost = timeout(pause, permit.lost()).await.is_ok();
            let lasts = lasts();
            if is_lost || permit.is_lost() {
                self.teller.say(What::Lost { turn });
                return;
            }
            if lasts > until + LOOK.as_nanos() as u64 {
                until = lasts;
                self.teller.say(What::Renewed { turn, until });
            }
        }
        self.teller.say(What::Releases { turn });
        if self.random.bool() {
            // Whether it was still held is for the checker to find out.
            let _ = permit.release().await;
        }
    }
}
