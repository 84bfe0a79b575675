//! Calls as a client makes them, some of them spoiled.

use std::fmt;

use fastrand::Rng;

use super::arguments::{bytes, hostile, pick};
use super::shown;
use crate::support::scripts::keys_of;

pub const NAME: &str = "fuzz";
/// Somebody listens there.
pub const LISTENED: [&str; 2] = ["c0", "c1"];

const LEASES: [u64; 6] = [1, 500, 5_000, 30_000, 600_000, 604_800_000];

pub struct Call {
    pub script: &'static str,
    pub keys: Vec<String>,
    pub arguments: Vec<Vec<u8>>,
}

impl Call {
    /// Tickets that were given before may be brought again.
    pub fn random(random: &mut Rng, tickets: &[i64]) -> Self {
        let mut call = Self::sound(random, tickets);
        if random.u8(..10) < 4 {
            for _ in 0..random.u8(1..=3) {
                call.spoil_arguments(random);
            }
        }
        if random.u8(..20) == 0 {
            call.spoil_keys(random);
        }
        call
    }

    fn sound(random: &mut Rng, tickets: &[i64]) -> Self {
        let (script, arguments) = match random.u8(..100) {
            0..42 => ("acquire", acquire(random, tickets)),
            42..65 => ("release", release(random)),
            65..75 => ("refresh", refresh(random)),
            75..80 => ("wake", Vec::new()),
            80..90 => ("limit", limit(random)),
            90..97 => ("inspect", inspect(random)),
            _ => ("probe", words(&[pick(random, &LISTENED), wake(random)])),
        };
        // `probe` is for keys that nobody has.
        let keys = keys_of(if script == "probe" { "probed" } else { NAME });
        Self { script, keys, arguments }
    }

    fn spoil_arguments(&mut self, random: &mut Rng) {
        let arguments = &mut self.arguments;
        let count = arguments.len();
        match random.u8(..10) {
            0 => arguments.insert(random.usize(..=count), hostile(random)),
            1 => arguments.push(hostile(random)),
            2 if count > 0 => drop(arguments.remove(random.usize(..count))),
            3 if count > 0 => arguments.truncate(random.usize(..count)),
            4 if count > 0 => arguments.extend_from_within(random.usize(..count)..),
            5 if count > 0 => arguments.swap(random.usize(..count), random.usize(..count)),
            6 if count > 0 && random.u8(..20) == 0 => {
                // More than any call may have.
                let short = |argument: &Vec<u8>| argument.iter().take(100).copied().collect();
                let more: Vec<Vec<u8>> = arguments.iter().map(short).collect();
                arguments.extend(more.into_iter().cycle().take(6_000));
            }
            _ if count > 0 => arguments[random.usize(..count)] = hostile(random),
            _ => arguments.push(hostile(random)),
        }
    }

    fn spoil_keys(&mut self, random: &mut Rng) {
        let keys = &mut self.keys;
        let other = keys_of("other");
        match random.u8(..8) {
            0 => keys.truncate(random.usize(..4)),
            1 => keys.push(other[0].clone()),
            2 => keys.swap(random.usize(..4), random.usize(..4)),
            3 => keys[random.usize(..4)] = keys[random.usize(..4)].clone(),
            4 => keys.fill(other[random.usize(..4)].clone()),
            5 => keys[random.usize(..4)] = other[random.usize(..4)].clone(),
            6 => keys[random.usize(..4)] = String::new(),
            _ => keys.clear(),
        }
    }

    pub fn has_its_keys(&self) -> bool {
        self.keys == keys_of(if self.script == "probe" { "probed" } else { NAME })
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 40;
        write!(f, "{}", self.script)?;
        if !self.has_its_keys() {
            write!(f, " with the keys {:?}", self.keys)?;
        }
        for argument in self.arguments.iter().take(MOST) {
            write!(f, " {}", shown(argument))?;
        }
        if self.arguments.len() > MOST {
            write!(f, " ... ({} arguments)", self.arguments.len())?;
        }
        Ok(())
    }
}

fn words(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn wake(random: &mut Rng) -> &'static str {
    pick(random, &["publish", "publish", "publish", "poll", "poll", "spublish"])
}

/// Few, so that they come again. Some are as long or as odd as an id may be.
fn ids(random: &mut Rng) -> Vec<Vec<u8>> {
    let count = match random.u8(..240) {
        0 => random.usize(100..=1_000),
        1 => 1_000,
        _ => random.usize(1..=4),
    };
    if count > 4 {
        return (0..count).map(|number| format!("many-{number}").into_bytes()).collect();
    }
    let mut numbers: Vec<u8> = (0..12).collect();
    random.shuffle(&mut numbers);
    let id = |number: &u8| match number {
        0 => vec![b'l'; 256],
        1 => "\u{fc}ml\u{e4}ut".as_bytes().to_vec(),
        2 => b"\xff\xfe\x80".to_vec(),
        3 => b"w:id4".to_vec(),
        4 => b"a+b".to_vec(),
        _ => format!("id{number}").into_bytes(),
    };
    numbers.iter().take(count).map(id).collect()
}

fn number(number: impl ToString) -> Vec<u8> {
    number.to_string().into_bytes()
}

fn lease(random: &mut Rng) -> Vec<u8> {
    number(pick(random, &LEASES))
}

fn acquire(random: &mut Rng, tickets: &[i64]) -> Vec<Vec<u8>> {
    let kind = if random.u8(..15) == 0 { "initial" } else { "declared" };
    let limit = match random.u8(..20) {
        0 => 0,
        1 => 4_294_967_295,
        _ => random.u32(1..6),
    };
    let client = pick(random, &["c0", "c0", "c1", "gone"]);
    let mut arguments = vec![kind.into(), number(limit), client.into(), wake(random).into()];
    arguments.push(lease(random));
    let (plain, its_lease) = (random.bool(), lease(random));
    for id in ids(random) {
        let weight = match random.u8(..20) {
            0 if !plain => 4_294_967_295,
            1..5 if !plain => random.u32(2..5),
            _ => 1,
        };
        let place = match random.u8(..20) {
            0 if !plain => number(random.u64(1..9_007_199_254_740_991)),
            1..4 if !plain && !tickets.is_empty() => number(pick(random, tickets)),
            4..8 => "try".into(),
            _ => "wait".into(),
        };
        let lease = if plain { its_lease.clone() } else { lease(random) };
        arguments.extend([id, number(weight), lease, place]);
    }
    arguments
}

fn release(random: &mut Rng) -> Vec<Vec<u8>> {
    let how = if random.u8(..8) == 0 { "consume" } else { "return" };
    [words(&[how]), ids(random)].concat()
}

fn refresh(random: &mut Rng) -> Vec<Vec<u8>> {
    ids(random).into_iter().flat_map(|id| [id, lease(random)]).collect()
}

fn limit(random: &mut Rng) -> Vec<Vec<u8>> {
    let action =
        pick(random, &["declare", "declare", "initial", "set", "set", "add", "clear", "clear"]);
    let mut arguments = words(&[action]);
    if action != "clear" {
        let most = if random.u8(..10) == 0 { 4_294_967_295 } else { 8 };
        arguments.push(number(random.u32(..most)));
    }
    if action == "add" {
        let id = if random.u8(..4) == 0 { bytes(random, 8) } else { ids(random).remove(0) };
        arguments.push(id);
    }
    arguments
}

fn inspect(random: &mut Rng) -> Vec<Vec<u8>> {
    let mut page = || {
        let skipped = if random.u8(..5) == 0 { random.u64(..1 << 53) } else { random.u64(..3) };
        [number(skipped), number(random.u64(..=1_000))]
    };
    [page(), page()].concat()
}
