//! Permits that were detached or left to expire. This process must not release these permits.

use std::collections::HashMap;

use tokio::time::Instant;

/// Fewer entries than this are not worth pruning.
const FEW: usize = 64;

/// The end of each lease, by the number of the acquisition.
#[derive(Default)]
pub(super) struct Parted {
    until: HashMap<u128, Instant>,
    /// The number of entries after the last pruning.
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
