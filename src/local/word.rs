//! Words, `HOW:CLIENT:WEIGHT:LEASE:NONCE`, of which the semaphore keeps nothing else.

use super::Refusal;
use crate::protocol::word;

/// Told by no message when its turn comes.
const UNTOLD: &str = "N";

fn part(word: &str, index: usize) -> &str {
    word.split(':').nth(index).unwrap_or_default()
}

pub(super) fn is_told(word: &str) -> bool {
    part(word, 0) != UNTOLD
}

pub(super) fn client(word: &str) -> &str {
    word::client_and_weight(word).map_or("", |(client, _)| client)
}

pub(super) fn weight(word: &str) -> i64 {
    word::client_and_weight(word).map_or(0, |(_, weight)| weight.into())
}

pub(super) fn lease(word: &str) -> i64 {
    part(word, 3).parse().unwrap_or_default()
}

/// As its nonce tells it.
pub(super) fn ahead(word: &str) -> i64 {
    word::ahead_of(word).try_into().unwrap_or(i64::MAX)
}

/// Of what is no word, as `lua/lib/words.lua` says it.
pub(super) fn check(index: usize, name: &str, word: &str) -> Result<(), Refusal> {
    if word::lease_of(word).is_some() {
        return Ok(());
    }
    let start = word.match_indices(':').nth(3).map_or("", |(colon, _)| &word[..=colon]);
    // With a nonce that is right.
    let wanted = match word::lease_of(&format!("{start}{}", "0".repeat(16))) {
        Some(_) => "one with a nonce of 16 to 64 letters, digits, \"_\" or \"-\"",
        None => "HOW:CLIENT:WEIGHT:LEASE:NONCE with a weight from 1 to 4294967295",
    };
    Err(Refusal::argument(index, name, wanted, word))
}
