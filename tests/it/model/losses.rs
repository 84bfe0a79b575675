//! Simulates lost keys in the model. A semaphore in memory loses no keys.

use super::system::Model;
use test_support::scripts::part;

const LONGEST_LEASE: i64 = 604_800_000;

/// Removes the key with this number.
pub fn lose(model: &mut Model, key: usize) {
    match key {
        0 => model.permits.clear(),
        1 => model.queue = Default::default(),
        5 => model.turns.starts.clear(),
        2 => {
            model.clients.clear();
            model.marks.clear();
            model.longest_heartbeat_timeout = 0;
        }
        _ => {
            (model.declared, model.runtime) = (None, None);
            model.caps.clear();
            (model.last, model.longest_lease) = (0, 0);
            model.turns.virtual_time = None;
        }
    }
}

/// Prepares the model for a script. Without `state`, permits may have any lease, and requests may
/// have any ticket.
pub fn recover(model: &mut Model) {
    let Model { longest_heartbeat_timeout, marks, permits, queue, .. } = &*model;
    let has_clients = *longest_heartbeat_timeout > 0 || !marks.is_empty();
    let is_anybody_there = has_clients || !permits.is_empty() || !queue.is_empty();
    if !model.is_used() {
        model.longest_lease = if is_anybody_there { LONGEST_LEASE } else { 0 };
        model.last = model.queue.iter().map(|(ticket, _)| *ticket).max().unwrap_or(0);
        model.turns.virtual_time = virtual_time(model).filter(|_| is_anybody_there);
    }
}

/// Without `state`, the virtual time is the first start or the last end of a turn.
fn virtual_time(model: &Model) -> Option<f64> {
    let turns = || model.turns.starts.values().copied();
    let start = turns().filter(|turn| *turn > 0.0 && turn.is_finite()).min_by(f64::total_cmp);
    let end = turns().filter(|turn| *turn < 0.0).map(|turn| -turn).max_by(f64::total_cmp);
    let ids = model.permits.keys().chain(model.queue.iter().map(|(_, id)| id));
    let has_groups = ids.into_iter().any(|id| part(id, 4).contains(','));
    start.or(end).or(has_groups.then_some(1.0))
}
