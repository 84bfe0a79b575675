//! Generates argument values that no client sends.

use fastrand::Rng;

/// Constants of the protocol and similar texts, which are sent as wrong arguments.
const WORDS: [&str; 22] = [
    "declare_if_unset",
    "initial",
    "P",
    "S",
    "N",
    "wait",
    "try",
    "return",
    "forget",
    "declare",
    "set",
    "add",
    "clear",
    "+",
    "+1",
    "++",
    "*",
    "N:c0:1:1:",
    "version",
    "last_number",
    "longest_lease",
    "sem:{fuzz}:permits",
];
/// Texts that at least one programming language parses as a number.
const NUMBERS: [&str; 24] = [
    "nan",
    "NaN",
    "-nan",
    "inf",
    "-inf",
    "Infinity",
    "1e3",
    "1e400",
    "0x10",
    "0b1",
    "1_000",
    "1,5",
    "1.0",
    ".5",
    "5.",
    "-0",
    "- 1",
    "--1",
    "\u{661}\u{662}",
    "1\0",
    "\u{ff11}",
    "1e-400",
    "(1",
    "1/1",
];
/// The bounds of the protocol, and of numbers in Lua, C and Rust.
const BOUNDS: [i128; 11] = [
    0,
    1,
    1_000,
    604_800_000,
    4_294_967_295,
    9_007_199_254_740_991,
    9_999_999_999_999_999,
    i64::MAX as i128,
    u64::MAX as i128,
    -1,
    i64::MIN as i128,
];
/// Characters with a meaning in Lua patterns and formats, in Redis arguments, or on terminals.
const SPECIAL: [&str; 12] =
    ["%s%d%n", "%", "%b()", "^$", "[a", "{}", "(x", "-inf", "LIMIT", "\x1b[31m", "a b", "NX"];

pub fn hostile(random: &mut Rng) -> Vec<u8> {
    match random.u8(..10) {
        0 => bytes(random, 40),
        1 => pick(random, &NUMBERS).as_bytes().to_vec(),
        2 => (pick(random, &BOUNDS) + random.i128(-1..=1)).to_string().into_bytes(),
        3 => pick(random, &WORDS).as_bytes().to_vec(),
        4 => Vec::new(),
        5 => decorated(random),
        6 => vec![b'a'; random.usize(255..=258)],
        7 => long(random),
        8 => with_one_strange_byte(random),
        _ => pick(random, &SPECIAL).as_bytes().to_vec(),
    }
}

pub fn pick<T: Copy>(random: &mut Rng, choices: &[T]) -> T {
    choices[random.usize(..choices.len())]
}

pub fn bytes(random: &mut Rng, most: usize) -> Vec<u8> {
    (0..random.usize(..=most)).map(|_| random.u8(..)).collect()
}

/// Returns a small integer in a wrong or unusual notation.
fn decorated(random: &mut Rng) -> Vec<u8> {
    let number = random.u32(..20_000);
    let text = match random.u8(..8) {
        0 => format!("+{number}"),
        1 => format!("-{number}"),
        2 => format!(" {number}"),
        3 => format!("{number} "),
        4 => format!("{number}\n"),
        5 => format!("{number}.0"),
        6 => format!("{number:0>16}"),
        _ => format!("{number:0>17}"),
    };
    text.into_bytes()
}

fn long(random: &mut Rng) -> Vec<u8> {
    let length = if random.u8(..20) == 0 { 1 << 20 } else { random.usize(300..5_000) };
    vec![pick(random, b"a9+ \0\xff"); length]
}

fn with_one_strange_byte(random: &mut Rng) -> Vec<u8> {
    let mut id = b"strange".to_vec();
    id[random.usize(..7)] = pick(random, b"\0\t\n\r \x0b\x0c\x1f\x7f\x80\xa0\xff+");
    id
}
