//! Sends requests: a request enters its batcher, and a caller or a task makes the calls until no
//! request waits.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_util::FutureExt;
use tokio::sync::SemaphorePermit;
use tokio::sync::oneshot::{self, error::RecvError};

use super::dispatch::Dispatch;
use super::{Batcher, Calls, Outcome, Owner, Reply, Request, Waiting};
use crate::error::Error;
use crate::runtime::{Deadline, is_current};

impl<R: Request> Batcher<R> {
    /// Sends a request, alone or with others, and retries it after transient failures until the
    /// deadline. If `may_drive` is false, a task makes the calls.
    pub(crate) async fn ask(
        owner: &Arc<R::Owner>,
        request: R,
        deadline: Deadline,
        may_drive: bool,
    ) -> Reply<R> {
        let mut asked = Asked::new(owner, request, deadline, may_drive)?;
        match poll_fn(|cx| asked.poll(cx)).await {
            Ok(Outcome::Answer(answer)) => Ok(answer),
            Ok(Outcome::Failed(error)) => Err(*error),
            // The I/O runtime has ended.
            Err(_) => Err(Error::Shutdown),
        }
    }

    /// Lets a task continue the calls that a caller drives, because other requests now depend on
    /// these calls.
    pub(crate) fn take_over(owner: &Arc<R::Owner>) {
        let mut state = R::batcher(owner).state();
        state.needs_task |= state.is_dispatching;
        if let Some(calls) = state.calls.take() {
            drop(state);
            owner.spawn(calls);
        }
    }

    /// Adds a request. The first caller drives (polls) the calls, and the second caller moves the
    /// calls to a task. The first caller also uses a task if many requests will follow immediately,
    /// or if too many callers drive calls.
    fn enter(
        owner: &Arc<R::Owner>,
        mut waiting: Waiting<R>,
        may_drive: bool,
    ) -> Result<Option<Driver<'_, R>>, Error> {
        let batcher = R::batcher(owner);
        let mut state = batcher.state();
        // The check is a system call, which would be too slow for every request. In a forked
        // process, no call of the parent ever ends.
        let may_drive = may_drive && is_current(owner.home());
        if !state.is_dispatching || !may_drive {
            owner.check_process()?;
        }
        state.arrivals += 1;
        waiting.number = state.arrivals;
        state.waiting.push_back(waiting);
        state.needs_task = std::mem::replace(&mut state.is_dispatching, true);
        if !state.needs_task {
            state.calls = Some(Dispatch::<R>::new(owner).run().boxed());
            state.generation += 1;
            if may_drive
                && !owner.is_rush()
                && let Some(slot) = owner.try_drive()
            {
                return Ok(Some(Driver { owner, generation: state.generation, _slot: slot }));
            }
        }
        let calls = state.calls.take();
        let is_wanted = std::mem::take(&mut state.wants_next);
        drop(state);
        if let Some(calls) = calls {
            owner.spawn(calls);
        }
        if is_wanted {
            batcher.changed.notify_one();
        }
        Ok(None)
    }
}

/// A request in its batcher, and the calls that its caller drives.
struct Asked<'a, R: Request> {
    driver: Option<Driver<'a, R>>,
    answer: oneshot::Receiver<Outcome<R>>,
}

impl<'a, R: Request> Asked<'a, R> {
    fn new(
        owner: &'a Arc<R::Owner>,
        request: R,
        deadline: Deadline,
        may_drive: bool,
    ) -> Result<Self, Error> {
        let (reply, answer) = oneshot::channel();
        let (is_repeated, last) = (false, None);
        let waiting = Waiting { number: 0, request, deadline, is_repeated, last, reply };
        Ok(Self { driver: Batcher::enter(owner, waiting, may_drive)?, answer })
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Outcome<R>, RecvError>> {
        if let Some(driver) = &mut self.driver {
            // This task may produce the reply while it drives the calls. The reply must not wake
            // the task.
            let before = self.answer.poll_unpin(&mut Context::from_waker(Waker::noop()));
            if before.is_ready() {
                return before;
            }
            driver.drive(cx);
        }
        self.answer.poll_unpin(cx)
    }
}

/// The caller that began to make calls, until it has its reply or a task has taken over.
struct Driver<'a, R: Request> {
    owner: &'a Arc<R::Owner>,
    generation: u64,
    /// Limits the number of drivers.
    _slot: SemaphorePermit<'a>,
}

impl<R: Request> Driver<'_, R> {
    fn drive(&mut self, cx: &mut Context<'_>) {
        let Some(mut calls) = self.take_calls() else {
            return;
        };
        // A runtime other than the I/O runtime may end before the calls do. The timers of that
        // runtime then end, too.
        if !is_current(self.owner.home()) {
            self.owner.spawn(calls);
            return;
        }
        if calls.poll_unpin(cx).is_pending() {
            let mut state = R::batcher(self.owner).state();
            if state.needs_task {
                drop(state);
                self.owner.spawn(calls);
            } else {
                state.calls = Some(calls);
            }
        }
    }

    fn take_calls(&mut self) -> Option<Calls> {
        let mut state = R::batcher(self.owner).state();
        if state.generation == self.generation { state.calls.take() } else { None }
    }
}

impl<R: Request> Drop for Driver<'_, R> {
    /// Lets a task make the remaining calls.
    fn drop(&mut self) {
        if let Some(calls) = self.take_calls() {
            self.owner.spawn(calls);
        }
    }
}
