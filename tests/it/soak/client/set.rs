//! A client task that acquires permits of several semaphores in one call.

use std::sync::Arc;
use std::time::Duration;

use redis_semaphore::{Error, Permits, acquire_all};
use tokio::time::sleep;

use super::super::history::{Call, How, What, Why, now};
use super::super::{KINDS, Special};
use super::reporter::Reporter;
use super::task::Task;

/// A task whose turns acquire several semaphores. While the task acquires, it holds no other
/// permit.
pub struct SetTask {
    /// One task for each semaphore. Each turn uses some of these tasks.
    of: Vec<Task>,
    reporter: Arc<Reporter>,
    random: fastrand::Rng,
}

impl SetTask {
    pub const TASKS: usize = 3;

    pub fn new(tasks: &[Task], seed: u64) -> Self {
        let is_of_set = |task: &&Task| KINDS[task.number].special == Special::OfSet;
        let of: Vec<_> = tasks.iter().filter(is_of_set).cloned().collect();
        let (reporter, random) = (of[0].reporter.clone(), fastrand::Rng::with_seed(seed));
        Self { of, reporter, random }
    }

    pub async fn run(mut self) {
        while !self.reporter.ends() {
            self.turn().await;
        }
    }

    /// Acquires permits of two semaphores or of all semaphores, in random order.
    async fn turn(&mut self) {
        self.random.shuffle(&mut self.of);
        let some = &self.of[..self.random.usize(2..=self.of.len())];
        let turns: Vec<_> = some.iter().map(|_| self.reporter.turn()).collect();
        for (task, turn) in some.iter().zip(&turns) {
            let (turn, semaphore, call) = (*turn, task.number, Call::AcquireAll);
            self.reporter.say(What::Asks { turn, semaphore, weight: 1, group: 0, call, ahead: 0 });
        }
        let permits = tokio::select! {
            permits = acquire_all(some.iter().map(|task| task.semaphore.request())) => Some(permits),
            () = self.reporter.drained() => None,
        };
        match permits {
            Some(Ok(permits)) => return self.hold(&turns, permits).await,
            Some(Err(error)) => self.reporter.says_failed(turns[0], "acquire_all", &error),
            None => {}
        }
        let why = Why::Failed;
        turns.iter().for_each(|turn| self.reporter.say(What::GivesUp { turn: *turn, why }));
    }

    async fn hold(&mut self, turns: &[u64], permits: Permits) {
        let each = || turns.iter().copied().zip(permits.as_slice());
        for ((turn, permit), task) in each().zip(&self.of) {
            let until = now() + permit.expires_in().as_nanos() as u64;
            let (semaphore, token, id) =
                (task.number, permit.fencing_token(), permit.id().to_owned());
            self.reporter.say(What::Holds { turn, semaphore, token, until, id });
        }
        let work = Duration::from_millis(self.random.u64(1..15));
        tokio::select! {
            () = permits.lost() => {}
            () = sleep(work) => {}
        }
        let how = if self.random.bool() { How::Release } else { How::Drop };
        for (turn, permit) in each() {
            self.reporter.say(match permit.is_lost() {
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
                    self.reporter.say(What::Released { turn: *turn, held: true });
                });
            }
            // The error does not contain which permit was lost.
            Err(Error::Lost { .. }) => {}
            Err(error) => self.reporter.says_failed(turns[0], "release", &error),
        }
    }
}
