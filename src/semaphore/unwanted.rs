//! Permits that nobody wants: a message tells of a word that is neither waited for nor held here.
//! The release of a wait was lost, say. Each is given back at once, or it would block its place for
//! a lease.

use std::mem;
use std::sync::{Mutex, MutexGuard};

use crate::batching::MAX_BATCH;

/// Words of one semaphore. One call after the other releases them, however many messages come: some
/// may be forged.
#[derive(Debug, Default)]
pub(crate) struct Unwanted(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    words: Vec<String>,
    is_served: bool,
}

impl Unwanted {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nothing panics while it is locked")
    }

    /// Answers whether a job must begin to release them. What is too much is left to its lease.
    pub(crate) fn add(&self, words: impl Iterator<Item = String>) -> bool {
        let mut state = self.state();
        let room = MAX_BATCH - state.words.len();
        state.words.extend(words.take(room));
        !state.words.is_empty() && !mem::replace(&mut state.is_served, true)
    }

    /// What goes out in the next call. `None` ends the job.
    pub(crate) fn take(&self) -> Option<Vec<String>> {
        let mut state = self.state();
        let mut words = mem::take(&mut state.words);
        state.is_served = !words.is_empty();
        // The same message may come twice.
        words.sort_unstable();
        words.dedup();
        state.is_served.then_some(words)
    }
}
