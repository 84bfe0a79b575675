//! IDs: the names of requests on the server, `NOTIFY:CLIENT:WEIGHT:LEASE:NONCE`. Before the nonce, an
//! ID may have the part `GROUP,SHARE,CAP:`. The server stores these parts only in the ID. The granted
//! permit keeps the ID.

use std::time::Duration;

use uuid::Uuid;

/// The digits of a nonce. Each digit encodes six bits.
const DIGITS: &[u8; 64] = b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";
/// The number of digits for 64 bits.
const HALF: usize = 11;
/// The number of random digits in a client ID.
const RANDOM: usize = 8;
/// Precedes the head start in a nonce.
const HEAD_START: &str = "headstart";
const MAX_CLIENT: usize = 100;
/// The maximum number of characters in the name of a group.
pub(crate) const MAX_GROUP: usize = 64;
pub(crate) const MAX_SHARE: u16 = 1000;
/// A client ID is the client name, a dot and the random digits.
pub(crate) const MAX_CLIENT_NAME: usize = MAX_CLIENT - 1 - RANDOM;
/// The largest number that scripts issue.
pub(crate) const LAST_NUMBER: u64 = (1 << 53) - 1;
/// The longest lease or heartbeat timeout.
pub(crate) const MAX_TIME: Duration = Duration::from_secs(7 * 24 * 60 * 60);

pub(crate) fn new_client(client_name: &str) -> String {
    let [random @ .., _, _, _] = digits_of(Uuid::new_v4().as_u64_pair().1);
    format!("{client_name}.{}", text(&random))
}

pub(crate) fn client_name_of(client: &str) -> &str {
    client.rsplit_once('.').map_or(client, |(client_name, _)| client_name)
}

/// The start of an ID, without the nonce. `ours` is the start of all IDs of the process:
/// `NOTIFY:CLIENT:`.
pub(crate) fn start(ours: &str, weight: u32, lease: u64) -> String {
    format!("{ours}{weight}:{lease}:")
}

/// Adds a head start in ms. The nonce contains the head start, so that `inspect` can report the
/// time waited.
pub(crate) fn start_with_head_start(start: &str, head_start: u32) -> String {
    format!("{start}{HEAD_START}{head_start}-")
}

/// Creates an ID. Every acquire calls this function, so it makes only one allocation and formats
/// nothing.
pub(crate) fn new(start: &str, number: u128) -> String {
    let (high, low) = (digits_of((number >> 64) as u64), digits_of(number as u64));
    [start, text(&high), text(&low)].concat()
}

/// The number in the nonce of an ID, if this process may have created the ID.
pub(crate) fn number_of(id: &str) -> Option<u128> {
    let digits = match split_head_start(id) {
        Some((_, digits)) => digits,
        None => id.rsplit_once(':')?.1,
    };
    if digits.len() != 2 * HALF {
        return None;
    }
    let (high, low) = digits.as_bytes().split_at(HALF);
    Some(u128::from(read_digits(high)?) << 64 | u128::from(read_digits(low)?))
}

/// The number in an ID that came in a message, if this process may have created the ID.
pub(crate) fn number_of_ours(id: &str, ours: &str) -> Option<u128> {
    lease_of(id).filter(|_| id.starts_with(ours))?;
    number_of(id)
}

/// The head start of an ID in ms, and the rest of its nonce.
fn split_head_start(id: &str) -> Option<(u64, &str)> {
    let (_, nonce) = id.rsplit_once(':')?;
    let (head_start, rest) = nonce.strip_prefix(HEAD_START)?.split_once('-')?;
    Some((number(head_start)?, rest))
}

/// The head start of an ID in ms.
pub(crate) fn head_start_of(id: &str) -> u64 {
    split_head_start(id).map_or(0, |(head_start, _)| head_start)
}

/// The client and the weight of an ID, which any client may have created.
pub(crate) fn client_and_weight(id: &str) -> Option<(&str, u32)> {
    let mut parts = id.split(':').skip(1);
    Some((parts.next()?, parts.next()?.parse().ok()?))
}

/// The lease of an ID, if the ID is valid by the rules of the scripts. Any client, in any language,
/// may have created the ID.
pub(crate) fn lease_of(id: &str) -> Option<Duration> {
    let parts: Vec<&str> = id.split(':').collect();
    let (how, client, weight, lease, group, nonce) = match parts[..] {
        [how, client, weight, lease, nonce] => (how, client, weight, lease, None, nonce),
        [how, client, weight, lease, group, nonce] => {
            (how, client, weight, lease, Some(group), nonce)
        }
        _ => return None,
    };
    let is_nonce = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    let is_sound = matches!(how, "P" | "S" | "N")
        && (1..=MAX_CLIENT).contains(&client.len())
        && client.chars().all(|c| is_nonce(c) || c == '.')
        && integer(weight)? <= u32::MAX.into()
        && group.is_none_or(|group| is_group(group, weight))
        && (16..=64).contains(&nonce.len())
        && nonce.chars().all(is_nonce);
    let lease = Duration::from_millis(integer(lease)?);
    (is_sound && lease <= MAX_TIME).then_some(lease)
}

/// The part `GROUP,SHARE,CAP:` of an ID, or "" if the ID has none.
pub(crate) fn group_of(id: &str) -> &str {
    let start = id.match_indices(':').nth(3).map_or(id.len(), |(colon, _)| colon + 1);
    let (group, _) = id[start..].rsplit_once(':').unwrap_or_default();
    if group.is_empty() { "" } else { &id[start..=start + group.len()] }
}

pub(crate) fn is_group_name(name: &str) -> bool {
    let is_in_name = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (1..=MAX_GROUP).contains(&name.len()) && name.chars().all(is_in_name)
}

/// Whether the part of an ID with the group is valid: `GROUP,SHARE,CAP`.
fn is_group(part: &str, weight: &str) -> bool {
    let parts: Vec<&str> = part.split(',').collect();
    let [name, share, cap] = parts[..] else { return false };
    let fits = |cap| cap == 0 || integer(weight).is_some_and(|weight| weight <= cap);
    is_group_name(name)
        && integer(share).is_some_and(|share| share <= MAX_SHARE.into())
        && number(cap).is_some_and(|cap| cap <= u32::MAX.into() && fits(cap))
}

/// Reads a number that is at least 1.
fn integer(text: &str) -> Option<u64> {
    number(text).filter(|number| *number > 0)
}

/// Reads a number in the form that scripts use: only digits, without leading zeros.
pub(crate) fn number(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let is_plain = is_plain && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|number| is_plain && *number <= LAST_NUMBER)
}

fn digits_of(half: u64) -> [u8; HALF] {
    let mut digits = [0; HALF];
    for (place, digit) in digits.iter_mut().rev().enumerate() {
        *digit = DIGITS[(half >> (6 * place)) as usize % DIGITS.len()];
    }
    digits
}

fn text(digits: &[u8]) -> &str {
    str::from_utf8(digits).expect("all digits are ASCII")
}

fn read_digits(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0_u64, |number, digit| {
        let digit = DIGITS.binary_search(digit).ok()? as u64;
        number.checked_mul(DIGITS.len() as u64)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "P:web.1.2:";

    #[test]
    fn the_number_of_an_id_is_parsed_from_the_id() {
        let start = start(OURS, 1, 30_000);
        for number in [0, 1, 63, 64, u128::from(u64::MAX), 1 << 64, u128::MAX, 7 << 100 | 9] {
            for start in [
                start.clone(),
                start_with_head_start(&start, 1),
                start_with_head_start(&start, 3_600_000),
            ] {
                let id = new(&start, number);
                assert_eq!(
                    (number_of(&id), number_of_ours(&id, OURS)),
                    (Some(number), Some(number))
                );
                assert_eq!(client_and_weight(&id), Some(("web.1.2", 1)));
            }
        }
    }

    #[test]
    fn an_id_that_this_process_did_not_create_has_no_number() {
        let nonce = "0".repeat(22);
        for strange in [
            String::new(),
            format!("P:other:1:30000:{nonce}"),
            format!("{OURS}0:30000:{nonce}"),
            format!("{OURS}01:30000:{nonce}"),
            format!("{OURS}+1:30000:{nonce}"),
            format!("{OURS}4294967296:30000:{nonce}"),
            format!("{OURS}1:604800001:{nonce}"),
            format!("{OURS}1:30000:{nonce}0"),
            format!("{OURS}1:30000:headstart-{nonce}"),
            format!("{OURS}1:30000:headstart1-{nonce}0"),
            format!("{OURS}1:30000:headstart1_{nonce}"),
            format!("{OURS}1:30000:{}", "z".repeat(22)),
            format!("{OURS}1:30000:{}", ".".repeat(22)),
            format!("{OURS}1:30000:1:{nonce}"),
            format!("{OURS}1:{nonce}"),
        ] {
            assert_eq!(number_of_ours(&strange, OURS), None, "{strange}");
        }
    }

    #[test]
    fn the_lease_is_parsed_from_the_id_of_any_client() {
        let lease = Some(Duration::from_millis(30_000));
        for id in [
            "P:web-7.4711.k3f9zq:1:30000:9fJ2mQ0xV7sT1bLc".to_owned(),
            format!("S:{}:4294967295:30000:{}", "a".repeat(100), "-".repeat(64)),
            new(&start("N:x_y:", 7, 30_000), 0),
        ] {
            assert_eq!(lease_of(&id), lease, "{id}");
        }
        let nonce = "0".repeat(16);
        for strange in [
            String::new(),
            "*".to_owned(),
            format!("X:a:1:1:{nonce}"),
            format!("P::1:1:{nonce}"),
            format!("P:{}:1:1:{nonce}", "a".repeat(101)),
            format!("P:a b:1:1:{nonce}"),
            format!("P:a:0:1:{nonce}"),
            format!("P:a:01:1:{nonce}"),
            format!("P:a:4294967296:1:{nonce}"),
            format!("P:a:1:0:{nonce}"),
            format!("P:a:1:604800001:{nonce}"),
            format!("P:a:1:1:{}", &nonce[1..]),
            format!("P:a:1:1:{}", "0".repeat(65)),
            format!("P:a:1:1:{nonce}."),
            format!("P:a:1:1:{nonce}:"),
        ] {
            assert_eq!(lease_of(&strange), None, "{strange}");
        }
    }

    #[test]
    fn clients_with_the_same_name_are_distinct() {
        let (one, other) = (new_client("web.7"), new_client("web.7"));
        assert_ne!(one, other);
        assert_eq!((client_name_of(&one), one.len()), ("web.7", "web.7".len() + 1 + RANDOM));
    }
}
