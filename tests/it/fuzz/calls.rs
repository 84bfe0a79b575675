//! Random calls that resemble the calls of a client. Some random calls are made invalid on purpose.

use std::fmt;

use fastrand::Rng;

use super::arguments::{hostile, pick};
use super::shown;
use test_support::scripts::{id, in_group, keys_of};

pub const NAME: &str = "fuzz";
/// A client is subscribed to these channels.
pub const LISTENED: [&str; 2] = ["sem:wake:c0", "sem:wake:c1"];

/// Leases and heartbeat timeouts, in ms.
const TIMES: [i64; 6] = [1, 500, 5_000, 30_000, 600_000, 604_800_000];

pub struct Call {
    pub script: &'static str,
    pub keys: Vec<String>,
    pub arguments: Vec<Vec<u8>>,
}

impl Call {
    /// Returns a random call, which may contain tickets of earlier replies.
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
            _ => ("probe", texts(&[pick(random, &["P", "S", "N"]), pick(random, &["c0", "gone"])])),
        };
        // `probe` needs keys that no other script uses.
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
                // This call has more arguments than any call may have.
                let short = |argument: &Vec<u8>| argument.iter().take(100).copied().collect();
                let more: Vec<Vec<u8>> = arguments.iter().map(short).collect();
                arguments.extend(more.into_iter().cycle().take(6_000));
            }
            7 | 8 if count > 0 => {
                let index = random.usize(..count);
                spoil_id(random, &mut arguments[index]);
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

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn number(number: impl ToString) -> Vec<u8> {
    number.to_string().into_bytes()
}

fn time(random: &mut Rng) -> Vec<u8> {
    number(pick(random, &TIMES))
}

fn spoil_id(random: &mut Rng, id: &mut Vec<u8>) {
    let at = random.usize(..=id.len());
    match random.u8(..5) {
        4 => {
            let nonce = id.iter().rposition(|byte| *byte == b':').map_or(0, |colon| colon + 1);
            let group = format!("{}:", pick(random, &WRONG_GROUPS));
            id.splice(nonce..nonce, group.into_bytes());
        }
        0 => id.insert(at, pick(random, b":\0\n\r 0P.\xff*")),
        1 => id.truncate(at),
        2 if at < id.len() => id[at] = random.u8(..),
        _ => {
            let mut parts: Vec<_> = id.split(|byte| *byte == b':').map(<[u8]>::to_vec).collect();
            let part = random.usize(..parts.len());
            parts[part] = hostile(random);
            *id = parts.join(&b':');
        }
    }
}

/// Parts of IDs that are similar to a group, a share and a cap.
const WRONG_GROUPS: [&str; 18] = [
    ",",
    ",,",
    ",1,0",
    "a,,",
    "a,1",
    "a,1,0,0",
    "a,0,0",
    "a,1001,0",
    "a,01,0",
    "a,1e3,0",
    "a,1,-1",
    "a,1,4294967296",
    "a,nan,nan",
    "*,1,0",
    "a b,1,0",
    "a;,1,0",
    "%a,1,0",
    "a\n,1,0",
];

/// The clients of the IDs: subscribed clients, unsubscribed clients, and clients that poll.
const CLIENTS: [(&str, &str); 6] =
    [("P", "c0"), ("P", "c0"), ("P", "c1"), ("P", "gone"), ("N", "c0"), ("S", "c1")];

/// Returns the IDs of a client. Usually, only a few IDs exist, so that calls repeat them. Either
/// all IDs have weight 1 and a lease of 30 s, or the number of an ID determines its weight and lease.
/// Some IDs have a group.
fn ids_of(random: &mut Rng, (how, client): (&str, &str)) -> Vec<Vec<u8>> {
    let count = match random.u8(..240) {
        0 => random.usize(100..=1_000),
        1 => 1_000,
        _ => random.usize(1..=4),
    };
    let plain = random.bool();
    let named = |number: usize| {
        let weight = match number {
            2 if !plain => 4_294_967_295,
            3..6 if !plain => number as i64 - 1,
            _ => 1,
        };
        let lease = if plain { 30_000 } else { TIMES[number % TIMES.len()] };
        let id = id(how, client, weight, lease, &number.to_string());
        let group = match number {
            4 => "c,2,3",
            8 => "a,1,2",
            9 => "a,7,2",
            10 => "b,1000,1",
            11 => "b,1,0",
            _ => return id.into_bytes(),
        };
        in_group(&id, group).into_bytes()
    };
    if count > 4 {
        return (0..count).map(named).collect();
    }
    let mut numbers: Vec<usize> = (0..12).collect();
    random.shuffle(&mut numbers);
    numbers.into_iter().take(count).map(named).collect()
}

fn ids(random: &mut Rng) -> Vec<Vec<u8>> {
    let client = pick(random, &CLIENTS);
    ids_of(random, client)
}

fn mark(random: &mut Rng) -> Vec<u8> {
    let lease = pick(random, &TIMES);
    id("N", "c0", 0, lease, &random.u8(..3).to_string()).into_bytes()
}

fn acquire(random: &mut Rng, tickets: &[i64]) -> Vec<Vec<u8>> {
    let kind = pick(
        random,
        &[
            "declare_if_unset",
            "declare_if_unset",
            "declare_if_unset",
            "declare",
            "initial",
            "existing",
        ],
    );
    let limit = match random.u8(..20) {
        0 => 0,
        1 => 4_294_967_295,
        _ => random.u32(1..6),
    };
    let mut arguments = vec![kind.into(), number(limit), time(random)];
    let plain = random.bool();
    for id in ids(random) {
        let place = match random.u8(..20) {
            0 if !plain => number(random.u64(1..9_007_199_254_740_991)),
            1..4 if !plain && !tickets.is_empty() => number(pick(random, tickets)),
            4..7 if !plain => format!("+{}", random.u32(..=3_600_000)).into_bytes(),
            7..11 => "try".into(),
            _ => "wait".into(),
        };
        arguments.extend([id, place]);
    }
    arguments
}

fn release(random: &mut Rng) -> Vec<Vec<u8>> {
    let how = if random.u8(..8) == 0 { "forget" } else { "return" };
    [texts(&[how]), ids(random)].concat()
}

fn refresh(random: &mut Rng) -> Vec<Vec<u8>> {
    let mut nexts = if random.u8(..3) == 0 { ids(random) } else { Vec::new() };
    let ids = ids(random);
    let with_next =
        |id| [id, nexts.pop().unwrap_or_else(|| number(pick(random, &[1, 500, 30_000])))];
    ids.into_iter().flat_map(with_next).collect()
}

fn limit(random: &mut Rng) -> Vec<Vec<u8>> {
    let count = |random: &mut Rng| {
        let most = if random.u8(..10) == 0 { 4_294_967_295 } else { 8 };
        number(random.u32(..most))
    };
    let kind = pick(random, &["declare", "declare_if_unset", "initial", "existing", "existing"]);
    let mut arguments = vec![kind.into(), count(random)];
    let change = pick(random, &["", "set", "set", "add", "clear", "clear"]);
    if !change.is_empty() {
        arguments.push(change.into());
    }
    if ["set", "add"].contains(&change) {
        arguments.push(count(random));
    }
    if !change.is_empty() {
        arguments.push(mark(random));
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
