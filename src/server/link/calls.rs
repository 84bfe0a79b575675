//! Calls over a link. Their results also show the state of the connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use redis::{Cmd, FromRedisValue, RedisError};
use tokio::time::timeout;

use super::{Connected, Link};
use crate::error::{Error, is_full, is_missing_function, says};
use crate::releases::GivenUpBefore;
use crate::server::asking::MaybeAsking;
use crate::server::backoff::Backoff;
use crate::server::call_error::{CallError, requires_login, within};
use crate::server::earlier::{Way, run_in_order};

/// The number of consecutive timeouts after which a connection is given up.
const MAX_TIMEOUTS: u32 = 2;
/// The round trip of a slow network. Some calls have a shorter timeout, such as the refresh of a
/// short lease. If a call times out earlier than this time, and earlier than the response timeout,
/// the connection may still be good, so the timeout is not counted.
const SLOW_TRIP: Duration = Duration::from_millis(200);

impl Link {
    /// Makes one attempt to run a script. The attempt takes at most the shorter of `limit` and the
    /// response timeout, including the time to connect if no connection exists. `is_asking`: the
    /// slot is moving to this server.
    pub(crate) async fn attempt<T: FromRedisValue>(
        self: &Arc<Self>,
        is_asking: bool,
        earlier: &GivenUpBefore<'_>,
        script: &str,
        write: impl Fn(&mut Cmd),
        limit: Duration,
    ) -> Result<T, CallError> {
        let (connected, limit) = self.connected_within(limit).await?;
        let sent = Instant::now();
        let way = Way {
            // redis-rs must not give up a call before `run_in_order` has noticed.
            connection: MaybeAsking { connection: connected.dialed.unlimited(), is_asking },
            number: connected.number,
            call_by: self.call_by,
            has_released: &connected.has_released,
        };
        let response = within(limit, run_in_order(way, earlier, (script, write))).await;
        self.judge(&connected, sent, Some(script), response)
    }

    /// Runs a command that calls no script, within the response timeout.
    pub(crate) async fn query<T: FromRedisValue>(
        self: &Arc<Self>,
        command: &Cmd,
    ) -> Result<T, RedisError> {
        let connected = self.connection().await?;
        self.query_over(&connected, command).await
    }

    /// Runs a command over a given connection.
    pub(crate) async fn query_over<T: FromRedisValue>(
        &self,
        connected: &Connected,
        command: &Cmd,
    ) -> Result<T, RedisError> {
        let mut connection = connected.dialed.unlimited();
        let sent = Instant::now();
        let run = async { Ok(command.query_async(&mut connection).await?) };
        let response = within(self.response_timeout(), run).await;
        self.judge(connected, sent, None, response).map_err(|failure| failure.error)
    }

    /// Replaces the connection if it is broken, or if its server is no longer the primary.
    pub(crate) async fn check(self: &Arc<Self>) {
        if let Some(connected) = self.current() {
            // The check replaces a broken connection. The result of the check is not needed.
            let _ = self.check_over(&connected).await;
        }
        let began = Instant::now();
        match self.connection().await {
            // If this check succeeds, the outage ends, unless the server rejected a script within
            // the last minute.
            Ok(connected) if !self.outages.is_fine() => {
                let _ = self.check_over(&connected).await;
            }
            Ok(_) => {}
            Err(error) => {
                self.outages.failed(began, None, self.server(), &error);
                tracing::debug!(%error, "connecting again failed");
            }
        }
    }

    /// Fails if the connection is broken, or if its server is a replica but must be a primary.
    pub(crate) async fn check_over(&self, connected: &Connected) -> Result<(), RedisError> {
        let mut connection = connected.dialed.unlimited();
        let sent = Instant::now();
        let check = async { Ok(self.source.check(&mut connection).await?) };
        let checked = within(self.response_timeout(), check).await;
        self.judge(connected, sent, None, checked).map_err(|failure| failure.error)
    }

    /// Returns a connection, and the remaining time, which is at most the response timeout.
    async fn connected_within(
        self: &Arc<Self>,
        limit: Duration,
    ) -> Result<(Connected, Duration), CallError> {
        let limit = limit.min(self.response_timeout());
        if limit.is_zero() {
            return Err(CallError::unsent_in_time());
        }
        if let Some(connected) = self.current() {
            return Ok((connected, limit));
        }
        let started = Instant::now();
        let connected = match Box::pin(timeout(limit, self.connection())).await {
            Ok(connected) => connected.map_err(|error| {
                let server = self.server();
                self.outages.failed(started, None, server.clone(), &error);
                CallError::unsent(error).at(server)
            })?,
            // This attempt was cut short, so the error of the previous attempt gives more
            // information.
            Err(_) => {
                return Err(match self.state.lock().refusal() {
                    Some(refusal) => CallError::unsent(refusal.clone()),
                    None => CallError::unsent_in_time(),
                });
            }
        };
        Ok((connected, limit.saturating_sub(started.elapsed())))
    }

    /// Updates the state of the connection from the result of a call.
    fn judge<T>(
        &self,
        connected: &Connected,
        sent: Instant,
        script: Option<&str>,
        response: Result<T, Error>,
    ) -> Result<T, CallError> {
        let mut failure = match response {
            Ok(reply) => {
                self.timeouts.store(0, Ordering::Relaxed);
                if self.outages.succeeded(script, || self.server_of(connected)) {
                    *self.backoff.lock() = Backoff::of_connections(self.response_timeout());
                }
                return Ok(reply);
            }
            Err(error) => CallError::from(error),
        };
        let (timed_out, waited) = (failure.error.is_timeout(), sent.elapsed());
        failure.was_cut_short = timed_out && waited < self.response_timeout();
        let counts = timed_out && waited >= self.response_timeout().min(SLOW_TRIP);
        let timeouts = if counts { self.count_timeout(sent) } else { 0 };
        let error = &failure.error;
        let is_broken = !timed_out && error.is_unrecoverable_error();
        let is_rejected = !timed_out && script.is_some() && is_outage(&failure);
        let fails = counts || is_broken || is_rejected;
        let server = self.server_of(connected);
        let is_repeated = fails && self.outages.failed(sent, script, server.clone(), error);
        // READONLY: the server has become a replica. A new connection to the same address may reach
        // the new primary.
        let is_useless = is_broken || says(error, "READONLY") || requires_login(error);
        if timeouts >= MAX_TIMEOUTS || is_useless {
            self.give_up(connected.number, error, is_repeated);
        }
        Err(failure.at(server))
    }

    /// Counts the timeout of a call, unless the call was sent before the last counted timeout. If
    /// several calls stall at the same time, their timeouts count as one. Returns the number of
    /// consecutive timeouts.
    fn count_timeout(&self, sent: Instant) -> u32 {
        let mut last = self.last_timeout.lock();
        if last.is_some_and(|last| sent < last) {
            return self.timeouts.load(Ordering::Relaxed);
        }
        *last = Some(Instant::now());
        self.timeouts.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Whether the server temporarily rejects calls that it should execute.
fn is_outage(failure: &CallError) -> bool {
    let error = &failure.error;
    let is_elsewhere = error.redirect_node().is_some() || is_missing_function(error);
    // The error is about one slot that moves. The server executes calls for its other slots.
    let is_of_slot = says(error, "TRYAGAIN");
    (failure.is_transient() || is_full(error)) && !is_elsewhere && !is_of_slot
}
