//! The scripts that take no batch, each as a function: arguments in, reply out. `docs/protocol.md`
//! tells what they mean.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Arg, Cmd, FromRedisValue};

use crate::batching::{Owner, Request};
use crate::error::Error;
use crate::protocol::word::{self, LONGEST_LEASE};
use crate::protocol::{InspectReply, millis, wake_in_of};
use crate::semaphore::claim::Claim;
use crate::semaphore::gate::{Gate, Limit};
use crate::semaphore::requests::{Refresh, Release};
use crate::semaphore::shared::Undone;
use crate::server::Answer;

pub(crate) enum LimitAction {
    Declare(u32),
    /// Where the server knows of no limit.
    Declared(u32),
    Initial(u32),
    Set(u32),
    Add(u32),
    Clear,
}

impl LimitAction {
    /// What was called for it, as errors name it.
    fn operation(&self) -> &'static str {
        match self {
            // Nobody calls that: it is part of another call.
            Self::Declare(_) | Self::Declared(_) | Self::Initial(_) => "limit",
            Self::Set(_) => "set_limit",
            Self::Add(_) => "add_permits",
            Self::Clear => "clear_limit",
        }
    }
}

pub(crate) struct Limits {
    pub(crate) in_force: i64,
    pub(crate) before: i64,
    pub(crate) declared_before: i64,
}

impl Gate {
    async fn call<T: FromRedisValue + Send + 'static>(
        self: &Arc<Self>,
        script: &'static str,
        operation: &'static str,
        patience: Duration,
        write: impl Fn(&mut Cmd),
    ) -> Result<Answer<T>, Error> {
        let mut arguments = Cmd::new();
        self.write_keys(&mut arguments);
        write(&mut arguments);
        let gate = self.clone();
        let run = Box::pin(async move {
            let write = |cmd: &mut Cmd| copy_arguments(&arguments, cmd);
            gate.shared().servers.run(gate.slot, script, write, patience).await
        });
        let answer = match self.client.is_at_home() {
            true => Ok(run.await),
            false => self.client.by_a_task(patience, run).await,
        };
        let answer = answer.map_err(|undone| self.undone(operation, patience, undone))?;
        answer.map_err(|failure| self.error(operation, failure))
    }

    fn undone(&self, operation: &'static str, elapsed: Duration, undone: Undone) -> Error {
        match undone {
            Undone::Rests => self.home_rests(operation, elapsed),
            Undone::Ended => Error::Shutdown,
        }
    }

    /// A script that stopped at its bound wants `wake` at once.
    pub(crate) fn heed_bound(self: &Arc<Self>, wake_in: i64) {
        if wake_in == 0 {
            self.wake_at(Instant::now());
        }
    }

    /// Refreshes at most 1,000 permits at once. Answers for each whether it is still held.
    pub(crate) async fn refresh(
        self: &Arc<Self>,
        requests: &[(&Claim, Duration)],
        patience: Duration,
    ) -> Result<Answer<Vec<bool>>, Error> {
        let answer: Answer<Vec<i64>> = self
            .call(Refresh::SCRIPT, Refresh::SCRIPT, patience, |cmd| {
                for (claim, duration) in requests {
                    cmd.arg(&claim.word).arg(millis(*duration));
                }
            })
            .await?;
        let Answer { sent, reply, is_repeated } = answer;
        Ok(Answer { sent, reply: Refresh::read(self, &reply, requests.len()), is_repeated })
    }

    /// Answers when to call again, and the length of the queue.
    pub(crate) async fn wake(self: &Arc<Self>) -> Result<(Option<Duration>, u64), Error> {
        let patience = self.shared().settings.patience();
        let answer: Answer<(i64, i64, u64)> = self.call("wake", "wake", patience, |_| {}).await?;
        let (_, next, queued) = answer.reply;
        Ok((wake_in_of(next), queued))
    }

    /// Releases permits that nobody here wants. It goes on until they are released, or their leases
    /// have ended anyway.
    pub(crate) async fn release_unwanted(self: &Arc<Self>, words: &[String]) -> Result<(), Error> {
        let patience = self.settings.lease.max(self.shared().settings.patience());
        let write = |cmd: &mut Cmd| {
            cmd.arg("return").arg(words);
        };
        let answer: Answer<Vec<i64>> =
            self.call(Release::SCRIPT, Release::SCRIPT, patience, write).await?;
        Release::read(self, &answer.reply, words.len());
        Ok(())
    }

    pub(crate) async fn limit(
        self: &Arc<Self>,
        action: LimitAction,
        patience: Duration,
    ) -> Result<Limits, Error> {
        let operation = action.operation();
        // What is changed is what the configuration says, where the server knows of nothing else: it
        // may have forgotten what it was told.
        let is_declared = self.is_declared();
        let configured = match self.settings.limit {
            Limit::Declared(limit) if is_declared => LimitAction::Declared(limit),
            Limit::Declared(limit) => LimitAction::Declare(limit),
            Limit::Initial(permits) => LimitAction::Initial(permits),
        };
        let limits = self.change_limit(configured, operation, patience).await?;
        self.was_declared(limits.declared_before);
        self.change_limit(action, operation, patience).await
    }

    async fn change_limit(
        self: &Arc<Self>,
        action: LimitAction,
        operation: &'static str,
        patience: Duration,
    ) -> Result<Limits, Error> {
        // One for all attempts: a change that comes again counts once.
        let mark = self.mark(patience);
        let answer: Answer<(i64, i64, i64, i64, i64, i64)> = self
            .call("limit", operation, patience, |cmd| {
                match action {
                    LimitAction::Declare(limit) => cmd.arg("declare").arg(limit),
                    LimitAction::Declared(limit) => cmd.arg("declared").arg(limit),
                    LimitAction::Initial(limit) => cmd.arg("initial").arg(limit),
                    LimitAction::Set(limit) => cmd.arg("set").arg(limit).arg(&mark),
                    LimitAction::Add(permits) => cmd.arg("add").arg(permits).arg(&mark),
                    LimitAction::Clear => cmd.arg("clear").arg(&mark),
                };
            })
            .await?;
        let (_, next, in_force, before, _, declared_before) = answer.reply;
        self.heed_bound(next);
        Ok(Limits { in_force, before, declared_before })
    }

    /// A word without weight, which the server keeps for as long as a call may still reach it.
    fn mark(&self, patience: Duration) -> String {
        let shared = self.shared();
        let latest = patience.saturating_add(shared.settings.longest_trip());
        let lease = millis(latest.min(LONGEST_LEASE));
        let start = word::start(&format!("N:{}:", shared.name), 0, lease);
        format!("{start}{}", uuid::Uuid::new_v4().simple())
    }

    pub(crate) async fn inspect_page(
        self: &Arc<Self>,
        operation: &'static str,
        holders: (u64, u64),
        waiters: (u64, u64),
    ) -> Result<InspectReply, Error> {
        let patience = self.shared().settings.patience();
        let write = |cmd: &mut Cmd| {
            cmd.arg(holders.0).arg(holders.1).arg(waiters.0).arg(waiters.1);
        };
        Ok(self.call("inspect", operation, patience, write).await?.reply)
    }
}

fn copy_arguments(from: &Cmd, to: &mut Cmd) {
    for argument in from.args_iter() {
        if let Arg::Simple(argument) = argument {
            to.arg(argument);
        }
    }
}
