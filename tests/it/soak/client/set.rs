//! A client task that acquires permits of several semaphores in one call.

use std::sync::Arc;
use std::time::Duration;

use redis_semaphore::{Error, Permits, acquire_all};
use tokio::time::sleep;

use super::super::history::{Call, How, What, Why, now};
use super::super::{KINDS, Special};
use super::task::Task;
use super::teller::Teller;

/// A task whose turns acquire several semaphores. While the task acquires, it holds no other
/// permit.
pub struct SetTask {
    /// One task for each semaphore. Each turn uses some of these tasks.
    of: Vec<Task>,
    teller: Arc<Teller>,
    random: fastrand::Rng,
}

impl SetTask {
    pub const TASKS: usize = 3;

    pub fn new(tasks: &[Task], seed: u64) -> Self {
        let is_of_set = |task: &&Task| KINDS[task.number].special == Special::OfSet;
        let of: Vec<_> = tasks.iter().filter(is_of_set).cloned().collect();
        let (teller, random) = (of[0].teller.clone(), fastrand::Rng::with_seed(seed));
        Self { of, teller, random }
    }

    pub async fn run(mut self) {
        while !self.teller.ends() {
            self.turn().await;
        }
    }

    /// Acquires permits of two semaphores or of all semaphores, in random order.
    async fn turn(&mut self) {
        self.random.shuffle(&mut self.of);
        let some = &self.of[..self.random.usize(2..=self.of.len())];
        let turns: Vec<_> = some.iter().map(|_| self.teller.turn()).collect();
        for (task, turn) in some.iter().zip(&turns) {
            let (turn, semaphore, call) = (*turn, task.number, Call::AcquireAll);
            self.teller.say(What::Asks { turn, semaphore, weight: 1, call, ahead: 0 });
        }
        let permits = tokio::select! {
            permits = acquire_all(some.iter().map(|task| task.semaphore.request())) => Some(permits),
            () = self.teller.drained() => None,
        };
        match permits {
            Some(Ok(permits)) => return self.hold(&turns, permits).await,
            Some(Err(error)) => self.teller.says_failed(turns[0], "acquire_all", &error),
            None => {}
        }
        let why = Why::Failed;
        turns.iter().for_each(|turn| self.teller.say(What::GivesUp { turn: *turn, why }));
    }

    async fn hold(&mut self, turns: &[u64], permits: Permits) {
        let each = || turns.iter().copied().zip(permits.as_slice());
        for ((turn, permit), task) in each().zip(&self.of) {
            let until = now() + permit.expires_in().as_nanos() as u64;
            let (semaphore, token, id) =
                (task.number, permit.fencing_token(), permit.id().to_owned());
            self.teller.say(What::Holds { turn, semaphore, token, until, id });
        }
        let work = Duration::from_millis(self.random.u64(1..15));
        tokio::select! {
            () = permits.lost() => {}
            () = sleep(work) => {}
        }
        let how = if self.random.bool() { How::Release } else { How::Drop };
        for (turn, permit) in each() {
            self.teller.say(match permit.is_lost() {
                true => What::Lost { turn },
                false => What::Releases { turn, how },
            });
        }
        if how == How::Drop || permits.is_lost() {
            return;
        }
        match permits.release().await {
            Ok(()) => {
                turns.iter().for_each(|turn| {
                    self.teller.say(What::Released { turn: *turn, held: true });
                });
            }
            // The error does not say which permit was lost.
            Err(Error::Lost { .. }) => {}
            Err(error) => self.teller.says_failed(turns[0], "release", &error),
        }
    }
}
