//! The connection for commands to one server: shared by all calls, and replaced when it is lost.
//!
//! redis-rs keeps a connection whose peer went silent, because a timeout does not tell it from a
//! slow one; this link gives it up after two timeouts in a row.

mod calls;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use redis::aio::MultiplexedConnection;
use redis::{Client, ErrorKind, RedisError};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

use super::LOG_TARGET;
use super::backoff::Backoff;
use super::call_error::took_too_long;
use super::dialer::{Dialed, Dialer};
#[cfg(feature = "tower")]
use super::outage::Outage;
use super::outage::{Line, Outages};
use super::source::{self, Source, Unconnected};
use crate::metrics::{COMMANDS, reconnected};
use crate::runtime::SLACK;
use crate::scripts::CallBy;

pub(crate) struct Link {
    source: Source,
    call_by: CallBy,
    dialer: Dialer,
    state: Mutex<State>,
    outages: Outages,
    /// Begins anew with the end of failures: a server may take connections, and refuse all calls.
    backoff: Mutex<Backoff>,
    /// The last one that was tried.
    server: Mutex<Option<String>>,
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
    /// An attempt has failed, or all calls over the connection that it made. Until then others
    /// would, too: nobody makes one.
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
    _dialed: Dialed,
    /// The script `release` was called over it, so the server knows it.
    has_released: Arc<AtomicBool>,
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
            outages: Outages::new(Line::Commands),
            backoff,
            server: Mutex::default(),
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
                State::Connecting { since, attempt, .. }
                    if since.elapsed() < self.response_timeout() =>
                {
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
        self.source.patience(&self.dialer)
    }

    /// The next call makes a new one. None was lost.
    pub(super) fn leave_connection(&self) {
        *self.state() = State::Away;
        self.connections.send_replace(0);
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
        let connected = connecting.await.unwrap_or_else(|_| Err(took_too_long().into()));
        let (client, dialed) = connected.map_err(|Unconnected { server, error }| {
            self.name_server(server);
            error
        })?;
        if *self.connections.borrow() > 0 {
            reconnected(COMMANDS);
            tracing::debug!(target: LOG_TARGET, server = %self.source, "connected to Redis again");
        }
        // There may be another attempt: the newest number is that of the connection in use.
        let mut state = self.state();
        let number = self.dialer.next_number();
        self.connections.send_replace(number);
        self.timeouts.store(0, Ordering::Relaxed);
        self.name_server(Some(source::address(&client)));
        let connection = dialed.connection.clone();
        let (client, has_released) = (Arc::new(client), Arc::default());
        let connected = Connected { number, connection, _dialed: dialed, has_released, client };
        *state = State::Connected(connected.clone());
        Ok(connected)
    }

    /// `is_repeated`: the attempt before has failed, too.
    fn give_up(&self, number: u64, error: &RedisError, is_repeated: bool) {
        let mut state = self.state();
        if matches!(&*state, State::Connected(connected) if connected.number == number) {
            // One may have been cut while it was idle.
            *state = if is_repeated { self.refused(error) } else { State::Away };
            drop(state);
            tracing::debug!(
                target: LOG_TARGET,
                server = %self.server(),
                %error,
                "the connection to Redis is lost; the next call connects again"
            );
        }
    }

    fn name_server(&self, server: Option<String>) {
        *self.server.lock().expect("nothing panics while it is locked") = server;
    }

    /// Which server it is about: the last one that was tried, where there may be several.
    pub(crate) fn server(&self) -> String {
        let server = self.server.lock().expect("nothing panics while it is locked");
        server.clone().unwrap_or_else(|| self.source.to_string())
    }

    /// The outage that is logged, while it lasts.
    #[cfg(feature = "tower")]
    pub(crate) fn outage(&self) -> Option<Outage> {
        self.outages.current()
    }

    /// No calls go there any more.
    pub(super) fn retire(&self) {
        self.outages.forget();
    }
}
