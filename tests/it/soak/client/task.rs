//! A client task that repeatedly acquires permits of one semaphore.

use std::sync::Arc;
use std::time::Duration;

use redis_semaphore::{DetachedPermit, Error, Group, Permit, Semaphore};
use tokio::time::{sleep, timeout};

use super::super::history::{Call, How, What, Why, now};
use super::super::{GROUP_CAP, GROUPS, KINDS, Kind, Special};
use super::reporter::Reporter;

/// The interval at which a holder checks whether its lease was extended.
const LOOK: Duration = Duration::from_millis(10);

#[derive(Clone)]
pub struct Task {
    pub semaphore: Semaphore,
    pub number: usize,
    pub reporter: Arc<Reporter>,
    kind: &'static Kind,
    random: fastrand::Rng,
}

/// A permit, or the reason why no permit was granted.
type Asked = Result<Result<Permit, Why>, Error>;

struct Wish {
    call: Call,
    weight: u32,
    group: u32,
    ahead: Duration,
    patience: Duration,
}

impl Task {
    pub fn new(semaphore: Semaphore, number: usize, reporter: &Arc<Reporter>) -> Self {
        let (kind, random) = (&KINDS[number], fastrand::Rng::new());
        Self { semaphore, number, reporter: reporter.clone(), kind, random }
    }

    pub fn seeded(&self, seed: u64) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), ..self.clone() }
    }

    pub async fn run(mut self) {
        while !self.reporter.ends() {
            self.turn().await;
        }
    }

    async fn turn(&mut self) {
        let turn = self.reporter.turn();
        let wish = self.wish();
        let Wish { call, weight, group, ahead, .. } = wish;
        let (semaphore, moment) = (self.number, self.moment());
        let (weight, ahead) = (weight.into(), ahead.as_nanos() as u64);
        self.reporter.say(What::Asks { turn, semaphore, weight, group, call, ahead });
        let gives_up = async {
            match call {
                Call::DroppedAcquire => sleep(moment).await,
                _ => self.reporter.drained().await,
            }
        };
        let permit = tokio::select! {
            // With this order of the branches, the request is sent even if it is dropped soon.
            biased;
            permit = self.ask(wish) => permit,
            () = gives_up => Ok(Err(Why::Dropped)),
        };
        let name = match call {
            Call::TryAcquire => "try_acquire",
            Call::AcquireTimeout => "acquire_timeout",
            _ => "acquire",
        };
        self.answered(turn, name, permit).await;
    }

    fn wish(&mut self) -> Wish {
        let call = match self.random.u32(0..20) {
            0 | 1 => Call::TryAcquire,
            2 | 3 => Call::AcquireTimeout,
            4 | 5 => Call::DroppedAcquire,
            6 | 7 => Call::HeadStart,
            _ => Call::Acquire,
        };
        let weight = match call {
            Call::AcquireTimeout => 1,
            _ => self.random.u32(1..=self.kind.heaviest),
        };
        let ahead = match call {
            Call::HeadStart => Duration::from_millis(1 << self.random.u32(0..11)),
            _ => Duration::ZERO,
        };
        let patience = Duration::from_millis(1 << self.random.u32(0..12));
        let group = match self.kind.special {
            Special::Groups => self.random.u32(0..=GROUPS),
            _ => 0,
        };
        Wish { call, weight, group, ahead, patience }
    }

    /// Returns a time after which a call or a wait is probably still under way.
    fn moment(&mut self) -> Duration {
        let longest = *self.random.choice(&[2_000, 50_000]).unwrap();
        Duration::from_micros(self.random.u64(0..longest))
    }

    async fn ask(&self, wish: Wish) -> Asked {
        let Wish { call, weight, group, ahead, patience } = wish;
        if group > 0 {
            return self.ask_of_group(wish).await;
        }
        match call {
            Call::TryAcquire => {
                let permit = self.semaphore.try_acquire_many(weight).await;
                permit.map(|permit| permit.ok_or(Why::Refused))
            }
            Call::AcquireTimeout => match self.semaphore.acquire_timeout(patience).await {
                Err(Error::Timeout { .. }) => Ok(Err(Why::TimedOut)),
                permit => permit.map(Ok),
            },
            Call::HeadStart => {
                self.semaphore.request().weight(weight).head_start(ahead).acquire().await.map(Ok)
            }
            _ => self.semaphore.acquire_many(weight).await.map(Ok),
        }
    }

    async fn ask_of_group(&self, wish: Wish) -> Asked {
        let Wish { call, weight, group, ahead, patience } = wish;
        let of_group = Group::new(format!("group-{group}")).share(group as u16).cap(GROUP_CAP);
        let request = self.semaphore.request().weight(weight).group(of_group);
        match call {
            Call::TryAcquire => {
                let permit = request.try_acquire().await;
                permit.map(|permit| permit.ok_or(Why::Refused))
            }
            Call::AcquireTimeout => match request.timeout(patience).acquire().await {
                Err(Error::Timeout { .. }) => Ok(Err(Why::TimedOut)),
                permit => permit.map(Ok),
            },
            _ => request.head_start(ahead).acquire().await.map(Ok),
        }
    }

    /// Adopts the permit. Other processes may adopt it, too, and its previous holder may still hold
    /// it.
    pub async fn adopt(mut self, detached: DetachedPermit) {
        let turn = self.reporter.turn();
        let (semaphore, weight) = (self.number, detached.weight().into());
        let (group, call) = (0, Call::Adopt);
        self.reporter.say(What::Asks { turn, semaphore, weight, group, call, ahead: 0 });
        let gives_up = match self.random.u32(0..5) {
            0 => self.moment(),
            _ => Duration::MAX,
        };
        let adopted = match timeout(gives_up, self.semaphore.adopt(detached)).await {
            Ok(Err(Error::Lost { .. })) => Ok(Err(Why::Refused)),
            Ok(permit) => permit.map(Ok),
            Err(_) => Ok(Err(Why::Dropped)),
        };
        self.answered(turn, "adopt", adopted).await;
    }

    async fn answered(&mut self, turn: u64, call: &str, asked: Asked) {
        match asked {
            Ok(Ok(permit)) => self.hold(turn, permit).await,
            Ok(Err(why)) => {
                self.reporter.say(What::GivesUp { turn, why });
                sleep(self.moment()).await;
            }
            Err(error) => {
                self.reporter.says_failed(turn, call, &error);
                self.reporter.say(What::GivesUp { turn, why: Why::Failed });
                sleep(Duration::from_millis(50)).await;
            }
        }
    }

    async fn hold(&mut self, turn: u64, permit: Permit) {
        let watch = permit.watch();
        self.work(turn, permit).await;
        self.reporter.say(What::Gone { turn, lost: watch.is_lost() });
    }

    async fn work(&mut self, turn: u64, permit: Permit) {
        // The clock is read first, so the expiry is too early rather than too late.
        let lasts = || now() + permit.expires_in().as_nanos() as u64;
        let mut until = lasts();
        let (semaphore, token) = (self.number, permit.fencing_token());
        let id = permit.id().to_owned();
        self.reporter.say(What::Holds { turn, semaphore, token, until, id });
        let is_careless = self.kind.special == Special::Passes && self.random.u32(0..50) == 0;
        if is_careless {
            self.offer_and_hold(turn, &permit);
        }
        let (one_in, long_work) = &self.kind.long_work;
        let work = match self.random.u32(0..*one_in) {
            0 => long_work,
            _ if is_careless => long_work,
            _ => &self.kind.work,
        };
        let end = now() + self.random.u64(work.clone()) * 1_000_000;
        // At the end of the test run, tasks release immediately, so that recent losses are noticed.
        while now() < end && !self.reporter.ends() {
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
                        self.reporter.says_failed(turn, "refresh", &error);
                        false
                    }
                },
            };
            let lasts = lasts();
            if was_lost || permit.is_lost() {
                self.reporter.say(What::Lost { turn });
                return;
            }
            if lasts > until + LOOK.as_nanos() as u64 {
                until = lasts;
                self.reporter.say(What::Refreshed { turn, until, by_hand });
            }
        }
        self.give_back(turn, permit, is_careless).await;
    }

    fn offer_and_hold(&self, turn: u64, permit: &Permit) {
        let (id, token, name) = (permit.id(), permit.fencing_token(), self.semaphore.name());
        let ms = permit.expires_in().as_millis();
        let detached = format!("{id} {token} {ms} {name}");
        self.reporter.say(What::Offers { turn, detached });
    }

    async fn give_back(&mut self, turn: u64, permit: Permit, was_offered: bool) {
        let random = self.random.u32(0..200);
        let how = match (self.kind.special, random % 8) {
            (Special::Changes, _) if random == 0 => How::Forget,
            (Special::Passes, _) if random < 30 && !was_offered && !self.reporter.ends() => {
                How::Pass
            }
            (Special::Leaves, 0..3) => How::Leave,
            (Special::Leaves, 3) => How::DroppedLeave,
            (Special::Leaves, 4..7) => How::LeavingDrop,
            (_, 0..3) => How::Release,
            (_, 3) => How::DroppedRelease,
            (Special::Leaves, _) => How::Release,
            _ => How::Drop,
        };
        self.reporter.say(What::Releases { turn, how });
        let moment = self.moment();
        let (name, response) = match how {
            How::Drop | How::LeavingDrop => return drop(permit),
            How::Pass => {
                let detached = permit.detach().to_string();
                return self.reporter.say(What::Offers { turn, detached });
            }
            How::DroppedRelease => match timeout(moment, permit.release()).await {
                Ok(response) => ("release", response),
                Err(_) => return,
            },
            How::DroppedLeave => match timeout(moment, permit.let_expire()).await {
                Ok(response) => ("let_expire", response),
                Err(_) => return,
            },
            How::Release => ("release", permit.release().await),
            How::Leave => ("let_expire", permit.let_expire().await),
            How::Forget => ("forget", permit.forget().await),
        };
        match response {
            Ok(()) => self.reporter.say(What::Released { turn, held: true }),
            Err(Error::Lost { .. }) => self.reporter.say(What::Released { turn, held: false }),
            Err(error) => self.reporter.says_failed(turn, name, &error),
        }
    }
}
