//! The connection for commands: one, shared by all calls, and replaced when it is lost.
//!
//! redis-rs keeps a connection whose peer went silent, because a timeout does not tell it from a
//! slow one; this link gives it up after a few timeouts in a row.

use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, RedisError};

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
    current: Mutex<Option<(u64, MultiplexedConnection)>>,
    /// Held by the one call that connects; the others wait for it.
    connecting: tokio::sync::Mutex<()>,
    timeouts: AtomicU32,
    /// How many connections there have been.
    connections: watch::Sender<u64>,
}

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
        let (current, connecting, timeouts) = Default::default();
        let connections = watch::Sender::new(0);
        Self { client, config, response_timeout, current, connecting, timeouts, connections }
    }

    /// Changes when a connection is replaced.
    pub(crate) fn connections(&self) -> watch::Receiver<u64> {
        self.connections.subscribe()
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The connection and its number.
    pub(crate) async fn connection(&self) -> Result<(u64, MultiplexedConnection), RedisError> {
        if let Some(current) = self.current() {
            return Ok(current);
        }
        let _connecting = self.connecting.lock().await;
        if let Some(current) = self.current() {
            return Ok(current);
        }
        let connection =
            self.client.get_multiplexed_async_connection_with_config(&self.config).await?;
        let number = *self.connections.borrow() + 1;
        if number > 1 {
            tracing::info!("connected to Redis again");
        }
        self.connections.send_replace(number);
        self.timeouts.store(0, Ordering::Relaxed);
        let connected = (number, connection);
        *self.current.lock().expect("nothing panics while it is locked") = Some(connected.clone());
        Ok(connected)
    }

    /// The connection and its number, if there is one.
    pub(crate) fn current(&self) -> Option<(u64, MultiplexedConnection)> {
        self.current.lock().expect("nothing panics while it is locked").clone()
    }

    fn give_up(&self, number: u64) {
        let mut current = self.current.lock().expect("nothing panics while it is locked");
        if current.as_ref().is_some_and(|(its_number, _)| *its_number == number) {
            tracing::warn!("the connection to Redis is lost; the next call connects again");
            *current = None;
        }
    }

    /// One attempt to run a script, which takes no longer than `limit` or the response timeout, the
    /// connecting included where there is no current connection.
    pub(crate) async fn attempt<T: FromRedisValue>(
        &self,
        current: Option<(u64, MultiplexedConnection)>,
        script: &str,
        write: impl Fn(&mut Cmd),
        limit: Duration,
    ) -> Result<T, Unanswered> {
        let (started, mut has_connected) = (Instant::now(), false);
        let limit = limit.min(self.response_timeout);
        if limit.is_zero() {
            return Err(Unanswered { error: took_too_long(), may_be_served: false });
        }
        let connected = match current {
            Some(current) => Ok(current),
            None => {
                has_connected = true;
                let connection = Box::pin(timeout(limit, self.connection()));
                connection.await.unwrap_or_else(|_| Err(took_too_long()))
            }
        };
        let (number, mut connection) =
            connected.map_err(|error| Unanswered { error, may_be_served: false })?;
        let registry = ScriptRegistry::embedded();
        let mut run = pin!(registry.run_with(&mut connection, script, write));
        let left = limit.saturating_sub(started.elapsed());
        let answer = match has_connected || limit < self.response_timeout {
            true => timeout(left, &mut run).await,
            false => Ok(run.await), // The connection has that timeout itself.
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
        &self,
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
            let last = match self.attempt(self.current(), script, &write, limit).await {
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
fn says(error: &RedisError, code: &str) -> bool {
    let wrapped = format!("-{code} ");
    error.code() == Some(code) || error.detail().is_some_and(|detail| detail.contains(&wrapped))
}
