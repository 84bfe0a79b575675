//! IDs, `NOTIFY:CLIENT:WEIGHT:LEASE:NONCE`. The semaphore stores these parts only in the ID.

use super::Refusal;
use crate::protocol::id;

/// The notify mode of a client that gets no messages.
const UNNOTIFIED: &str = "N";

/// The group, share and cap, if the ID has a group.
fn group_part(id: &str) -> Option<(&str, &str, &str)> {
    let mut parts = id.split(':').nth(4)?.split(',');
    Some((parts.next()?, parts.next()?, parts.next()?))
}

/// The group, or "" without a group.
pub(super) fn group(id: &str) -> &str {
    group_part(id).map_or("", |(group, ..)| group)
}

pub(super) fn share(id: &str) -> f64 {
    group_part(id).map_or(1.0, |(_, share, _)| share.parse().unwrap_or(1.0))
}

/// The cap of the ID's group, or `None` if it has none.
pub(super) fn cap(id: &str) -> Option<i64> {
    group_part(id)?.2.parse().ok().filter(|cap| *cap > 0)
}

fn part(id: &str, index: usize) -> &str {
    id.split(':').nth(index).unwrap_or_default()
}

pub(super) fn is_notified(id: &str) -> bool {
    part(id, 0) != UNNOTIFIED
}

pub(super) fn client(id: &str) -> &str {
    id::client_and_weight(id).map_or("", |(client, _)| client)
}

pub(super) fn weight(id: &str) -> i64 {
    id::client_and_weight(id).map_or(0, |(_, weight)| weight.into())
}

pub(super) fn lease(id: &str) -> i64 {
    part(id, 3).parse().unwrap_or_default()
}

/// The head start in ms, which is part of the nonce.
pub(super) fn head_start(id: &str) -> i64 {
    id::head_start_of(id).try_into().unwrap_or(i64::MAX)
}

/// Rejects an invalid ID, as `lua/lib/ids.lua` does. The text of the error may be shorter.
pub(super) fn check(index: usize, name: &str, id: &str) -> Result<(), Refusal> {
    if id::lease_of(id).is_some() {
        return Ok(());
    }
    let start = id.match_indices(':').nth(3).map_or("", |(colon, _)| &id[..=colon]);
    // The same ID with a valid nonce.
    let wanted = match id::lease_of(&format!("{start}{}", "0".repeat(16))) {
        Some(_) => "one with a nonce of 16 to 64 letters, digits, \"_\" or \"-\"",
        None => "NOTIFY:CLIENT:WEIGHT:LEASE:NONCE with a weight from 1 to 4294967295",
    };
    Err(Refusal::argument(index, name, wanted, id))
}
