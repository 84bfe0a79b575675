//! Valid and invalid values for each argument.

pub(super) enum Kind {
    Integer(u64, u64),
    /// One of several constants.
    Choice,
    /// The name of a client.
    Client,
    /// The ID of a request or an idempotency key, with a weight within these bounds.
    Id(u64, u64),
    /// A ticket, a head start, or one of two constants.
    Place,
    /// A lease, or an ID with the weight of HEAVY.
    Next,
}

use Kind::{Choice, Client, Id, Integer, Next, Place};

/// The name of an argument, a valid value, and its kind.
pub(super) struct Argument(pub(super) &'static str, pub(super) &'static str, pub(super) Kind);

pub(super) const MAX_COUNT: u64 = 4_294_967_295;
pub(super) const MAX_LEASE: u64 = 604_800_000;
pub(super) const MAX_NUMBER: u64 = 9_007_199_254_740_991;

/// The ID of a permit of the semaphore that `in_use` returns.
pub(super) const HEAVY: &str = "N:client:3:600000:heavy___________";
/// Returns texts that are invalid as any argument: the empty text, and texts with a blank or a
/// control character.
pub(super) fn blanks_and_controls() -> Vec<Vec<u8>> {
    let mut bad = vec![b"".to_vec()];
    for byte in (0..=32).chain([127]) {
        bad.extend([vec![byte], vec![byte, b'1'], vec![b'1', byte], vec![b'1', byte, b'1']]);
    }
    bad
}

pub(super) fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

pub(super) fn text_of(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}

pub(super) fn no_integers() -> Vec<Vec<u8>> {
    let mut bad = texts(&[
        "x",
        "one",
        "-1",
        "-0",
        "1.0",
        "1.5",
        "1.",
        ".5",
        "1,5",
        "1e3",
        "1E3",
        "0x10",
        "0b1",
        "1_000",
        "1a",
        "nan",
        "inf",
        "-inf",
        "１",
        "1 1",
        // A number has only one notation.
        "00",
        "01",
        "007",
        "0000000000000001",
        // These texts are longer than any number of the protocol.
        "00000000000000001",
        "99999999999999999999",
        "18446744073709551617",
    ]);
    bad.extend([vec![0xff], vec![b'1', 0xff], vec![b'9'; 5000]]);
    bad
}

pub(super) const MEGABYTE: usize = 1 << 20;
pub(super) const NONCE: &str = "0123456789abcdef";

/// Returns an ID that consists of these parts. The ID may be invalid.
pub(super) fn id_of(parts: [&[u8]; 5]) -> Vec<u8> {
    parts.join(&b':')
}

/// Returns an ID with one invalid part.
pub(super) fn id_with(index: usize, weight: u64, part: &[u8]) -> Vec<u8> {
    let weight = text_of(weight);
    let mut parts: [&[u8]; 5] = [b"N", b"client", &weight, b"60000", NONCE.as_bytes()];
    parts[index] = part;
    id_of(parts)
}

pub(super) fn bad_clients() -> Vec<Vec<u8>> {
    let mut bad = blanks_and_controls();
    bad.extend(texts(&["a b", "a:b", ":", "a/b", "{x}", "*", "%s", "ü", "a,b", "a'b", "a\"b"]));
    bad.extend([vec![b'c'; 101], vec![b'c'; MEGABYTE], vec![0xff], vec![b'c', 0xc3]]);
    bad
}

/// Returns invalid IDs, many of which look almost valid.
pub(super) fn forged_ids(least: u64, most: u64) -> Vec<Vec<u8>> {
    let with = |index, part: &[u8]| id_with(index, most, part);
    let all = |index, parts: Vec<Vec<u8>>| -> Vec<Vec<u8>> {
        parts.iter().map(|part| with(index, part)).collect()
    };
    let mut bad = texts(&["x", "new", ":", "::::", "*", "N", "N:client:1:60000", "0", "+1"]);
    bad.extend([vec![b':'; MEGABYTE], vec![0; MEGABYTE], vec![0xff; 40]]);
    bad.extend(all(
        0,
        texts(&["", "p", "n", "X", "NN", "PN", " N", "N ", "N\n", "\0N", "PUBLISH"]),
    ));
    bad.extend(all(1, bad_clients()));
    let numbers = [no_integers(), blanks_and_controls(), texts(&["+1", "1:1", "1:"])].concat();
    bad.extend(all(2, numbers.clone()));
    bad.extend(all(3, numbers));
    bad.extend(all(3, vec![b"0".to_vec(), text_of(MAX_LEASE + 1)]));
    bad.extend([with(2, &text_of(most + 1)), with(2, &[b'1'; MEGABYTE])]);
    bad.extend(least.checked_sub(1).map(|weight| with(2, &text_of(weight))));
    bad.extend(all(4, vec![vec![], vec![b'n'; 15], vec![b'n'; 65], vec![b'n'; MEGABYTE]]));
    for byte in b"\0\n\r\t .:/*+=%{}\x7f\x80\xc3\xff" {
        let mut nonce = NONCE.as_bytes().to_vec();
        bad.push(with(4, &[&nonce, &[*byte][..]].concat()));
        bad.push(with(4, &[&[*byte], &nonce[..]].concat()));
        nonce[8] = *byte;
        bad.push(with(4, &nonce));
    }
    let good = with(0, b"N");
    for (before, after) in [("", ":"), (":", ""), ("\n", ""), ("", "\n"), (" ", ""), ("", " ")] {
        bad.push([before.as_bytes(), &good, after.as_bytes()].concat());
    }
    bad
}

pub(super) fn good_ids(least: u64, most: u64) -> Vec<Vec<u8>> {
    let with = |index, part: &[u8]| id_with(index, least, part);
    let mut good = vec![with(2, &text_of(least)), with(2, &text_of(most))];
    good.extend([with(3, b"1"), with(3, &text_of(MAX_LEASE))]);
    good.extend(["P", "S", "N"].map(|how| with(0, how.as_bytes())));
    good.extend(["c", "-", ".", "_", "web-7.4711.k3f9zQ", "0"].map(|c| with(1, c.as_bytes())));
    good.push(with(1, &[b'c'; 100]));
    good.extend([with(4, &[b'n'; 16]), with(4, &[b'n'; 64]), with(4, b"-_-_-_-_AZaz0990")]);
    let longest = [&b"P"[..], &[b'c'; 100], &text_of(most), &text_of(MAX_LEASE), &[b'n'; 64]];
    good.push(id_of(longest));
    good
}

pub(super) fn bad_values(argument: &Argument) -> Vec<Vec<u8>> {
    let mut bad = blanks_and_controls();
    match argument.2 {
        Integer(min, max) => {
            bad.extend(no_integers());
            bad.extend([b"+1".to_vec(), text_of(max + 1), b"9999999999999999".to_vec()]);
            bad.extend(min.checked_sub(1).map(text_of));
        }
        Place => {
            bad.extend(no_integers());
            bad.extend(texts(&["0", "Try", "WAIT", "trying", "queue", "+", "+01", "+-1", "++1"]));
            bad.extend(texts(&["+1.5", "+1e3", "+3600001", "+9999999999999999", "+ 1", "1+"]));
            bad.extend([text_of(MAX_NUMBER + 1), vec![b't'; MEGABYTE]]);
        }
        Choice => {
            let good = argument.1;
            bad.extend(
                [format!("{good}\0"), format!("{good}\n"), format!(" {good}")].map(Into::into),
            );
            bad.extend([good[1..].into(), vec![0xff], vec![b'i'; MEGABYTE]]);
            let other_case = if good == "N" { "n".to_owned() } else { good.to_uppercase() };
            bad.push(other_case.into());
        }
        Client => bad.extend(bad_clients()),
        Id(least, most) => bad.extend(forged_ids(least, most)),
        Next => {
            bad.extend(no_integers());
            bad.extend(["0", "600001", "+1"].map(Into::into));
            bad.extend(forged_ids(3, 3));
        }
    }
    bad
}

pub(super) fn good_values(argument: &Argument) -> Vec<Vec<u8>> {
    match argument.2 {
        Integer(min, max) => vec![text_of(min), text_of(max)],
        Place => {
            let most = text_of(MAX_NUMBER);
            [texts(&["try", "wait", "1", "+0", "+1", "+3600000"]), vec![most]].concat()
        }
        Choice => vec![argument.1.into()],
        Client => [texts(&["c", "-", ".", "web-7.4711.k3f9zQ"]), vec![vec![b'c'; 100]]].concat(),
        Id(least, most) => good_ids(least, most),
        Next => [texts(&["1", "60000", "600000"]), good_ids(3, 3)].concat(),
    }
}
