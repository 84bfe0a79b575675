//! What this process has parted with, and may be in use without it.

use std::collections::HashMap;

use tokio::time::Instant;

/// So few are not worth a look at all.
const FEW: usize = 64;

/// By the number of the acquisition: until when.
#[derive(Default)]
pub(super) struct Parted {
    until: HashMap<u128, Instant>,
    /// How many there were when those that had ended were forgotten last.
    pruned: usize,
}

impl Parted {
    pub(super) fn add(&mut self, number: u128, until: Instant) {
        if self.until.len() >= FEW.max(2 * self.pruned) {
            let now = Instant::now();
            self.until.retain(|_, until| *until > now);
            self.pruned = self.until.len();
            self.until.shrink_to(2 * self.pruned);
        }
        self.until.insert(number, until);
    }

    pub(super) fn has(&self, number: u128) -> bool {
        self.until.get(&number).is_some_and(|until| *until > Instant::now())
    }
}
