//! A client process: tasks that take turns at the semaphores, and tell what they believe.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis_semaphore::{Error, Permit, Semaphore, Semaphores};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::history::{Call, Event, How, What, Why, now};
use super::theatre::{Address, Names};
use super::{DRAIN, KINDS, Kind, LEASE, LIVENESS, RESPONSE_TIMEOUT, stalls};

/// In a line of the output, before an event.
pub const MARK: &str = "event ";
/// How often a holder looks whether its lease lasts longer by now.
const LOOK: Duration = Duration::from_millis(10);

/// What the process is told when it is started.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Orders {
    pub process: u32,
    pub seed: u64,
    pub address: Address,
    pub names: Names,
}

struct Teller {
    process: u32,
    turns: AtomicU64,
    ends: watch::Sender<bool>,
}

impl Teller {
    fn say(&self, what: What) {
        let event = Event { at: now(), process: self.process, what };
        let line = format!("\n{MARK}{}\n", serde_json::to_string(&event).unwrap());
        // Nobody listens when the campaign was ended early.
        let _ = std::io::stdout().lock().write_all(line.as_bytes());
    }

    fn says_failed(&self, turn: u64, operation: &str, error: &Error) {
        let (operation, unavailable) =
            (operation.to_owned(), matches!(error, Error::Unavailable { .. }));
        self.say(What::Failed { turn, operation, error: error.to_string(), unavailable });
    }

    /// When even those go who waited at the end.
    async fn drained(&self) {
        let mut ends = self.ends.subscribe();
        ends.wait_for(|ends| *ends).await.expect("the sender lives as long as we");
        sleep(DRAIN).await;
    }
}

/// Works until its input is closed.
pub fn run(orders: &Orders) {
    let (turns, ends) = (AtomicU64::new(0), watch::Sender::new(false));
    let teller = Arc::new(Teller { process: orders.process, turns, ends });
    tell_of_panics(&teller);
    let input = teller.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        input.ends.send_replace(true);
    });
    #[cfg(feature = "metrics")]
    let counted = super::counts::begin();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let stalled = teller.clone();
        stalls::watch(move |what| stalled.say(what));
        let semaphores = connect(&orders.address, &teller).await;
        let mut tasks = JoinSet::new();
        for (number, (kind, name)) in KINDS.iter().zip(&orders.names).enumerate() {
            let semaphore = semaphores.semaphore(name).limit(kind.limit).lease(LEASE);
            let semaphore = semaphore.build().unwrap();
            for task in 0..kind.tasks {
                let random = fastrand::Rng::with_seed(orders.seed ^ (100 * number + task) as u64);
                let (semaphore, teller) = (semaphore.clone(), teller.clone());
                tasks.spawn(Task { semaphore, number, kind, random, teller }.run());
            }
        }
        tasks.join_all().await;
        semaphores.shutdown().await;
    });
    #[cfg(feature = "metrics")]
    super::counts::told(&counted, &orders.names).for_each(|counts| teller.say(counts));
}

/// Also of those in tasks of the crate, which nobody else would hear of.
fn tell_of_panics(teller: &Arc<Teller>) {
    let (teller, usual) = (teller.clone(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |panic| {
        let (operation, error) = ("panic".to_owned(), panic.to_string());
        teller.say(What::Failed { turn: u64::MAX, operation, error, unavailable: false });
        usual(panic);
    }));
}

/// The server may be away right now.
async fn connect(address: &Address, teller: &Teller) -> Semaphores {
    loop {
        let builder = Semaphores::builder().liveness(LIVENESS).response_timeout(RESPONSE_TIMEOUT);
        match address.connect(builder).await {
            Ok(semaphores) => return semaphores,
            Err(_) if *teller.ends.borrow() => std::process::exit(0),
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
        while !*self.teller.ends.borrow() {
            self.turn().await;
        }
    }

    async fn turn(&mut self) {
        let turn = self.teller.turns.fetch_add(1, Ordering::SeqCst);
        let (call, name) = match self.random.u32(0..20) {
            0 | 1 => (Call::TryAcquire, "try_acquire"),
            2 | 3 => (Call::AcquireTimeout, "acquire_timeout"),
            4 | 5 => (Call::DroppedAcquire, "acquire"),
            _ => (Call::Acquire, "acquire"),
        };
        let weight = match call {
            Call::AcquireTimeout => 1,
            _ => self.random.u32(1..=self.kind.heaviest),
        };
        let (patience, moment) =
            (Duration::from_millis(1 << self.random.u32(0..12)), self.moment());
        let semaphore = self.number;
        self.teller.say(What::Asks { turn, semaphore, weight: weight.into(), call });
        let gives_up = async {
            match call {
                Call::DroppedAcquire => sleep(moment).await,
                _ => self.teller.drained().await,
            }
        };
        let permit = tokio::select! {
            // It has asked, if only for a moment.
            biased;
            permit = self.ask(call, weight, patience) => permit,
            () = gives_up => Ok(Err(Why::Dropped)),
        };
        match permit {
            Ok(Ok(permit)) => self.hold(turn, permit).await,
            Ok(Err(why)) => {
                self.teller.say(What::GivesUp { turn, why });
                sleep(self.moment()).await;
            }
            Err(error) => {
                self.teller.says_failed(turn, name, &error);
                self.teller.say(What::GivesUp { turn, why: Why::Failed });
                sleep(Duration::from_millis(50)).await;
            }
        }
    }

    /// In the middle of a call, or of a wait.
    fn moment(&mut self) -> Duration {
        let longest = *self.random.choice(&[2_000, 50_000]).unwrap();
        Duration::from_micros(self.random.u64(0..longest))
    }

    async fn ask(
        &self,
        call: Call,
        weight: u32,
        patience: Duration,
    ) -> Result<Result<Permit, Why>, Error> {
        match call {
            Call::Acquire | Call::DroppedAcquire => {
                self.semaphore.acquire_many(weight).await.map(Ok)
            }
            Call::TryAcquire => {
                let permit = self.semaphore.try_acquire_many(weight).await;
                permit.map(|permit| permit.ok_or(Why::Refused))
            }
            Call::AcquireTimeout => match self.semaphore.acquire_timeout(patience).await {
                Err(Error::Timeout { .. }) => Ok(Err(Why::TimedOut)),
                permit => permit.map(Ok),
            },
        }
    }

    async fn hold(&mut self, turn: u64, permit: Permit) {
        let watch = permit.watch();
        self.work(turn, permit).await;
        self.teller.say(What::Gone { turn, lost: watch.is_lost() });
    }

    async fn work(&mut self, turn: u64, permit: Permit) {
        // The clock is read first: rather too early than too late.
        let lasts = || now() + permit.expires_in().as_nanos() as u64;
        let mut until = lasts();
        let (semaphore, token) = (self.number, permit.fencing_token());
        let id = permit.id().to_owned();
        self.teller.say(What::Holds { turn, semaphore, token, until, id });
        let (one_in, long_work) = &self.kind.long_work;
        let work = match self.random.u32(0..*one_in) {
            0 => long_work,
            _ => &self.kind.work,
        };
        let end = now() + self.random.u64(work.clone()) * 1_000_000;
        // At the end all give back at once, so that what was left behind shortly before is seen.
        while now() < end && !*self.teller.ends.borrow() {
            let pause = LOOK.min(Duration::from_nanos(end.saturating_sub(now())));
            let by_hand = self.random.u32(0..100) == 0;
            let goes_on = async {
                if by_hand {
                    return permit.refresh().await;
                }
                sleep(pause).await;
                Ok(())
            };
            let was_lost = tokio::select! {
                () = permit.lost() => true,
                gone_on = goes_on => match gone_on {
                    Ok(()) => false,
                    Err(Error::Lost { .. }) => true,
                    Err(error) => {
                        self.teller.says_failed(turn, "refresh", &error);
                        false
                    }
                },
            };
            let lasts = lasts();
            if was_lost || permit.is_lost() {
                self.teller.say(What::Lost { turn });
                return;
            }
            if lasts > until + LOOK.as_nanos() as u64 {
                until = lasts;
                self.teller.say(What::Renewed { turn, until, by_hand });
            }
        }
        self.give_back(turn, permit).await;
    }

    async fn give_back(&mut self, turn: u64, permit: Permit) {
        let forgets = self.kind.changes && self.random.u32(0..200) == 0;
        let how = match self.random.u32(0..8) {
            _ if forgets => How::Forget,
            0..3 => How::Release,
            3 => How::DroppedRelease,
            _ => How::Drop,
        };
        self.teller.say(What::Releases { turn, how });
        let answer = match how {
            How::Drop => return drop(permit),
            How::DroppedRelease => {
                let Ok(answer) = timeout(self.moment(), permit.release()).await else {
                    return;
                };
                answer
            }
            How::Release => permit.release().await,
            How::Forget => permit.forget().await,
        };
        match answer {
            Ok(()) => self.teller.say(What::Released { turn, held: true }),
            Err(Error::Lost { .. }) => self.teller.say(What::Released { turn, held: false }),
            Err(error) => self.teller.says_failed(turn, "release", &error),
        }
    }
}
