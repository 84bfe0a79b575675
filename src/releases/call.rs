//! A call that ends given-up items: a call of `release`, or of `refresh` if permits are left to
//! expire.

use std::collections::HashSet;
use std::mem;
use std::sync::Arc;

use redis::{Cmd, RedisError};
use tokio::time::Instant;

use super::ledger::Numbered;
use super::{Ending, Entry, GivenUpBefore, Releases};
use crate::lock::Lock;
use crate::metrics::called;
use crate::protocol::{MAX_BATCH, refreshed, released};

/// A call that ends entries, all with the same [`Ending`]. The entries count as under way until a
/// reply confirms the call. If the call is dropped without this reply, the entries are sent again.
pub(crate) struct ReleaseCall {
    releases: Arc<Releases>,
    pub(crate) ending: Ending,
    entries: Vec<Numbered>,
    began: Instant,
    written: Lock<Option<u64>>,
}

impl ReleaseCall {
    /// Creates calls that together end these entries.
    pub(super) fn of(releases: &Arc<Releases>, entries: Vec<Numbered>) -> Vec<Self> {
        let mut calls: Vec<(Self, HashSet<u128>)> = Vec::new();
        for numbered in entries {
            let Entry { ending, given_up, .. } = &*numbered.1;
            let (ending, id) = (*ending, given_up.number());
            // A call contains an ID at most once.
            let fits = |(call, ids): &&mut (Self, HashSet<u128>)| {
                call.ending == ending && ids.len() < MAX_BATCH && !ids.contains(&id)
            };
            match calls.iter_mut().find(fits) {
                Some((call, ids)) => {
                    call.entries.push(numbered);
                    ids.insert(id);
                }
                None => calls.push((Self::begin(releases, ending, numbered), HashSet::from([id]))),
            }
        }
        calls.into_iter().map(|(call, _)| call).collect()
    }

    fn begin(releases: &Arc<Releases>, ending: Ending, first: Numbered) -> Self {
        let (releases, entries) = (releases.clone(), vec![first]);
        Self { releases, ending, entries, began: Instant::now(), written: Lock::new(None) }
    }

    /// The number of requests in the call.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    fn first(&self) -> &Entry {
        &self.entries[0].1
    }

    /// Returns what the keeper needs to send this call without earlier calls: the keeper's calls
    /// need no order.
    pub(crate) fn alone(&self) -> GivenUpBefore<'_> {
        GivenUpBefore { releases: &self.releases, end: 0, alone: Some(self) }
    }

    pub(crate) fn script(&self) -> &'static str {
        self.ending.script()
    }

    pub(crate) fn write(&self, cmd: &mut Cmd) {
        // If the server did not have the script, the call is written again.
        if self.written.lock().is_some() {
            self.releases.lapse();
        }
        self.first().given_up.write_keys(cmd);
        if let Ending::Release(mode) = self.ending {
            cmd.arg(mode.text());
        }
        for (_, entry) in &self.entries {
            entry.given_up.write(self.ending, cmd);
        }
    }

    /// Called when the call has been written to this connection.
    pub(crate) fn written(&self, connection: u64) {
        *self.written.lock() = Some(connection);
        self.releases.ledger.lock().written(connection, &self.entries);
    }

    /// Called when the call ends without a reply, and before redis-rs notices that the call has
    /// ended: redis-rs then no longer sends the command.
    pub(crate) fn withdrawn(&self) {
        self.releases.lapse();
    }

    /// Records the reply. Returns whether the reply confirms the releases.
    pub(crate) fn confirm(&mut self, response: Result<Vec<i64>, RedisError>) -> bool {
        let count = self.entries.len();
        let batch = matches!(self.ending, Ending::Release(_)).then_some(count);
        called(self.script(), self.began, response.is_ok(), batch);
        let Ok(reply) = response else { return false };
        let statuses = self.first().given_up.statuses(&reply);
        let were_held = match self.ending {
            Ending::Release(_) => released(statuses, count),
            Ending::LetExpire => refreshed(statuses),
        };
        // A proxy may mix up replies.
        if were_held.len() != count {
            return false;
        }
        let entries = mem::take(&mut self.entries).into_iter().zip(were_held);
        // If an entry was also in an earlier call, the reply to that call may have confirmed the
        // entry.
        let mut ledger = self.releases.ledger.lock();
        let confirmed: Vec<_> =
            entries.filter(|((number, _), _)| ledger.remove(*number).is_some()).collect();
        drop(ledger);
        for ((_, entry), was_held) in confirmed {
            entry.given_up.ended(self.ending, was_held);
        }
        self.releases.changed();
        true
    }
}

impl Drop for ReleaseCall {
    fn drop(&mut self) {
        if self.entries.is_empty() {
            return;
        }
        let written = *self.written.lock();
        self.releases.ledger.lock().failed(written, &self.entries);
        self.releases.changed();
    }
}
