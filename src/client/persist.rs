//! Connecting again, for as long as the builder was told to.

use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep, timeout};

use crate::client::SemaphoreClientBuilder;
use crate::error::{ConnectErrorKind, Error, Rounded};
use crate::runtime::Deadline;
use crate::server::{Backoff, LOG_TARGET};

/// With less time left there is no other attempt.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);

impl SemaphoreClientBuilder {
    /// Connects, and again while the failure passes by itself and there is time. Every attempt
    /// begins from scratch.
    pub(super) async fn persist<T>(
        &self,
        server: &str,
        connect: impl Fn() -> BoxFuture<'static, Result<T, Error>>,
    ) -> Result<T, Error> {
        let patience = self.connect_timeout;
        if patience.is_zero() {
            return connect().await;
        }
        let deadline = Deadline::after(patience);
        let mut backoff = Backoff::of_connections(self.settings.response_timeout);
        let mut last: Option<Error> = None;
        // The address that the log names.
        let mut told = None;
        loop {
            let left = deadline.left_at(Instant::now());
            let error = match timeout(left, connect()).await {
                Ok(Err(error)) if error.may_pass() => error,
                Ok(done) => {
                    if let (Ok(_), Some(server)) = (&done, &told) {
                        tracing::info!(
                            target: LOG_TARGET,
                            connection = "first",
                            server,
                            "Redis is available"
                        );
                    }
                    return done;
                }
                // An attempt that is cut short finds out less than the one before it.
                Err(_) => return Err(last.unwrap_or_else(|| self.no_connection(server))),
            };
            let left = deadline.left_at(Instant::now());
            if left < SHORTEST_PAUSE {
                return Err(error);
            }
            // The last attempts come closer together, so that the time is used to its end.
            let pause = backoff.next().min(left / 2);
            if let (None, Error::Connect { address, reason, .. }) = (&told, &error) {
                tracing::warn!(
                    target: LOG_TARGET,
                    connection = "first",
                    server = address,
                    error = reason,
                    "Redis is unavailable; connecting is retried"
                );
                told = Some(address.clone());
            }
            last = Some(error);
            sleep(pause).await;
        }
    }

    fn no_connection(&self, server: &str) -> Error {
        let (kind, waited) = (ConnectErrorKind::TimedOut, Rounded(self.connect_timeout));
        let reason = format!(
            "no connection within the connect timeout of {waited}: see whether the server runs, and \
             whether the network leads there, or allow more time"
        );
        let address = server.to_owned();
        Error::Connect { address, kind, reason, right: None, source: None }
    }
}
