//! The values of a semaphore in the last minutes, as far as they were read.

use std::collections::VecDeque;
use std::time::Duration;

use crate::survey::Summary;
use crate::top::state::share;

/// The number of parts into which the shown time is divided. In a narrow history, each column joins
/// two or three parts.
pub const PARTS: usize = 30;
const SHORTEST_PART: Duration = Duration::from_secs(10);
/// How many parts are kept: a few more than a history shows.
const KEPT: usize = PARTS + 2;

/// Returns the length of a part. Each part usually contains a read of each semaphore, even if the
/// semaphore is not on the screen.
pub fn part(pace_of_others: Duration) -> Duration {
    pace_of_others.max(SHORTEST_PART)
}

#[derive(Debug, Clone, Default)]
pub struct History {
    /// The values of each part, the newest first; `None` for a part without values.
    parts: VecDeque<Option<Seen>>,
    /// The number of the newest part.
    number: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    /// The sum of the shares of the limit that were held.
    shares: f32,
    looks: u32,
    /// The longest queue.
    pub queued: u64,
}

impl Seen {
    pub fn new(share: f32, queued: u64) -> Self {
        Self { shares: share, looks: 1, queued }
    }

    /// Returns the mean share of the limit.
    pub fn held(self) -> f32 {
        self.shares / self.looks as f32
    }
}

impl History {
    pub fn add(&mut self, number: u64, summary: &Summary) {
        let passed = number.saturating_sub(self.number).min(KEPT as u64);
        (0..passed).for_each(|_| self.parts.push_front(None));
        self.number = self.number.max(number);
        self.parts.truncate(KEPT);
        let seen = Seen::new(share(summary) as f32, summary.queued);
        match self.parts.front_mut() {
            Some(newest) => *newest = joined(*newest, Some(seen)),
            None => self.parts.push_front(Some(seen)),
        }
    }

    /// Returns the parts up to the current part, the newest last.
    pub fn until(&self, now: u64, columns: usize) -> Vec<Option<Seen>> {
        let parts = (PARTS / columns).max(1) as u64;
        let last = now / parts;
        let mut seen = vec![None; columns];
        for (before, part) in (0..).zip(&self.parts) {
            let Some(number) = self.number.checked_sub(before) else { break };
            let column = (columns as u64 - 1).checked_sub(last.saturating_sub(number / parts));
            if let Some(column) = column {
                seen[column as usize] = joined(seen[column as usize], *part);
            }
        }
        seen
    }
}

fn joined(one: Option<Seen>, other: Option<Seen>) -> Option<Seen> {
    let (Some(one), Some(other)) = (one, other) else { return one.or(other) };
    Some(Seen {
        shares: one.shares + other.shares,
        looks: one.looks + other.looks,
        queued: one.queued.max(other.queued),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queued(history: &History, now: u64, columns: usize) -> Vec<Option<u64>> {
        history.until(now, columns).iter().map(|seen| seen.map(|seen| seen.queued)).collect()
    }

    fn add(history: &mut History, number: u64, queued: u64) {
        history.add(number, &Summary { queued, ..Summary::default() });
    }

    #[test]
    fn the_history_keeps_the_average_held_and_the_maximum_queued() {
        let mut history = History::default();
        for (held, queued) in [(1, 5), (3, 0), (2, 0)] {
            history.add(7, &Summary { held, queued, limit: Some(4), ..Summary::default() });
        }
        let seen = history.until(7, PARTS)[PARTS - 1].unwrap();
        assert_eq!((seen.held(), seen.queued), (0.5, 5));
    }

    #[test]
    fn the_history_has_gaps_for_times_without_reads() {
        let mut history = History::default();
        for (number, queued) in [(0, 1), (0, 3), (0, 2), (1, 7), (4, 5)] {
            add(&mut history, number, queued);
        }
        let shown = queued(&history, 5, PARTS);
        assert_eq!(shown[PARTS - 6..], [Some(3), Some(7), None, None, Some(5), None]);
        assert_eq!(shown[..PARTS - 6], [None; PARTS - 6]);
        // Parts 0 to 2, and 3 to 5.
        assert_eq!(queued(&history, 5, 10)[8..], [Some(7), Some(5)]);
        assert_eq!(queued(&history, 6, 10)[7..], [Some(7), Some(5), None]);
        add(&mut history, 1000, 9);
        assert_eq!(history.parts.len(), KEPT);
        assert_eq!(queued(&history, 1000, 10)[9], Some(9));
        assert_eq!(queued(&history, 1000, 10)[..9], [None; 9]);
        assert_eq!(queued(&history, 2000, 10), [None; 10]);
    }
}
