//! The functions of a semaphore that send its requests.

use std::time::Duration;

use redis::Cmd;

use super::Core;
use crate::error::Error;
use crate::protocol::{KEYS_WITHOUT_GROUPS, too_heavy};
use crate::semaphore::settings::Limit;
use crate::server::{CallError, Failure};

impl Core {
    pub(super) fn write_keys(&self, cmd: &mut Cmd) {
        let keys = match self.releases.has_groups() {
            true => &self.keys[..],
            false => &self.keys[..KEYS_WITHOUT_GROUPS],
        };
        cmd.arg(keys.len()).arg(keys);
    }

    /// Makes a call. The releases of the permits and requests that were given up before `mark` are
    /// sent first.
    pub(super) async fn attempt(
        &self,
        mark: u64,
        script: &'static str,
        write: impl Fn(&mut Cmd) + Send + Sync,
        limit: Duration,
    ) -> Result<Vec<i64>, CallError> {
        let earlier = self.releases.until(mark);
        self.context.servers.attempt(self.slot, &earlier, script, write, limit).await
    }

    /// Notifies the batcher of releases, the keeper and waiting calls. Releases that were kept back
    /// may be sent now.
    pub(super) fn kept_may_go(&self) {
        self.release_batcher.kept_may_go();
        self.releases.changed();
    }

    pub(crate) fn error(&self, operation: &'static str, failure: Failure) -> Error {
        let semaphore = self.name.clone();
        let server = self.context.servers.server(self.slot);
        match failure {
            Failure::NoResponse {
                elapsed,
                last: CallError { server: last, error: source, .. },
            } => {
                let server = last.unwrap_or(server);
                Error::Unavailable { semaphore, operation, server, elapsed, source }
            }
            Failure::Rejected(source) => match too_heavy(&source) {
                // This crate never declares a limit of 0, so 0 means that no limit exists.
                Some((_, 0)) if self.settings.limit == Limit::Existing => {
                    Error::NoLimit { semaphore }
                }
                Some((weight, limit)) => Error::TooHeavy { semaphore, weight, limit },
                None => Error::Rejected { semaphore, operation, server, source },
            },
        }
    }
}
