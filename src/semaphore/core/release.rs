//! Releasing: the request that goes out in batches.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::Cmd;
use tokio::time::Instant;

use super::{Core, Task};
use crate::batching::{Batcher, InFlight, Kinds, Request};
use crate::error::Error;
use crate::protocol::released;
use crate::runtime::Deadline;
use crate::semaphore::acquisition::{self, Acquisition};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ReleaseMode {
    Return,
    /// The permit is used up: its weight comes off the limit.
    Consume,
}

pub(crate) struct Release {
    pub(crate) acquisition: Arc<Acquisition>,
    pub(crate) mode: ReleaseMode,
}

impl Request for Release {
    const SCRIPT: &'static str = "release";
    const KIND: Kinds = acquisition::RELEASE;
    const AFTER: Kinds = acquisition::ACQUIRE | acquisition::ADOPT | acquisition::RELEASE;
    type Owner = Core;
    /// Whether it held a permit.
    type Reply = bool;

    fn batcher(core: &Core) -> &Batcher<Self> {
        &core.releases
    }

    fn operation(&self) -> &'static str {
        match self.mode {
            ReleaseMode::Return => "release",
            ReleaseMode::Consume => "forget",
        }
    }

    fn in_flight(&self) -> &InFlight {
        &self.acquisition.in_flight
    }

    fn joins(&self, first: &Self, _core: &Core) -> bool {
        self.mode == first.mode
    }

    fn write_first(&self, _core: &Core, cmd: &mut Cmd) {
        cmd.arg(match self.mode {
            ReleaseMode::Return => "return",
            ReleaseMode::Consume => "consume",
        });
    }

    fn write(&self, _core: &Core, cmd: &mut Cmd) {
        cmd.arg(&self.acquisition.word);
    }

    /// They were held until now: a message that comes late may not take a permit that is to be
    /// consumed. What may still reach the server has done so, or never will, when they are released
    /// again.
    fn answered<'a>(
        core: &Arc<Core>,
        _sent: Instant,
        answers: impl Iterator<Item = (&'a Self, &'a bool)> + Clone,
    ) {
        core.hold_no_more(answers.clone().map(|(request, _)| &*request.acquisition));
        for (request, _) in answers.filter(|(request, _)| request.acquisition.take_doubt()) {
            let at = Instant::now() + core.context.settings.longest_trip();
            core.enqueue(Task::ReleaseAgain(request.acquisition.clone(), at));
        }
    }

    fn read(core: &Arc<Core>, reply: &[i64], count: usize) -> Vec<bool> {
        released(core.statuses(reply), count)
    }
}

impl Core {
    /// Gives back in the background whatever the server has for this: by the maintenance, or by a
    /// task of its own where that has ended.
    pub(crate) fn give_back(self: &Arc<Self>, acquisition: &Arc<Acquisition>, mode: ReleaseMode) {
        if !self.enqueue(Task::Release(acquisition.clone(), mode)) {
            let (core, given_back) = (self.clone(), [(acquisition.clone(), mode)]);
            let patience = self.context.settings.patience();
            self.context.spawn_tracked(async move {
                core.release_all(&given_back, |_| patience).await;
            });
        }
    }

    /// Releases these, and goes on until Redis confirms it, or patience has ended.
    pub(crate) async fn release_all(
        self: &Arc<Self>,
        releases: &[(Arc<Acquisition>, ReleaseMode)],
        patience: impl Fn(&Acquisition) -> Duration,
    ) {
        let started = Instant::now();
        let ask = |(acquisition, mode): &(Arc<Acquisition>, ReleaseMode)| {
            let deadline = Deadline::since(started, patience(acquisition));
            let (acquisition, mode) = (acquisition.clone(), *mode);
            self.insist(deadline, move || {
                self.ask_along(Release { acquisition: acquisition.clone(), mode }, deadline)
            })
        };
        let released = join_all(releases.iter().map(ask)).await;
        let failed: Vec<_> = released.into_iter().filter_map(Result::err).collect();
        // Those that failed, too: nobody asks for them any more.
        self.hold_no_more(releases.iter().map(|(acquisition, _)| &**acquisition));
        if let Some(error) = failed.first() {
            self.warn_of_unreleased(failed.len(), started, error);
        }
    }

    pub(crate) fn warn_of_unreleased(&self, permits: usize, started: Instant, error: &Error) {
        tracing::warn!(
            semaphore = self.name,
            permits,
            after = ?started.elapsed(),
            %error,
            "could not give permits back; their leases end by themselves"
        );
    }
}
