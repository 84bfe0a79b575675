//! The connection for commands to one server: shared by all calls, and replaced when it is lost.
//!
//! redis-rs keeps a connection whose peer went silent, because a timeout does not tell it from a
//! slow one; this link gives it up after two timeouts in a row.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use redis::aio::MultiplexedConnection;
use redis::{Client, Cmd, ErrorKind, FromRedisValue, RedisError};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

use super::LOG_TARGET;
use super::asking::Asking;
use super::backoff::Backoff;
use super::call_error::{CallError, took_too_long, within};
use super::dialer::Dialer;
use super::earlier::{Earlier, run_in_order};
use super::source::Source;
use crate::error::{Error, says};
use crate::metrics::{COMMANDS, reconnected};
use crate::runtime::SLACK;
use crate::scripts::CallBy;

/// Timeouts in a row after which a connection is given up.
const MAX_TIMEOUTS: u32 = 2;
/// The round trip of a slow network. Who waits for less, as the renewals of short leases do, finds out
/// nothing of the connection.
const SLOW_TRIP: Duration = Duration::from_millis(200);

pub(crate) struct Link {
    source: Source,
    call_by: CallBy,
    dialer: Dialer,
    state: Mutex<State>,
    /// Begins anew with an answer that is good: a server may take connections, and refuse all calls.
    backoff: Mutex<Backoff>,
    /// Connections since then.
    unanswered: AtomicU32,
    /// In a row.
    timeouts: AtomicU32,
    last_timeout: Mutex<Option<Instant>>,
    /// The number of the last connection.
    connections: watch::Sender<u64>,
    /// Connections end with the runtime in which they began.
    runtime: Handle,
}

enum State {
    Away,
    /// An attempt has failed, or all calls over the connection that it made. Until then others would,
    /// too: nobody makes one.
    Refused {
        until: Instant,
        error: RedisError,
    },
    /// By a task, for all who wait meanwhile: none of them may hold up the others.
    Connecting {
        since: Instant,
        attempt: Attempt,
        /// Why the one before has failed, if it has.
        refusal: Option<RedisError>,
    },
    Connected(Connected),
}

impl State {
    /// Why the last attempt to connect failed that has ended.
    fn refusal(&self) -> Option<&RedisError> {
        match self {
            Self::Refused { error, .. } => Some(error),
            Self::Connecting { refusal, .. } => refusal.as_ref(),
            Self::Away | Self::Connected(_) => None,
        }
    }
}

type Attempt = Shared<BoxFuture<'static, Result<Connected, RedisError>>>;

#[derive(Clone)]
pub(crate) struct Connected {
    /// From 1, and of no other connection, also to another server.
    pub(crate) number: u64,
    pub(crate) connection: MultiplexedConnection,
    /// Leads to the same server.
    pub(crate) client: Arc<Client>,
}

impl Link {
    /// `runtime` makes the connections, as long as it is there.
    pub(crate) fn new(source: Source, call_by: CallBy, dialer: Dialer, runtime: Handle) -> Self {
        let backoff = Mutex::new(Backoff::of_connections(dialer.response_timeout()));
        Self {
            source,
            call_by,
            dialer,
            state: Mutex::new(State::Away),
            backoff,
            unanswered: AtomicU32::new(0),
            timeouts: AtomicU32::new(0),
            last_timeout: Mutex::new(None),
            connections: watch::Sender::new(0),
            runtime,
        }
    }

    /// Changes when a connection is replaced.
    pub(crate) fn connections(&self) -> watch::Receiver<u64> {
        self.connections.subscribe()
    }

    pub(crate) fn response_timeout(&self) -> Duration {
        self.dialer.response_timeout()
    }

    pub(crate) fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    pub(crate) fn call_by(&self) -> CallBy {
        self.call_by
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it is locked")
    }

    fn backoff(&self) -> MutexGuard<'_, Backoff> {
        self.backoff.lock().expect("nothing panics while it is locked")
    }

    /// The connection, made anew where there is none.
    pub(crate) async fn connection(self: &Arc<Self>) -> Result<Connected, RedisError> {
        let attempt = {
            let mut state = self.state();
            match &*state {
                State::Connected(connected) => return Ok(connected.clone()),
                State::Refused { until, error } if Instant::now() < *until => {
                    return Err(error.clone());
                }
                // One that takes longer is left alone: its runtime is driven no more.
                State::Connecting { since, attempt, .. } if since.elapsed() < self.patience() => {
                    attempt.clone()
                }
                others => {
                    let (since, refusal) = (Instant::now(), others.refusal().cloned());
                    let attempt = self.attempt_to_connect().boxed().shared();
                    *state = State::Connecting { since, attempt: attempt.clone(), refusal };
                    attempt
                }
            }
        };
        // Also where the runtime that makes it does not run.
        let connected = timeout(self.patience() + SLACK, attempt.clone()).await;
        let connected = connected.unwrap_or_else(|_| Err(took_too_long()));
        if let Err(error) = &connected {
            let mut state = self.state();
            if matches!(&*state, State::Connecting { attempt: its, .. } if its.ptr_eq(&attempt)) {
                *state = self.refused(error);
            }
        }
        connected
    }

    fn refused(&self, error: &RedisError) -> State {
        State::Refused { until: Instant::now() + self.backoff().next(), error: error.clone() }
    }

    /// How long connecting may take.
    fn patience(&self) -> Duration {
        self.source.patience(self.response_timeout())
    }

    fn current(&self) -> Option<Connected> {
        match &*self.state() {
            State::Connected(connected) => Some(connected.clone()),
            _ => None,
        }
    }

    /// Has a task connect. What waits for it must not keep the link that keeps it.
    fn attempt_to_connect(
        self: &Arc<Self>,
    ) -> impl Future<Output = Result<Connected, RedisError>> + 'static {
        let link = Arc::downgrade(self);
        // That of the caller goes on where the first one has ended.
        let runtimes = [Some(self.runtime.clone()), Handle::try_current().ok()];
        async move {
            for runtime in runtimes.into_iter().flatten() {
                let Some(link) = link.upgrade() else { break };
                if let Ok(connected) = runtime.spawn(link.connect()).await {
                    return connected;
                }
            }
            Err((ErrorKind::Io, "the runtime has ended while it connected").into())
        }
    }

    async fn connect(self: Arc<Self>) -> Result<Connected, RedisError> {
        let connecting = timeout(self.patience(), self.source.connect(&self.dialer));
        let (client, connection) = connecting.await.unwrap_or_else(|_| Err(took_too_long()))?;
        if *self.connections.borrow() > 0 {
            reconnected(COMMANDS);
            tracing::info!(target: LOG_TARGET, server = %self.source, "connected to Redis again");
        }
        // There may be another attempt: the newest number is that of the connection in use.
        let mut state = self.state();
        let number = self.dialer.next_number();
        self.connections.send_replace(number);
        self.timeouts.store(0, Ordering::Relaxed);
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        let connected = Connected { number, connection, client: Arc::new(client) };
        *state = State::Connected(connected.clone());
        Ok(connected)
    }

    fn give_up(&self, number: u64, error: &RedisError) {
        let mut state = self.state();
        if matches!(&*state, State::Connected(connected) if connected.number == number) {
            // One may have been cut while it was idle.
            *state = match self.unanswered.load(Ordering::Relaxed) {
                0 | 1 => State::Away,
                _ => self.refused(error),
            };
            drop(state);
            tracing::warn!(
                target: LOG_TARGET,
                server = %self.source,
                "the connection to Redis is lost; the next call connects again"
            );
        }
    }

    /// One attempt to run a script, which takes no longer than `limit` or the response timeout, the
    /// connecting included where there is no connection.
    pub(crate) async fn attempt<T: FromRedisValue>(
        self: &Arc<Self>,
        earlier: &impl Earlier,
        script: &str,
        write: impl Fn(&mut Cmd),
        limit: Duration,
    ) -> Result<T, CallError> {
        let (Connected { number, connection, .. }, limit) = self.connected_within(limit).await?;
        let sent = Instant::now();
        let run = run_in_order(connection, number, self.call_by, earlier, (script, write));
        let answer = match limit == self.response_timeout() {
            true => run.await, // The connection has that timeout itself.
            false => within(limit, run).await,
        };
        self.judge(number, sent, answer)
    }

    /// As [`attempt`](Self::attempt), for a slot of a cluster that is on its way to this server.
    pub(super) async fn attempt_asking<T: FromRedisValue>(
        self: &Arc<Self>,
        earlier: &impl Earlier,
        script: &str,
        write: impl Fn(&mut Cmd),
        limit: Duration,
    ) -> Result<T, CallError> {
        let (Connected { number, connection, .. }, limit) = self.connected_within(limit).await?;
        let sent = Instant::now();
        let asking = Asking(connection);
        let run = run_in_order(asking, number, self.call_by, earlier, (script, write));
        let answer = within(limit, run).await;
        self.judge(number, sent, answer)
    }

    /// Runs any other command, within the response timeout.
    pub(crate) async fn query<T: FromRedisValue>(
        self: &Arc<Self>,
        command: &Cmd,
    ) -> Result<T, RedisError> {
        let connected = self.connection().await?;
        self.query_over(&connected, command).await
    }

    /// The same over a connection that somebody has already, and goes on with.
    pub(super) async fn query_over<T: FromRedisValue>(
        &self,
        connected: &Connected,
        command: &Cmd,
    ) -> Result<T, RedisError> {
        let mut connection = connected.connection.clone();
        let sent = Instant::now();
        let run = async { Ok(command.query_async(&mut connection).await?) };
        let answer = within(self.response_timeout(), run).await;
        self.judge(connected.number, sent, answer).map_err(|failure| failure.error)
    }

    /// Replaces the connection if it is broken, or leads to a server that is not the primary any
    /// more.
    pub(crate) async fn check(self: &Arc<Self>) {
        if let Some(connected) = self.current() {
            // What it finds out is all that is wanted.
            let _ = self.check_over(&connected).await;
        }
        if let Err(error) = self.connection().await {
            tracing::debug!(%error, "connecting again failed");
        }
    }

    /// Fails where the connection is broken, or leads to a replica and should not.
    pub(super) async fn check_over(&self, connected: &Connected) -> Result<(), RedisError> {
        let mut connection = connected.connection.clone();
        let sent = Instant::now();
        let check = async { Ok(self.source.check(&mut connection).await?) };
        let checked = within(self.response_timeout(), check).await;
        self.judge(connected.number, sent, checked).map_err(|failure| failure.error)
    }

    /// A connection, and how much of the limit is left, which is no more than the response timeout.
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
            Ok(connected) => connected.map_err(CallError::unsent)?,
            // One that is cut short finds out less than the one before it.
            Err(_) => {
                return Err(match self.state().refusal() {
                    Some(refusal) => CallError::unsent(refusal.clone()),
                    None => CallError::unsent_in_time(),
                });
            }
        };
        Ok((connected, limit.saturating_sub(started.elapsed())))
    }

    /// What an answer says of the connection.
    fn judge<T>(
        &self,
        number: u64,
        sent: Instant,
        answer: Result<T, Error>,
    ) -> Result<T, CallError> {
        let mut failure = match answer {
            Ok(reply) => {
                self.timeouts.store(0, Ordering::Relaxed);
                if self.unanswered.load(Ordering::Relaxed) > 0 {
                    self.unanswered.store(0, Ordering::Relaxed);
                    *self.backoff() = Backoff::of_connections(self.response_timeout());
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
        // After a demotion the address may lead to the new primary by now.
        if timeouts >= MAX_TIMEOUTS || is_broken || says(error, "READONLY") {
            self.give_up(number, &failure.error);
        }
        Err(failure)
    }

    /// How many there were in a row. What was out already at the last one belongs to that: a stall
    /// that meets many calls counts once.
    fn count_timeout(&self, sent: Instant) -> u32 {
        let mut last = self.last_timeout.lock().expect("nothing panics while it is locked");
        if last.is_some_and(|last| sent < last) {
            return self.timeouts.load(Ordering::Relaxed);
        }
        *last = Some(Instant::now());
        self.timeouts.fetch_add(1, Ordering::Relaxed) + 1
    }
}
