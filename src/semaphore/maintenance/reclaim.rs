//! Gives back what was dropped, and what nobody here wants.

use std::mem;
use std::sync::Arc;

use tokio::time::Instant;

use super::Done;
use crate::batching::MAX_BATCH;
use crate::runtime::Deadline;
use crate::semaphore::acquisition::Acquisition;
use crate::semaphore::core::{Core, ReleaseMode};

/// What is to be given back. One may come twice: from its wait, and from an answer that found it still
/// there. The second release finds nothing.
pub(super) type Releases = Vec<(Arc<Acquisition>, ReleaseMode)>;

/// Goes on until Redis has nothing of them any more: the leases have ended. What may be in the queue
/// can be granted for as long as this process is taken for alive.
pub(super) async fn release(core: Arc<Core>, mut releases: Releases) -> Done {
    // A call is of one mode.
    releases.sort_by_key(|(_, mode)| *mode == ReleaseMode::Consume);
    let held_for = core.until_leases_end();
    let patience = |acquisition: &Acquisition| match acquisition.lease() {
        Some(_) => held_for,
        None => core.context.settings.liveness.saturating_add(held_for),
    };
    core.release_all(&releases, patience).await;
    Done::Released
}

/// Words that hold permits which nobody here wants: a message told of them, but they are neither
/// waited for nor held. The release of a wait was lost, say. Each is given back at once, or it would
/// block a permit for a lease; one call after the other, however many messages come: some may be
/// forged.
#[derive(Default)]
pub(super) struct Unwanted {
    words: Vec<String>,
    is_releasing: bool,
}

impl Unwanted {
    /// What is too much is left to its lease.
    pub(super) fn add(&mut self, words: Vec<String>) {
        let room = MAX_BATCH - self.words.len();
        self.words.extend(words.into_iter().take(room));
    }

    /// What goes out in the next call, unless one is out.
    pub(super) fn next(&mut self) -> Option<Vec<String>> {
        if self.is_releasing || self.words.is_empty() {
            return None;
        }
        self.is_releasing = true;
        let mut words = mem::take(&mut self.words);
        // The same message may come twice.
        words.sort_unstable();
        words.dedup();
        Some(words)
    }

    pub(super) fn note_released(&mut self) {
        self.is_releasing = false;
    }
}

pub(super) async fn release_unwanted(core: Arc<Core>, words: Vec<String>) -> Done {
    let (semaphore, permits, started) = (&core.name, words.len(), Instant::now());
    tracing::debug!(semaphore, permits, "granted, and wanted by nobody here");
    let deadline = Deadline::after(core.until_leases_end());
    if let Err(error) = core.insist(deadline, || core.release_unwanted(&words)).await {
        core.warn_of_unreleased(permits, started, &error);
    }
    Done::ReleasedUnwanted
}
