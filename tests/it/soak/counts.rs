//! What a client process counts, for the checker to compare with what it tells.

use super::history::{Counts, What};
use super::topology::Names;
use super::{KINDS, Special};
use crate::metrics::counted::{Counted, Values};

/// When all that was begun has ended, and not before: this recorder may lose what is recorded while
/// it is read, or cleans up. Of some semaphores a task does not tell all: which permits it had for
/// a moment in a set, or while an adoption was dropped; and that one was found to be lost when it
/// was left in the background.
pub fn told(counted: &Counted, names: &Names) -> impl Iterator<Item = What> {
    let values = counted.values();
    names.iter().enumerate().map(move |(semaphore, name)| What::Counted {
        semaphore,
        counts: of(&values, name),
        is_all_told: !matches!(
            KINDS[semaphore].special,
            Special::OfSet | Special::Passes | Special::Leaves
        ),
    })
}

fn of(values: &Values, name: &str) -> Counts {
    let outcomes = values.outcomes(name);
    let outcome = |outcome: &str| outcomes.get(outcome).copied().unwrap_or_default() as u64;
    let value = |metric: &str| values.of(name, metric);
    Counts {
        immediate: outcome("immediate"),
        waited: outcome("waited"),
        adopted: outcome("adopted"),
        wait_times: value("wait_seconds_count") as u64,
        refused: outcome("no_permit"),
        timed_out: outcome("timeout"),
        cancelled: outcome("cancelled"),
        failed: outcome("failed") + outcome("closed"),
        hold_times: value("hold_seconds_count") as u64,
        lost: value("lost_total") as u64,
        held: value("held") as i64,
        waiting: value("queued") as i64,
        wait_time: value("wait_seconds_sum"),
        hold_time: value("hold_seconds_sum"),
    }
}
