//! IDs, `NOTIFY:CLIENT:WEIGHT:LEASE:NONCE`, of which the semaphore keeps nothing else.

use super::Refusal;
use crate::protocol::id;

/// Told by no message when its turn comes.
const UNTOLD: &str = "N";

fn part(id: &str, index: usize) -> &str {
    id.split(':').nth(index).unwrap_or_default()
}

pub(super) fn is_told(id: &str) -> bool {
    part(id, 0) != UNTOLD
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

/// As its nonce tells it.
pub(super) fn head_start(id: &str) -> i64 {
    id::head_start_of(id).try_into().unwrap_or(i64::MAX)
}

/// Of what is no ID, as `lua/lib/ids.lua` says it.
pub(super) fn check(index: usize, name: &str, id: &str) -> Result<(), Refusal> {
    if id::lease_of(id).is_some() {
        return Ok(());
    }
    let start = id.match_indices(':').nth(3).map_or("", |(colon, _)| &id[..=colon]);
    // With a nonce that is right.
    let wanted = match id::lease_of(&format!("{start}{}", "0".repeat(16))) {
        Some(_) => "one with a nonce of 16 to 64 letters, digits, \"_\" or \"-\"",
        None => "NOTIFY:CLIENT:WEIGHT:LEASE:NONCE with a weight from 1 to 4294967295",
    };
    Err(Refusal::argument(index, name, wanted, id))
}
