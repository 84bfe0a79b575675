//! Retries connecting until the connect timeout has passed.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::client::SemaphoreClientBuilder;
use crate::error::{ConnectErrorKind, Error, Rounded};
use crate::runtime::Deadline;
use crate::server::{Backoff, LOG_TARGET, next_outage_number};

/// If less time than this remains, no further attempt is made.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);

impl SemaphoreClientBuilder {
    /// Connects, and retries after transient failures until the connect timeout has passed. Every
    /// attempt starts from scratch.
    pub(super) async fn persist<T, F>(
        &self,
        server: &str,
        connect: impl Fn() -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let patience = self.connect_timeout;
        if patience.is_zero() {
            return Box::pin(connect()).await;
        }
        let deadline = Deadline::after(patience);
        let mut backoff = Backoff::of_connections(self.settings.response_timeout);
        let outage = next_outage_number();
        let mut last: Option<Error> = None;
        loop {
            let left = deadline.left_at(Instant::now());
            let error = match timeout(left, Box::pin(connect())).await {
                Ok(Err(error)) if error.may_pass() => error,
                Ok(done) => {
                    if done.is_ok() && last.is_some() {
                        tracing::info!(
                            target: LOG_TARGET,
                            connection = "first",
                            outage,
                            server,
                            "Redis is available"
                        );
                    }
                    return done;
                }
                // The error of the last complete attempt explains more than the error of an attempt
                // that was cut short.
                Err(_) => return Err(last.unwrap_or_else(|| self.no_connection(server))),
            };
            let left = deadline.left_at(Instant::now());
            if left < SHORTEST_PAUSE {
                return Err(error);
            }
            // The last pauses are shorter, so that attempts continue until the time is over.
            let pause = backoff.next().min(left / 2);
            if let (None, Error::Connect { address, reason, .. }) = (&last, &error) {
                tracing::warn!(
                    target: LOG_TARGET,
                    connection = "first",
                    outage,
                    server = address,
                    error = reason,
                    "Redis is unavailable; connecting is retried"
                );
            }
            last = Some(error);
            sleep(pause).await;
        }
    }

    fn no_connection(&self, server: &str) -> Error {
        let (kind, waited) = (ConnectErrorKind::TimedOut, Rounded(self.connect_timeout));
        let reason = format!(
            "no connection within the connect timeout of {waited}: check that the server runs and \
             that the network reaches it, or use a longer timeout"
        );
        let address = server.to_owned();
        Error::Connect { address, kind, reason, right: None, source: None }
    }
}
