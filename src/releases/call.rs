//! A call of `release`.

use std::collections::HashSet;
use std::mem;
use std::sync::{Arc, Mutex};

use redis::{Cmd, RedisError};
use tokio::time::Instant;

use super::ledger::Numbered;
use super::{Entry, Releases};
use crate::protocol::{MAX_BATCH, ReleaseMode, released};
use crate::server::{Earlier, EarlierCall};

/// Releases entries with the same release mode. The entries count as under way until a reply
/// confirms them. If the call is dropped without this reply, the entries are sent again.
pub(crate) struct ReleaseCall {
    releases: Arc<Releases>,
    mode: ReleaseMode,
    entries: Vec<Numbered>,
    began: Instant,
    /// The connection to which the call was written.
    written: Mutex<Option<u64>>,
}

impl ReleaseCall {
    /// Creates calls that together release these entries.
    pub(super) fn of(releases: &Arc<Releases>, entries: Vec<Numbered>) -> Vec<Self> {
        let mut calls: Vec<(Self, HashSet<u128>)> = Vec::new();
        for numbered in entries {
            let Entry { mode, given_up, .. } = &*numbered.1;
            let (mode, id) = (*mode, given_up.number());
            // A call contains an ID at most once.
            let fits = |(call, ids): &&mut (Self, HashSet<u128>)| {
                call.mode == mode && ids.len() < MAX_BATCH && !ids.contains(&id)
            };
            match calls.iter_mut().find(fits) {
                Some((call, ids)) => {
                    call.entries.push(numbered);
                    ids.insert(id);
                }
                None => calls.push((Self::begin(releases, mode, numbered), HashSet::from([id]))),
            }
        }
        calls.into_iter().map(|(call, _)| call).collect()
    }

    fn begin(releases: &Arc<Releases>, mode: ReleaseMode, first: Numbered) -> Self {
        let (releases, entries) = (releases.clone(), vec![first]);
        Self { releases, mode, entries, began: Instant::now(), written: Mutex::new(None) }
    }

    fn first(&self) -> &Entry {
        &self.entries[0].1
    }

    /// Records the reply. Returns whether the reply confirms the releases.
    pub(crate) fn confirm(&mut self, response: Result<Vec<i64>, RedisError>) -> bool {
        self.releases.meter.ended(self.entries.len(), self.began, response.is_ok());
        let Ok(reply) = response else { return false };
        let statuses = self.first().given_up.statuses(&reply);
        // A proxy may mix up replies.
        if released(statuses, self.entries.len()).len() != self.entries.len() {
            return false;
        }
        let entries = mem::take(&mut self.entries);
        for entry in self.releases.with(|ledger| ledger.confirmed(entries)) {
            if let Some((at, entry)) = entry.given_up.released() {
                self.releases.add_later(at, entry);
            }
        }
        self.releases.changed();
        true
    }
}

impl EarlierCall for ReleaseCall {
    const SCRIPT: &'static str = "release";

    fn write(&self, cmd: &mut Cmd) {
        self.first().given_up.write_keys(cmd);
        cmd.arg(self.mode.text());
        for (_, entry) in &self.entries {
            cmd.arg(entry.given_up.id());
        }
    }

    fn written(&self, connection: u64) {
        *self.written.lock().expect("nothing panics while it is locked") = Some(connection);
        self.releases.with(|ledger| ledger.written(connection, &self.entries));
    }

    fn answered(mut self, response: Result<Vec<i64>, RedisError>) {
        self.confirm(response);
    }
}

/// The keeper's calls have no order among themselves.
impl Earlier for ReleaseCall {
    type Call = Self;

    fn is_ready(&self) -> bool {
        true
    }

    async fn ready(&self) {}

    fn unwritten(&self, _connection: u64) -> Vec<Self> {
        Vec::new()
    }

    fn written(&self, connection: u64) {
        EarlierCall::written(self, connection);
    }
}

impl Drop for ReleaseCall {
    fn drop(&mut self) {
        if self.entries.is_empty() {
            return;
        }
        let written = *self.written.lock().expect("nothing panics while it is locked");
        self.releases.with(|ledger| ledger.failed(written, &self.entries));
        self.releases.changed();
    }
}
