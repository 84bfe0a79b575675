//! Acquires permits: sends a request, waits for its grant, and returns the permit.
//!
//! The caller may drop the future of an acquire at any point. [`Pending`] then ends the
//! acquisition. Everything that the server has, or will have, for the acquisition's ID is released
//! in the background.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, RedisError};
use tokio::time::Instant;
use tracing::Instrument;

use crate::error::Error;
use crate::metrics::Origin;
use crate::protocol::Acquired;
use crate::runtime::Deadline;
use crate::semaphore::Permit;
use crate::semaphore::core::{Acquire, Core, IfFull, Refresh, Wanted};
use crate::semaphore::lease::{Grant, lasts};
use crate::semaphore::ledger::Acquisition;
use crate::server::Failure;
use crate::wakeup;

/// The maximum number of calls by one `try_acquire`. The call is repeated after a late grant, and
/// if the script stopped at its bound. Each call removes up to 1,000 expired leases.
const MAX_TRIES: u32 = 1000;

/// An acquire fails after this number of late grants in a row. A grant is late if its lease expires
/// before the permit is returned. A busy thread may cause a few late grants.
const MAX_LATE_GRANTS: u32 = 5;

/// If the request was not queued, its permit is refreshed before it is returned if more than half
/// (one divided by this constant) of its lease may have passed. A higher constant would cause more
/// refreshes, and each refresh takes another round trip.
pub(super) const AGES_BY_REPLY: u32 = 2;
/// Replaces [`AGES_BY_REPLY`] if the request was queued: the permit is refreshed if more than a
/// sixth of its lease may have passed. So about two thirds of the lease remain at the first refresh
/// in the background.
const AGES_BY_MESSAGE: u32 = 6;

/// Guards an acquisition that is not a permit yet: if the guard is dropped, it ends the wait.
pub(super) struct Pending<'a> {
    core: &'a Arc<Core>,
    acquisition: &'a Arc<Acquisition>,
}

impl<'a> Pending<'a> {
    pub(super) fn new(core: &'a Arc<Core>, acquisition: &'a Arc<Acquisition>) -> Self {
        Self { core, acquisition }
    }

    /// Handles an error, and returns it. A script that rejects a request changes nothing. If no
    /// earlier call can have changed anything either, no release is sent: it is not needed, and the
    /// server might reject it, too.
    fn refused(&self, error: Error, late_grants: u32) -> Error {
        let calls = &self.acquisition.calls;
        let is_known =
            late_grants > 0 || calls.are_in_doubt() || self.acquisition.place().is_some();
        if !is_known && error.has_changed_nothing() {
            self.settle();
        }
        error
    }

    /// Ends the wait without a release, because the server has nothing for the ID.
    pub(super) fn settle(&self) {
        self.end_wait();
    }

    /// Ends the wait. Returns false if the wait is already over.
    fn end_wait(&self) -> bool {
        let ends = self.acquisition.end_wait();
        if ends {
            self.core.ledger.remove(std::iter::once(&**self.acquisition));
        }
        ends
    }

    /// Returns the permit. Fails if a close or a shutdown has ended the wait.
    pub(super) fn into_permit(self, grant: Grant, origin: Origin) -> Result<Permit, Error> {
        if self.core.closing.is_ended() || !self.acquisition.hold() {
            return Err(self.core.ended());
        }
        let (core, acquisition) = (self.core, self.acquisition);
        let permit = Permit::new(core.clone(), acquisition.clone(), grant, origin);
        // If a subscriber panics here, the permit is dropped, and so is released.
        tracing::debug!(semaphore = core.name, id = acquisition.id, token = grant.token, "granted");
        Ok(permit)
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        // If the wait is already over, the caller has the permit, or `settle`, a close or a
        // shutdown ended the wait. If no request was sent and none is under way, no request is ever
        // sent, because the acquisition has ended. Then no release is needed.
        if self.end_wait() && self.acquisition.calls.may_have_created() {
            self.core.give_back(self.acquisition);
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

    /// Waits until a connection is subscribed to this semaphore's grant messages. Then sends the
    /// waiting requests again: until now, the server skipped them at their turn. Fails after
    /// `patience`.
    async fn listen(self: &Arc<Self>, patience: Duration) -> Result<(), Error> {
        let deadline = Instant::now().checked_add(patience);
        if self.context.until(deadline, self.channel.subscribed()).await.is_some() {
            wakeup::Handler::may_have_missed(self.clone());
            return Ok(());
        }
        if self.context.is_shut_down() {
            return Err(Error::Shutdown);
        }
        let last = (ErrorKind::Io, "no node accepted the subscription to grant messages");
        let last = RedisError::from(last).into();
        Err(self.error("acquire", Failure::NoResponse { elapsed: patience, last }))
    }

    /// Acquires a permit without queueing. If `patience` is set, waits for the reply no longer than
    /// `patience`.
    pub(crate) fn try_acquire(
        self: &Arc<Self>,
        wanted: Wanted,
        patience: Option<Duration>,
    ) -> impl Future<Output = Result<Option<Permit>, Error>> {
        let span = tracing::debug_span!("try_acquire", semaphore = self.name, wanted.weight);
        async move {
            let permit = pin!(self.try_now("try_acquire", &wanted, patience));
            let permit = self.unless_ended(permit).await;
            if matches!(permit, Ok(None)) {
                self.meter.not_granted();
            }
            permit
        }
        .instrument(span)
    }

    /// Waits in the queue for a permit. Pin the future where it is created: the future is large, and
    /// a direct `await` would move it.
    pub(crate) fn acquire_within(
        self: &Arc<Self>,
        wanted: Wanted,
        timeout: Option<Duration>,
    ) -> impl Future<Output = Result<Permit, Error>> {
        let span = tracing::debug_span!("acquire", semaphore = self.name, wanted.weight, ?timeout);
        async move { self.unless_ended(pin!(self.wait_at_most(&wanted, timeout))).await }
            .instrument(span)
    }

    pub(super) async fn unless_ended<T>(
        &self,
        acquire: Pin<&mut impl Future<Output = Result<T, Error>>>,
    ) -> Result<T, Error> {
        let asking = self.meter.asks();
        let response = match self.closing.unless_ended(acquire).await {
            // A `close` on another thread ends the request with `Error::Shutdown`. The request may
            // return this error before this task notices the close.
            None | Some(Err(Error::Shutdown)) => Err(self.ended()),
            Some(response) => response,
        };
        asking.ended(&response);
        response.inspect_err(|error| tracing::debug!(%error))
    }

    /// Returns the error of acquires after a shutdown or a close.
    fn ended(&self) -> Error {
        match self.closing.is_shut_down() {
            false if self.closing.is_closed() => Error::Closed { semaphore: self.name.clone() },
            _ => Error::Shutdown,
        }
    }

    async fn try_now(
        self: &Arc<Self>,
        operation: &'static str,
        wanted: &Wanted,
        patience: Option<Duration>,
    ) -> Result<Option<Permit>, Error> {
        let longest = self.context.settings.call_timeout();
        let patience = patience.map_or(longest, |patience| patience.min(longest));
        self.check(wanted.weight)?;
        let acquisition = self.acquisition(&Wanted { head_start: 0, ..wanted.clone() });
        let pending = Pending::new(self, &acquisition);
        let mut deadline = Deadline::since(acquisition.created, patience);
        let mut late_grants = 0;
        for _ in 0..MAX_TRIES {
            let if_full = IfFull::Refuse(operation);
            let request = Acquire { acquisition: acquisition.clone(), if_full };
            let response = self.ask(request, deadline).await;
            let response = response.map_err(|error| pending.refused(error, late_grants))?;
            deadline = Deadline::after(patience);
            match response.reply.acquired {
                Acquired::Granted { token } => {
                    let grant = Grant { token, since: response.sent };
                    match self
                        .confirm(&acquisition, grant, AGES_BY_REPLY, operation, patience)
                        .await?
                    {
                        Some(grant) => return pending.into_permit(grant, Origin::AtOnce).map(Some),
                        None => self.count_late(&mut late_grants)?,
                    }
                }
                // The request was not granted, but the script stopped at its bound.
                _ if response.reply.has_more => {}
                _ => {
                    // A release is needed if an earlier attempt may still reach the server, or if
                    // an earlier grant was late.
                    if !acquisition.calls.are_in_doubt() && late_grants == 0 {
                        pending.settle();
                    }
                    break;
                }
            }
        }
        Ok(None)
    }

    /// Handles a timeout of zero: the request is still sent, but never queued. Tokio's `timeout`
    /// also polls its future once if the duration is zero.
    async fn without_waiting(self: &Arc<Self>, wanted: &Wanted) -> Result<Permit, Error> {
        let started = Instant::now();
        Box::pin(self.try_now("acquire", wanted, None)).await?.ok_or_else(|| Error::Timeout {
            semaphore: self.name.clone(),
            waited: started.elapsed(),
            position: None,
            outage: None,
        })
    }

    async fn wait_at_most(
        self: &Arc<Self>,
        wanted: &Wanted,
        timeout: Option<Duration>,
    ) -> Result<Permit, Error> {
        if timeout == Some(Duration::ZERO) {
            return self.without_waiting(wanted).await;
        }
        self.check(wanted.weight)?;
        let acquisition = self.acquisition(wanted);
        let started = acquisition.created;
        let mut wait = pin!(self.wait_in_queue(&acquisition));
        let deadline = timeout.and_then(|timeout| started.checked_add(timeout));
        self.context.until(deadline, &mut wait).await.unwrap_or_else(|| {
            if self.context.is_shut_down() {
                return Err(Error::Shutdown);
            }
            let (semaphore, waited) = (self.name.clone(), started.elapsed());
            let position = acquisition.place().map(|place| place.position);
            let outage = self.context.servers.last_failure(self.slot);
            Err(Error::Timeout { semaphore, waited, position, outage })
        })
    }

    async fn wait_in_queue(
        self: &Arc<Self>,
        acquisition: &Arc<Acquisition>,
    ) -> Result<Permit, Error> {
        let patience = self.context.settings.tolerance();
        let pending = Pending::new(self, acquisition);
        let mut deadline = Deadline::since(acquisition.created, patience);
        let (mut late_grants, mut was_queued) = (0, false);
        loop {
            let was_subscribed = self.channel.is_subscribed();
            self.channel.want();
            let request = Acquire { acquisition: acquisition.clone(), if_full: IfFull::Queue };
            let response = self.ask(request, deadline).await;
            let response = response.map_err(|error| pending.refused(error, late_grants))?;
            let grant = match response.reply.acquired {
                Acquired::Granted { token } => Grant { token, since: response.sent },
                Acquired::Queued(_) => {
                    was_queued = true;
                    let _waiting = self.meter.waits();
                    let outcome = Box::pin(Self::outcome(acquisition));
                    match was_subscribed {
                        true => outcome.await?,
                        false => self.outcome_while_subscribing(outcome, patience).await?,
                    }
                }
                Acquired::NotGranted => {
                    let text = "the script did not queue a waiting request: check that the \
                                server's scripts are unchanged";
                    let refusal = (ErrorKind::UnexpectedReturnType, text).into();
                    return Err(self.error("acquire", Failure::Rejected(refusal)));
                }
            };
            let (ages, origin) = match was_queued {
                true => (AGES_BY_MESSAGE, Origin::FromTheQueue),
                false => (AGES_BY_REPLY, Origin::AtOnce),
            };
            match self.confirm(acquisition, grant, ages, "acquire", patience).await? {
                Some(grant) => {
                    if was_queued {
                        self.hold(std::iter::once(acquisition), grant.since);
                    }
                    return pending.into_permit(grant, origin);
                }
                None => self.count_late(&mut late_grants)?,
            }
            deadline = Deadline::after(patience);
            acquisition.wait_again();
        }
    }

    /// Counts a permit that was lost before it reached the caller. Fails if too many grants were
    /// late. Otherwise, the caller of this function sends the request again.
    fn count_late(&self, late_grants: &mut u32) -> Result<(), Error> {
        *late_grants += 1;
        if *late_grants < MAX_LATE_GRANTS {
            return Ok(());
        }
        let (semaphore, lease) = (self.name.clone(), self.settings.first_lease());
        Err(Error::LeaseTooShort { semaphore, lease })
    }

    /// Waits for the outcome, and fails if this client cannot subscribe. A heartbeat may grant the
    /// permit before this client has subscribed.
    async fn outcome_while_subscribing(
        self: &Arc<Self>,
        mut outcome: impl Future<Output = Result<Grant, Error>> + Unpin,
        patience: Duration,
    ) -> Result<Grant, Error> {
        tokio::select! {
            biased;
            grant = &mut outcome => return grant,
            listens = self.listen(patience) => listens?,
        }
        outcome.await
    }

    /// Waits for the grant of a queued request. If Redis stops replying, the heartbeats end the
    /// wait: see `core/heartbeat.rs`.
    async fn outcome(acquisition: &Acquisition) -> Result<Grant, Error> {
        // If no outcome follows, a close, a shutdown or the end of the I/O runtime has ended the
        // wait.
        let outcome = acquisition.await_outcome().await;
        outcome.map_or(Err(Error::Shutdown), |outcome| outcome.map_err(|error| *error))
    }

    /// Confirms a grant before the permit is returned. If the settings require acknowledgements by
    /// replicas, this function waits for the acknowledgements. Otherwise, the permit is refreshed
    /// if more than 1/`ages` of its lease may have passed since `grant.since`. Much of the lease
    /// may have passed if a message contained the grant, or if the future was not polled for a
    /// while. Returns `None` if the permit is already lost.
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
            let response = Box::pin(asked).await?;
            response.reply.then_some(Grant { since: response.sent, ..grant })
        };
        // The permit is returned in the same poll as this check, so its lease has not expired yet.
        Ok(confirmed.filter(|grant| grant.since.elapsed() < lasts(duration)))
    }
}
