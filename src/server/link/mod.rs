//! The connection for commands to one server. All calls share the connection, which is replaced
//! when it is lost.
//!
//! redis-rs keeps a connection to a silent peer, because a timeout may also mean a slow peer. This
//! link replaces the connection after two consecutive timeouts.

mod calls;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use redis::{Client, ErrorKind, RedisError};
use tokio::sync::watch;
use tokio::time::timeout;

use super::LOG_TARGET;
use super::backoff::Backoff;
use super::call_error::took_too_long;
use super::dialer::{Dialed, Dialer};
use super::outage::Outages;
use super::source::{self, Source, Unconnected};
use crate::error::RUNTIME_ENDED;
use crate::lock::Lock;
use crate::metrics::{COMMANDS, reconnected};
use crate::scripts::CallBy;

pub(crate) struct Link {
    source: Source,
    call_by: CallBy,
    dialer: Dialer,
    state: Lock<State>,
    outages: Outages,
    /// The pauses restart when a call succeeds, not when connecting succeeds. A server may accept
    /// connections and reject all calls.
    backoff: Lock<Backoff>,
    /// The last server that was tried.
    server: Lock<Option<String>>,
    /// The text after the server's address in messages.
    origin: &'static str,
    /// The number of consecutive timeouts.
    timeouts: AtomicU32,
    last_timeout: Lock<Option<Instant>>,
    /// The number of the last connection, or 0 if the next connection is not a reconnection.
    connections: watch::Sender<u64>,
}

enum State {
    Away,
    /// Connecting failed, or several calls in succession failed over the connection. No attempt to
    /// connect is made before `until`, because the attempt would probably fail, too.
    Refused {
        until: Instant,
        error: RedisError,
    },
    /// One task connects for all waiting calls, so that a caller that is not polled does not delay
    /// the other callers.
    Connecting {
        attempt: Attempt,
        /// The error of the previous attempt, if it failed.
        refusal: Option<RedisError>,
    },
    Connected(Connected),
}

impl State {
    /// The error of the last completed attempt to connect, if it failed.
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
    /// Starts at 1. No other connection of this client has this number.
    pub(crate) number: u64,
    pub(crate) dialed: Dialed,
    /// Whether `release` was called over this connection, so that the server has the script.
    has_released: Arc<AtomicBool>,
    /// A client for the server of this connection.
    pub(crate) client: Arc<Client>,
}

impl Link {
    /// The first call over the link connects.
    pub(crate) fn new(source: Source, call_by: CallBy, dialer: Dialer) -> Self {
        let backoff = Lock::new(Backoff::of_connections(dialer.response_timeout()));
        Self {
            source,
            call_by,
            dialer,
            state: Lock::new(State::Away),
            outages: Outages::new(COMMANDS),
            backoff,
            server: Lock::default(),
            origin: "",
            timeouts: AtomicU32::new(0),
            last_timeout: Lock::new(None),
            connections: watch::Sender::new(0),
        }
    }

    /// Sets the text that follows the server in messages.
    pub(super) fn with_origin(self, origin: &'static str) -> Self {
        Self { origin, ..self }
    }

    /// Returns a link to the same server, with its own connection and state.
    pub(crate) fn separate(&self) -> Self {
        Self::new(self.source.clone(), self.call_by, self.dialer.clone()).with_origin(self.origin)
    }

    /// Returns a receiver whose value changes when the connection is replaced.
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

    /// Returns the connection, or makes a new one.
    pub(crate) async fn connection(self: &Arc<Self>) -> Result<Connected, RedisError> {
        let attempt = {
            let mut state = self.state.lock();
            match &*state {
                State::Connected(connected) => return Ok(connected.clone()),
                State::Refused { until, error } if Instant::now() < *until => {
                    return Err(error.clone());
                }
                State::Connecting { attempt, .. } => attempt.clone(),
                others => {
                    let refusal = others.refusal().cloned();
                    let attempt = self.attempt_to_connect().boxed().shared();
                    *state = State::Connecting { attempt: attempt.clone(), refusal };
                    attempt
                }
            }
        };
        let connected = attempt.clone().await;
        if let Err(error) = &connected {
            // The task has not recorded the failure if it panicked or its runtime has ended.
            let mut state = self.state.lock();
            if matches!(&*state, State::Connecting { attempt: its, .. } if its.ptr_eq(&attempt)) {
                *state = self.refused(error);
            }
        }
        connected
    }

    fn refused(&self, error: &RedisError) -> State {
        State::Refused { until: Instant::now() + self.backoff.lock().next(), error: error.clone() }
    }

    /// The timeout for connecting.
    fn patience(&self) -> Duration {
        self.source.patience(&self.dialer)
    }

    /// Makes the next call connect again. The connection does not count as lost.
    pub(super) fn leave_connection(&self) {
        *self.state.lock() = State::Away;
        self.connections.send_replace(0);
    }

    fn current(&self) -> Option<Connected> {
        match &*self.state.lock() {
            State::Connected(connected) => Some(connected.clone()),
            _ => None,
        }
    }

    /// Connects in a task. The attempt must not own the link, because the link owns the attempt.
    fn attempt_to_connect(
        self: &Arc<Self>,
    ) -> impl Future<Output = Result<Connected, RedisError>> + 'static {
        let link = Arc::downgrade(self);
        async move {
            let ended = || (ErrorKind::Io, RUNTIME_ENDED).into();
            let link = link.upgrade().ok_or_else(ended)?;
            tokio::spawn(link.connect()).await.unwrap_or_else(|_| Err(ended()))
        }
    }

    async fn connect(self: Arc<Self>) -> Result<Connected, RedisError> {
        let connecting = timeout(self.patience(), self.source.connect(&self.dialer));
        let connected = connecting.await.unwrap_or_else(|_| Err(took_too_long().into()));
        let (client, dialed) = connected.map_err(|Unconnected { server, error }| {
            self.name_server(server);
            // All callers may have given up, so this task records the end of the attempt. Otherwise,
            // a call an hour later would get this error.
            let mut state = self.state.lock();
            if matches!(&*state, State::Connecting { .. }) {
                *state = self.refused(&error);
            }
            error
        })?;
        if *self.connections.borrow() > 0 {
            reconnected(COMMANDS);
            tracing::debug!(target: LOG_TARGET, server = %self.source, "reconnected to Redis");
        }
        // Several attempts may run at the same time. The number is taken while the state is locked,
        // so the connection that stays in use has the highest number.
        let mut state = self.state.lock();
        let number = self.dialer.next_number();
        self.connections.send_replace(number);
        self.timeouts.store(0, Ordering::Relaxed);
        self.name_server(Some(source::address(&client)));
        let (client, has_released) = (Arc::new(client), Arc::default());
        let connected = Connected { number, dialed, has_released, client };
        *state = State::Connected(connected.clone());
        Ok(connected)
    }

    /// Gives up the connection with this number. `is_repeated`: an earlier attempt failed, too.
    fn give_up(&self, number: u64, error: &RedisError, is_repeated: bool) {
        let mut state = self.state.lock();
        if matches!(&*state, State::Connected(connected) if connected.number == number) {
            // An idle connection may have been closed, so a first failure does not delay
            // connecting.
            *state = if is_repeated { self.refused(error) } else { State::Away };
            drop(state);
            tracing::debug!(
                target: LOG_TARGET,
                server = %self.server(),
                %error,
                "the connection to Redis was lost; the next call reconnects"
            );
        }
    }

    fn name_server(&self, server: Option<String>) {
        *self.server.lock() = server;
    }

    /// The server to name in messages: the last server that was tried, if several are configured.
    pub(crate) fn server(&self) -> String {
        let server = self.server.lock();
        let server = server.clone().unwrap_or_else(|| self.source.to_string());
        server + self.origin
    }

    /// The server of this connection. The last attempt to connect may have used another server.
    fn server_of(&self, connected: &Connected) -> String {
        source::address(&connected.client) + self.origin
    }

    pub(super) fn outages(&self) -> &Outages {
        &self.outages
    }

    /// Called when no more scripts are called over this link.
    pub(super) fn retire(&self) {
        self.outages.forget();
    }
}
