//! The counts of a client process. The checker compares these counts with the process's reports.

use super::history::{Counts, What};
use super::topology::Names;
use super::{KINDS, Special};
use crate::metrics::counted::{Counted, Values};

/// Returns the counts. Call this function only after everything has ended, because this recorder
/// may lose values while it is read. For some semaphores, a task omits these events from its
/// reports:
///
/// - permits of a set that the task held only for a moment, and a permit that it held while the
///   adoption was dropped,
/// - a loss that was found while a permit was left to expire in the background.
pub fn reported(counted: &Counted, names: &Names) -> impl Iterator<Item = What> {
    let values = counted.values();
    names.iter().enumerate().map(move |(semaphore, name)| What::Counted {
        semaphore,
        counts: of(&values, name),
        is_all_reported: !matches!(
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
