//! Forges members of `order` and `turns`.

use fastrand::Rng;

use super::arguments::{bytes, hostile, pick};

/// The names of groups, and texts that are similar to names.
const NAMES: [&str; 8] = ["a", "b", "c", "zzz", "", "*", "a:b", "a;"];
const SCORES: [&str; 9] = ["1", "1.5", "9", "1e308", "-1", "-9", "0", "inf", "-inf"];

/// Returns the number of a key, a member and its score. `waiting` is the ID of a waiting request
/// and its ticket.
pub fn forged_member(
    random: &mut Rng,
    waiting: Option<(&String, &i64)>,
) -> (usize, Vec<u8>, &'static str) {
    let name = match random.u8(..10) {
        0 => hostile(random),
        1 => bytes(random, 20),
        _ => pick(random, &NAMES).into(),
    };
    if random.bool() {
        return (5, name, pick(random, &SCORES));
    }
    let rest = match (random.u8(..6), waiting) {
        (0, _) => hostile(random),
        (1, _) => b":0000000000000001:".to_vec(),
        (2, _) => b":0000000000000001:N:c0:1:1:a,1,0:forged__________".to_vec(),
        (3, Some((id, _))) => format!(":9999999999999999:{id}").into_bytes(),
        (_, Some((id, ticket))) => format!(":{ticket:016}:{id}").into_bytes(),
        (_, None) => b":".to_vec(),
    };
    let score = if random.u8(..8) == 0 { pick(random, &SCORES) } else { "0" };
    (4, [name, rest].concat(), score)
}
