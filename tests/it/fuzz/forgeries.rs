//! Forges messages that no script publishes, from data that an attacker may know.

use fastrand::Rng;

use super::arguments::{bytes, hostile, pick};

/// Data that an attacker learns from the channels, and the IDs of waiters.
#[derive(Default)]
pub struct Known {
    pub names: Vec<String>,
    /// IDs of waiters, which no message has contained yet. A message forged with such an ID may
    /// look exactly like a real message, so these IDs are used only in messages that are wrong for
    /// another reason.
    pub waiting: Vec<String>,
    pub granted: Vec<String>,
    pub messages: Vec<Vec<u8>>,
    /// The fencing token that a real message would contain now.
    pub token: u64,
    pub ends: i64,
}

pub fn message(random: &mut Rng, known: &Known) -> Vec<u8> {
    match random.u16(..1_000) {
        0 => vec![pick(random, b"a\n \0\xff"); 1 << 20],
        1 => long(random, known),
        2..100 => bytes(random, 100),
        100..200 => pick_some(random, &known.messages),
        200..300 => cut(random, known),
        300..600 => guessed(random, known),
        600..700 => of_another_semaphore(random, known),
        _ => with_odd_numbers(random, known),
    }
}

fn pick_some<T: Clone + Default>(random: &mut Rng, choices: &[T]) -> T {
    if choices.is_empty() {
        return T::default();
    }
    choices[random.usize(..choices.len())].clone()
}

fn name(random: &mut Rng, known: &Known) -> String {
    pick_some(random, &known.names)
}

/// Returns a message that is correct except for its IDs, which resemble IDs of earlier messages.
fn guessed(random: &mut Rng, known: &Known) -> Vec<u8> {
    let name = name(random, known);
    let lines: Vec<_> = (0..random.u8(1..5)).map(|_| guess(random, known)).collect();
    let line = |id: &String| format!("\n{id} {} {}", known.token, known.ends);
    format!("{name}{}", lines.iter().map(line).collect::<String>()).into_bytes()
}

fn guess(random: &mut Rng, known: &Known) -> String {
    let seen = pick_some(random, &known.granted);
    let Some((start, nonce)) = seen.rsplit_once(':') else {
        return seen;
    };
    const DIGITS: &[u8] = b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";
    let mut nonce: Vec<char> = nonce.chars().collect();
    let changed = if random.u8(..6) == 0 { nonce.len() } else { random.usize(1..4) };
    for _ in 0..changed {
        let place = random.usize(..nonce.len());
        nonce[place] = pick(random, DIGITS).into();
    }
    format!("{start}:{}", String::from_iter(nonce))
}

/// Returns a message that contains the ID of a waiter, but names another semaphore.
fn of_another_semaphore(random: &mut Rng, known: &Known) -> Vec<u8> {
    let id = pick_some(random, &known.waiting);
    let name = if random.bool() { hostile_text(random) } else { "nowhere".to_owned() };
    format!("{name}\n{id} {} {}", known.token, known.ends).into_bytes()
}

/// Returns a message with the ID of a waiter and impossible numbers.
fn with_odd_numbers(random: &mut Rng, known: &Known) -> Vec<u8> {
    const ODD: [&str; 14] = [
        "",
        "-1",
        "-9223372036854775808",
        "9223372036854775807",
        "9007199254740992",
        "18446744073709551615",
        "99999999999999999999999999999999999999",
        "nan",
        "inf",
        "1.5",
        "0x7fffffff",
        "\u{0661}\u{0662}",
        "1\r",
        "\0",
    ];
    const PAST: [&str; 3] = ["0", "1", "1700000000000"];
    let (name, id) = (name(random, known), pick_some(random, &known.waiting));
    let (token, ends) = (known.token, known.ends);
    let odd = match random.u8(..10) {
        0 => hostile_text(random).replace(|c: char| c.is_ascii_digit(), "x"),
        _ => pick(random, &ODD).to_owned(),
    };
    let line = match random.u8(..8) {
        0 => format!("{id} {odd} {ends}"),
        1 => format!("{id} {token} {odd}"),
        2 => format!("{id} {odd} {odd}"),
        3 => format!("{id} {token} {}", pick(random, &PAST)),
        4 => format!("{id} 0 0"),
        5 => format!("{id} {token}"),
        6 => format!("{id}  {token} {ends}"),
        _ => format!(" {id} {token} {ends}"),
    };
    format!("{name}\n{line}").into_bytes()
}

fn hostile_text(random: &mut Rng) -> String {
    String::from_utf8_lossy(&hostile(random)).into_owned()
}

fn cut(random: &mut Rng, known: &Known) -> Vec<u8> {
    let mut message = pick_some(random, &known.messages);
    message.truncate(random.usize(..=message.len()));
    message
}

/// Returns a message of one megabyte with many lines.
fn long(random: &mut Rng, known: &Known) -> Vec<u8> {
    let mut message = name(random, known);
    while message.len() < 1 << 20 {
        message.push_str(&format!("\n{} {} {}", guess(random, known), known.token, known.ends));
    }
    message.into_bytes()
}
