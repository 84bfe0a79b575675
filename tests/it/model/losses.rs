//! Simulates lost keys in the model. A semaphore in memory loses no keys.

use super::system::Model;

const LONGEST_LEASE: i64 = 604_800_000;

/// Removes the key with this number.
pub fn lose(model: &mut Model, key: usize) {
    match key {
        0 => model.permits.clear(),
        1 => model.queue = Default::default(),
        2 => {
            model.clients.clear();
            model.marks.clear();
            model.longest_heartbeat_timeout = 0;
        }
        _ => {
            (model.declared, model.runtime) = (None, None);
            (model.last, model.longest_lease) = (0, 0);
        }
    }
}

/// Prepares the model for a script. Without `state`, permits may have any lease, and requests may
/// have any ticket.
pub fn recover(model: &mut Model) {
    let Model { longest_heartbeat_timeout, marks, permits, queue, .. } = model;
    let has_clients = *longest_heartbeat_timeout > 0 || !marks.is_empty();
    let is_anybody_there = has_clients || !permits.is_empty() || !queue.is_empty();
    if !model.is_used() {
        model.longest_lease = if is_anybody_there { LONGEST_LEASE } else { 0 };
        model.last = model.queue.iter().next_back().map_or(0, |(ticket, _)| *ticket);
    }
}
