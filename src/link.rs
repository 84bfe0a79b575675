//! The connection for commands: one, shared by all calls, and replaced when it is lost.
//!
//! redis-rs keeps a connection whose peer went silent, because a timeout does not tell it from a
//! slow one; this link gives it up after a few timeouts in a row.

use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, RedisError};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::{Error, ScriptRegistry};

/// Timeouts in a row after which a connection is given up.
const MAX_TIMEOUTS: u32 = 2;
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(crate) struct Link {
    client: Client,
    config: AsyncConnectionConfig,
    response_timeout: Duration,
    state: Mutex<State>,
    timeouts: AtomicU32,
    /// How many connections there have been.
    connections: watch::Sender<u64>,
    /// Connections end with the runtime in which they began.
    runtime: Handle,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Away,
    /// By a task, for all who wait meanwhile: none of them may hold up the others.
    Connecting {
        since: Instant,
        attempt: Attempt,
    },
    Connected(Connected),
}

type Attempt = Shared<BoxFuture<'static, Result<Connected, RedisError>>>;

/// A connection and its number.
type Connected = (u64, MultiplexedConnection);

/// An answer, and when its question was sent: leases count from before that.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    pub(crate) sent: Instant,
    pub(crate) reply: T,
    /// An earlier attempt had no answer, and may have been served as well.
    pub(crate) is_repeated: bool,
}

/// A call that failed for good.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nothing but passing failures for as long as patience lasted.
    NoAnswer {
        elapsed: Duration,
        last: RedisError,
    },
    Refused(RedisError),
}

impl Link {
    pub(crate) fn new(client: Client, response_timeout: Duration) -> Self {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(response_timeout))
            .set_response_timeout(Some(response_timeout));
        let (state, timeouts) = Default::default();
        let (connections, runtime) = (watch::Sender::new(0), Handle::current());
        Self { client, config, response_timeout, state, timeouts, connections, runtime }
    }

    /// Changes when a connection is replaced.
    pub(crate) fn connections(&self) -> watch::Receiver<u64> {
        self.connections.subscribe()
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it is locked")
    }

    /// The connection, made anew where there is none.
    pub(crate) async fn connection(self: &Arc<Self>) -> Result<Connected, RedisError> {
        let attempt = {
            let mut state = self.state();
            match &*state {
                State::Connected(connected) => return Ok(connected.clone()),
                // One that takes longer is left alone: its runtime is driven no more.
                State::Connecting { since, attempt } if since.elapsed() < self.response_timeout => {
                    attempt.clone()
                }
                _ => {
                    let attempt = self.attempt_to_connect().boxed().shared();
                    *state = State::Connecting { since: Instant::now(), attempt: attempt.clone() };
                    attempt
                }
            }
        };
        let connected = attempt.clone().await;
        if connected.is_err() {
            let mut state = self.state();
            if matches!(&*state, State::Connecting { attempt: its, .. } if its.ptr_eq(&attempt)) {
                *state = State::Away;
            }
        }
        connected
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
        let runtimes = [self.runtime.clone(), Handle::current()];
        async move {
            for runtime in runtimes {
                let Some(link) = link.upgrade() else { break };
                if let Ok(connected) = runtime.spawn(link.connect()).await {
                    return connected;
                }
            }
            Err((ErrorKind::Io, "the runtime has ended while it connected").into())
        }
    }

    async fn connect(self: Arc<Self>) -> Result<Connected, RedisError> {
        let connection = self.client.get_multiplexed_async_connection_with_config(&self.config);
        let connection = connection.await?;
        let number = *self.connections.borrow() + 1;
        if number > 1 {
            tracing::info!("connected to Redis again");
        }
        self.connections.send_replace(number);
        self.timeouts.store(0, Ordering::Relaxed);
        let connected = (number, connection);
        *self.state() = State::Connected(connected.clone());
        Ok(connected)
    }

    fn give_up(&self, number: u64) {
        let mut state = self.state();
        if matches!(&*state, State::Connected((its_number, _)) if *its_number == number) {
            tracing::warn!("the connection to Redis is lost; the next call connects again");
            *state = State::Away;
        }
    }

    /// One attempt to run a script, which takes no longer than `limit` or the response timeout, the
    /// connecting included where there is no connection.
    pub(crate) async fn attempt<T: FromRedisValue>(
        self: &Arc<Self>,
        script: &str,
        write: impl Fn(&mut Cmd),
        limit: Duration,
    ) -> Result<T, Unanswered> {
        let started = Instant::now();
        let limit = limit.min(self.response_timeout);
        if limit.is_zero() {
            return Err(Unanswered { error: took_too_long(), may_be_served: false });
        }
        let current = self.current();
        let is_connected = current.is_some();
        let connected = match current {
            Some(current) => Ok(current),
            None => {
                let connection = Box::pin(timeout(limit, self.connection()));
                connection.await.unwrap_or_else(|_| Err(took_too_long()))
            }
        };
        let (number, mut connection) =
            connected.map_err(|error| Unanswered { error, may_be_served: false })?;
        let registry = ScriptRegistry::embedded();
        let mut run = pin!(registry.run_with(&mut connection, script, write));
        let left = limit.saturating_sub(started.elapsed());
        let answer = match is_connected && limit == self.response_timeout {
            true => Ok(run.await), // The connection has that timeout itself.
            false => timeout(left, &mut run).await,
        };
        let (error, timed_out) = match answer {
            Ok(Ok(reply)) => {
                self.timeouts.store(0, Ordering::Relaxed);
                return Ok(reply);
            }
            Ok(Err(Error::Redis(error))) => {
                let timed_out = error.is_timeout();
                (error, timed_out)
            }
            Ok(Err(other)) => unreachable!("the embedded scripts are there: {other}"),
            Err(_) => (took_too_long(), true),
        };
        let timeouts = match timed_out {
            true => self.timeouts.fetch_add(1, Ordering::Relaxed) + 1,
            false => 0,
        };
        let is_broken = !timed_out && error.is_unrecoverable_error();
        // After a demotion the address may lead to the new primary by now.
        if timeouts >= MAX_TIMEOUTS || is_broken || says(&error, "READONLY") {
            self.give_up(number);
        }
        let may_be_served = error.kind() == ErrorKind::Io;
        Err(Unanswered { error, may_be_served })
    }

    /// Runs a script, and again while the failure is a passing one and patience lasts. That is
    /// right for these scripts: the same id gets the same answer.
    pub(crate) async fn run<T: FromRedisValue>(
        self: &Arc<Self>,
        script: &str,
        write: impl Fn(&mut Cmd),
        patience: Duration,
    ) -> Result<Answer<T>, Failure> {
        let started = Instant::now();
        let mut pauses = Pauses::default();
        let mut is_repeated = false;
        loop {
            let sent = Instant::now();
            let limit = patience.saturating_sub(started.elapsed());
            let last = match self.attempt(script, &write, limit).await {
                Ok(reply) => return Ok(Answer { sent, reply, is_repeated }),
                Err(failure) if failure.is_passing() => {
                    is_repeated |= failure.may_be_served;
                    failure.error
                }
                Err(failure) => return Err(Failure::Refused(failure.error)),
            };
            let pause = pauses.next();
            if started.elapsed() + pause >= patience {
                return Err(Failure::NoAnswer { elapsed: started.elapsed(), last });
            }
            tracing::debug!(script, error = %last, "no answer, trying again");
            tokio::time::sleep(pause).await;
        }
    }
}

/// The pauses between attempts: longer each time.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    last: Duration,
}

impl Pauses {
    pub(crate) fn next(&mut self) -> Duration {
        self.last = (self.last * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.last
    }
}

/// An attempt that failed.
#[derive(Debug)]
pub(crate) struct Unanswered {
    pub(crate) error: RedisError,
    pub(crate) may_be_served: bool,
}

impl Unanswered {
    /// Whether the same call may succeed a moment later: the network, or a server that starts,
    /// fails over, or is busy.
    pub(crate) fn is_passing(&self) -> bool {
        const CODES: [&str; 6] =
            ["BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "READONLY", "TRYAGAIN"];
        self.error.is_io_error()
            || self.error.is_unrecoverable_error()
            || CODES.iter().any(|code| says(&self.error, code))
    }
}

fn took_too_long() -> RedisError {
    (ErrorKind::Io, "the answer took too long").into()
}

/// Whether the server answered with this error. Where a command in a script meets it, Redis 6.2
/// wraps it in one of its own: "ERR Error running script (...): -READONLY ...".
pub(crate) fn says(error: &RedisError, code: &str) -> bool {
    let wrapped = format!("-{code} ");
    error.code() == Some(code) || error.detail().is_some_and(|detail| detail.contains(&wrapped))
}
