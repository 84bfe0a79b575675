//! An acquire, from the first request to the permit.
//!
//! The future may be dropped at any point. [`Pending`] then ends the acquisition, and has the
//! maintenance give back whatever the server has or will have for its ID.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use redis::ErrorKind;
use tokio::time::Instant;
use tracing::Instrument;

use crate::batching::Owner;
use crate::error::Error;
use crate::metrics::Origin;
use crate::protocol::{Acquired, ReleaseMode};
use crate::runtime::{Deadline, clock, within};
use crate::semaphore::Permit;
use crate::semaphore::acquisition::{ACQUIRE, ADOPT, Acquisition};
use crate::semaphore::core::{Acquire, Core, IfFull, Refresh, Task};
use crate::semaphore::lease::{Grant, lasts};
use crate::server::Failure;

/// Calls of a try in a row for which the server says that it has more ended leases to purge. Each
/// removes a thousand.
const MAX_TRIES: u32 = 1000;

/// Grants in a row that were over before they could be handed out. A few may come of a thread that
/// was busy for once.
const MAX_LATE_GRANTS: u32 = 5;

/// So many times its age a lease must last for its permit to be handed out as it is: one that a
/// reply brought, as another trip would take as long,
pub(super) const AGES_BY_REPLY: u32 = 2;
/// and one that a message told of, so that two thirds of it are left at its first renewal.
const AGES_BY_MESSAGE: u32 = 6;

/// An acquisition that is not a permit yet.
pub(super) struct Pending<'a> {
    core: &'a Arc<Core>,
    acquisition: &'a Arc<Acquisition>,
    /// The server has nothing of it, or it has become a permit.
    pub(super) is_settled: bool,
}

impl<'a> Pending<'a> {
    pub(super) fn new(core: &'a Arc<Core>, acquisition: &'a Arc<Acquisition>) -> Self {
        Self { core, acquisition, is_settled: false }
    }

    /// A script that refuses a request has changed nothing: unless an earlier one may have, there
    /// is nothing to give back, and that would be refused, too.
    fn refused(&mut self, error: Error, late_grants: u32) -> Error {
        let is_known =
            late_grants > 0 || self.acquisition.is_in_doubt() || self.acquisition.place().is_some();
        if !is_known && error.has_changed_nothing() {
            self.is_settled = true;
            self.core.waits().remove(&self.acquisition.number);
        }
        error
    }

    fn into_waited_permit(self, grant: Grant, was_queued: bool) -> Result<Permit, Error> {
        // What was granted at once is in the table of what is held already.
        if was_queued {
            self.core.hold(std::iter::once(self.acquisition), grant.since);
            self.core.waits().remove(&self.acquisition.number);
        }
        let origin = if was_queued { Origin::FromTheQueue } else { Origin::AtOnce };
        self.into_permit(grant, origin)
    }

    /// Fails after a shutdown, and if the semaphore was closed: both may have taken the wait away.
    pub(super) fn into_permit(mut self, grant: Grant, origin: Origin) -> Result<Permit, Error> {
        if self.acquisition.is_over() || self.core.closing.is_ended() {
            return Err(self.core.ended());
        }
        self.is_settled = true;
        Ok(Permit::new(self.core.clone(), self.acquisition.clone(), grant, origin))
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        // A shutdown or a close gives back what it has taken away.
        if self.is_settled || self.acquisition.is_over() {
            return;
        }
        self.acquisition.abandon();
        self.core.waits().remove(&self.acquisition.number);
        // What is not under way now is never sent: it is over.
        if self.acquisition.was_sent() || self.acquisition.in_flight.has(ACQUIRE | ADOPT) {
            self.core.give_back(self.acquisition, ReleaseMode::Return);
        }
    }
}

impl Core {
    pub(super) fn check(&self, weight: u32) -> Result<(), Error> {
        if weight == 0 {
            return Err(Error::invalid("weight", "must be at least 1, not 0"));
        }
        if self.closing.is_shut_down() {
            return Err(Error::Shutdown);
        }
        Ok(())
    }

    /// Fails when nobody listens to the wake-ups of this semaphore for so long.
    async fn listen_first(self: &Arc<Self>, patience: Duration) -> Result<(), Error> {
        let deadline = Instant::now().checked_add(patience);
        if self.context.until(deadline, self.channel.heard()).await.is_some() {
            return Ok(());
        }
        if self.context.is_shut_down() {
            return Err(Error::Shutdown);
        }
        let last = (ErrorKind::Io, "no node could be listened to for wake-ups").into();
        Err(self.error("acquire", Failure::no_answer(patience, last)))
    }

    pub(crate) fn try_acquire(
        self: &Arc<Self>,
        weight: u32,
    ) -> impl Future<Output = Result<Option<Permit>, Error>> {
        let span = tracing::debug_span!("try_acquire", semaphore = self.name, weight);
        async move {
            let permit = self.unless_ended(pin!(self.try_now(weight))).await;
            if matches!(permit, Ok(None)) {
                self.meter.not_granted();
            }
            permit
        }
        .instrument(span)
    }

    /// With a head start, in ms. Best pinned where it is made: it is large, and awaiting it as it
    /// is moves it first.
    pub(crate) fn acquire_within(
        self: &Arc<Self>,
        weight: u32,
        head_start: u32,
        timeout: Option<Duration>,
    ) -> impl Future<Output = Result<Permit, Error>> {
        let span = tracing::debug_span!("acquire", semaphore = self.name, weight, ?timeout);
        async move { self.unless_ended(pin!(self.wait_at_most(weight, head_start, timeout))).await }
            .instrument(span)
    }

    pub(super) async fn unless_ended<T>(
        &self,
        acquire: Pin<&mut impl Future<Output = Result<T, Error>>>,
    ) -> Result<T, Error> {
        let asking = self.meter.asks();
        let answer = self.closing.unless_ended(acquire).await;
        let answer = answer.unwrap_or_else(|| Err(self.ended()));
        asking.ended(&answer);
        answer.inspect_err(|error| tracing::debug!(%error))
    }

    /// Why nothing is acquired any more.
    fn ended(&self) -> Error {
        match self.closing.is_shut_down() {
            false if self.closing.is_closed() => Error::Closed { semaphore: self.name.clone() },
            _ => Error::Shutdown,
        }
    }

    async fn try_now(self: &Arc<Self>, weight: u32) -> Result<Option<Permit>, Error> {
        let patience = self.context.settings.call_timeout();
        self.check(weight)?;
        let acquisition = self.acquisition(weight, 0);
        self.try_for(&acquisition, patience).await
    }

    async fn try_for(
        self: &Arc<Self>,
        acquisition: &Arc<Acquisition>,
        patience: Duration,
    ) -> Result<Option<Permit>, Error> {
        let mut pending = Pending::new(self, acquisition);
        let mut deadline = Deadline::since(acquisition.created, patience);
        let mut late_grants = 0;
        for _ in 0..MAX_TRIES {
            let if_full = IfFull::Refuse("try_acquire");
            let request = Acquire { acquisition: acquisition.clone(), if_full };
            let answer = self.ask(request, deadline).await;
            let answer = answer.map_err(|error| pending.refused(error, late_grants))?;
            deadline = Deadline::after(patience);
            match answer.reply.acquired {
                Acquired::Granted { token } => {
                    let grant = Grant { token, since: answer.sent };
                    match self
                        .confirm(acquisition, grant, AGES_BY_REPLY, "try_acquire", patience)
                        .await?
                    {
                        Some(grant) => return pending.into_permit(grant, Origin::AtOnce).map(Some),
                        None => self.count_late(&mut late_grants)?,
                    }
                }
                // Refused, but ended leases are still being purged.
                _ if answer.reply.has_more => {}
                _ => {
                    // An earlier attempt may still reach the server, or came to be held too late.
                    pending.is_settled = !acquisition.is_in_doubt() && late_grants == 0;
                    break;
                }
            }
        }
        Ok(None)
    }

    /// A request that may not wait: as tokio's `timeout` does, it still looks once.
    async fn without_waiting(self: &Arc<Self>, weight: u32) -> Result<Permit, Error> {
        let started = Instant::now();
        Box::pin(self.try_now(weight)).await?.ok_or_else(|| Error::Timeout {
            semaphore: self.name.clone(),
            waited: started.elapsed(),
            position: None,
        })
    }

    async fn wait_at_most(
        self: &Arc<Self>,
        weight: u32,
        head_start: u32,
        timeout: Option<Duration>,
    ) -> Result<Permit, Error> {
        if timeout == Some(Duration::ZERO) {
            return self.without_waiting(weight).await;
        }
        self.check(weight)?;
        let acquisition = self.acquisition(weight, head_start);
        let started = acquisition.created;
        let mut wait = pin!(self.wait_in_queue(&acquisition, head_start));
        let deadline = timeout.and_then(|timeout| started.checked_add(timeout));
        self.context.until(deadline, &mut wait).await.unwrap_or_else(|| {
            if self.context.is_shut_down() {
                return Err(Error::Shutdown);
            }
            let (semaphore, waited) = (self.name.clone(), started.elapsed());
            if self.context.servers.are_away() && clock::is_paused() {
                let last = (ErrorKind::Io, clock::PAUSED).into();
                return Err(self.error("acquire", Failure::NoAnswer { elapsed: waited, last }));
            }
            let position = acquisition.place().map(|place| place.position);
            Err(Error::Timeout { semaphore, waited, position })
        })
    }

    async fn wait_in_queue(
        self: &Arc<Self>,
        acquisition: &Arc<Acquisition>,
        head_start: u32,
    ) -> Result<Permit, Error> {
        let patience = self.context.settings.tolerance();
        let mut pending = Pending::new(self, acquisition);
        let mut deadline = Deadline::since(acquisition.created, patience);
        let (mut late_grants, mut was_queued) = (0, false);
        loop {
            // A free permit needs nobody to listen.
            let if_full = match self.channel.is_heard() {
                true => IfFull::Queue { head_start },
                false => {
                    self.channel.want();
                    IfFull::Refuse("acquire")
                }
            };
            let request = Acquire { acquisition: acquisition.clone(), if_full };
            let answer = self.ask(request, deadline).await;
            let answer = answer.map_err(|error| pending.refused(error, late_grants))?;
            let grant = match answer.reply.acquired {
                Acquired::Granted { token } => Grant { token, since: answer.sent },
                Acquired::Queued(place) => {
                    was_queued = true;
                    acquisition.queued(answer.sent, answer.reply.server_time, place);
                    self.enqueue(Task::Heartbeat);
                    let _waiting = self.meter.waits();
                    Box::pin(self.outcome(acquisition)).await?
                }
                Acquired::NotGranted if matches!(if_full, IfFull::Refuse(_)) => {
                    Box::pin(self.listen_first(patience)).await?;
                    deadline = Deadline::after(patience);
                    continue;
                }
                Acquired::NotGranted => {
                    let text = "it refuses what it must queue: are these scripts ours?";
                    let refusal = (ErrorKind::UnexpectedReturnType, text).into();
                    return Err(self.error("acquire", Failure::Rejected(refusal)));
                }
            };
            let ages = if was_queued { AGES_BY_MESSAGE } else { AGES_BY_REPLY };
            match self.confirm(acquisition, grant, ages, "acquire", patience).await? {
                Some(grant) => return pending.into_waited_permit(grant, was_queued),
                None => self.count_late(&mut late_grants)?,
            }
            deadline = Deadline::after(patience);
            acquisition.open();
        }
    }

    /// Of a permit that had been lost before its caller could have it. The request goes out again,
    /// unless that does not help.
    fn count_late(&self, late_grants: &mut u32) -> Result<(), Error> {
        *late_grants += 1;
        if *late_grants < MAX_LATE_GRANTS {
            return Ok(());
        }
        let (semaphore, lease) = (self.name.clone(), self.settings.first_lease());
        Err(Error::LeaseTooShort { semaphore, lease })
    }

    /// Waits until a heartbeat or a message tells what becomes of a request in the queue. A caller
    /// in another runtime does not rely on that: nobody may drive the maintenance.
    async fn outcome(self: &Arc<Self>, acquisition: &Arc<Acquisition>) -> Result<Grant, Error> {
        let settings = &self.context.settings;
        // The maintenance gives up with the first heartbeat that fails after the tolerance.
        let silence = settings.heartbeat_interval().saturating_add(settings.call_timeout());
        let patience = settings.tolerance().saturating_add(silence);
        let outcome = acquisition.await_outcome();
        let outcome = async {
            outcome.await.map_or(Err(Error::Shutdown), |outcome| outcome.map_err(|error| *error))
        };
        let mut outcome = pin!(outcome);
        loop {
            let asked = acquisition.asked();
            let deadline = Deadline::since(asked, patience);
            if let Some(outcome) = within(self.context.runtime(), deadline, &mut outcome).await {
                return outcome;
            }
            if acquisition.asked() == asked {
                return Err(self.home_stalled("acquire", deadline.elapsed()));
            }
        }
    }

    /// A permit that came by message, or whose future was not polled for a while, may have used up
    /// much of its lease without our knowing. One that lasts for less than so many times its age is
    /// renewed before it is handed out; `None` when it was lost already.
    pub(super) async fn confirm(
        self: &Arc<Self>,
        acquisition: &Arc<Acquisition>,
        grant: Grant,
        ages: u32,
        operation: &'static str,
        patience: Duration,
    ) -> Result<Option<Grant>, Error> {
        let duration = self.settings.first_lease();
        let confirmed = if let Some(wanted) = self.settings.acknowledgement {
            let acknowledged = self.acknowledge(wanted, acquisition, grant, operation, patience);
            Box::pin(acknowledged).await?
        } else {
            let now = Instant::now();
            if (now - grant.since) * ages <= duration {
                return Ok(Some(grant));
            }
            let request = Refresh { acquisition: acquisition.clone(), duration, operation };
            let asked = self.ask(request, Deadline::since(now, patience));
            let answer = Box::pin(asked).await?;
            answer.reply.then_some(Grant { since: answer.sent, ..grant })
        };
        // Last, in the poll that returns the permit.
        Ok(confirmed.filter(|grant| grant.since.elapsed() < lasts(duration)))
    }
}
