//! By default, 1,000 random sequences of calls to the scripts. The results are compared with the
//! semaphore in memory (`src/local`), and the invariants are checked. The comparison also tests the
//! semaphore in memory.

mod client;
mod invariants;
mod losses;
mod messages;
pub mod moving;
mod request;
mod system;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError};

use request::{Next, Place, Request};
use system::System;

use test_support::scripts::{id, in_group, lease, part, weight};

/// The next action of a client, the clock or the network.
#[derive(Debug, Clone)]
pub enum Step {
    Acquire {
        kind: &'static str,
        limit: i64,
        heartbeat_timeout: i64,
        requests: Vec<Request>,
    },
    Release {
        consume: bool,
        ids: Vec<String>,
    },
    Refresh {
        requests: Vec<(String, Next)>,
    },
    Wake,
    Limit {
        kind: &'static str,
        limit: i64,
        /// "set", "add" or "cap GROUP" with a number, or "clear" or "uncap GROUP", and an
        /// idempotency key.
        change: Option<(&'static str, i64, String)>,
    },
    /// Moves the server's clock, forward or back.
    Clock {
        us: i64,
    },
    Listen {
        client: usize,
        listens: bool,
    },
    /// Removes the key with this number.
    Lose(usize),
    /// Adds a crowd of clients. The scripts let only some clients of the crowd call `wake`.
    Crowd,
}

const MS: i64 = 1_000;
const DAY: i64 = 86_400_000 * MS;

/// Two clients that subscribe, and one client that polls.
pub const CLIENTS: [(&str, &str); 3] = [("P", "client0"), ("P", "client1"), ("N", "client2")];

fn group(id: &str) -> Option<&str> {
    Some(part(id, 4).split_once(',')?.0)
}

/// Returns all IDs of a client. Only a few IDs exist, so that calls repeat the IDs.
fn ids_of((how, client): (&str, &str)) -> Vec<String> {
    const WANTED: [(i64, i64); 7] =
        [(1, 30_000), (1, 600_000), (1, 500), (2, 30_000), (1, 1), (3, 5_000), (2, 604_800_000)];
    let id = |(number, (weight, lease)): (usize, &(i64, i64))| {
        // The name claims a head start, whether or not the request has one.
        let name = if number == 0 { "headstart500-0".to_owned() } else { number.to_string() };
        id(how, client, *weight, *lease, &name)
    };
    let mut ids: Vec<_> = WANTED.iter().enumerate().map(id).collect();
    for (number, group) in ["a,1,0", "a,1,2", "b,3,3", "c,1000,3"].into_iter().enumerate() {
        ids.push(in_group(&ids[number], group));
        ids.push(in_group(&ids[number + 1], group));
    }
    ids
}

fn mark() -> impl Strategy<Value = String> {
    let marks = [(500, "a"), (60_000, "b"), (60_000, "c")];
    prop::sample::select(marks.map(|(lease, name)| id("N", "client2", 0, lease, name)).to_vec())
}

fn ids(from: Vec<String>) -> impl Strategy<Value = Vec<String>> {
    prop::sample::subsequence(from, 1..4).prop_shuffle()
}

fn any_ids() -> impl Strategy<Value = Vec<String>> {
    ids(CLIENTS.into_iter().flat_map(ids_of).collect())
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let place = prop_oneof![
        3 => Just(Place::Try),
        6 => Just(Place::Wait),
        2 => prop_oneof![Just(0), Just(1), Just(500), Just(3_600_000)].prop_map(Place::Ahead),
        // The system replaces this ticket with an earlier ticket of the request's ID, if one
        // exists.
        2 => Just(Place::Ticket(0)),
        1 => Just(Place::Ticket(9_007_199_254_740_991)),
    ];
    let ids = prop::sample::select(CLIENTS.to_vec()).prop_flat_map(|of| ids(ids_of(of)));
    (ids, vec(place, 3)).prop_map(|(ids, places)| {
        let with = |(id, place)| Request { id, place };
        ids.into_iter().zip(places).map(with).collect()
    })
}

/// Returns refreshes. Some refreshes replace an ID with another ID of the same weight. The others
/// only set a lease.
fn refreshes() -> impl Strategy<Value = Vec<(String, Next)>> {
    let next = prop_oneof![2 => (1..700_000_i64).prop_map(Some), 1 => Just(None)];
    (any_ids(), vec(next, 3)).prop_map(|(mut ids, nexts)| {
        let mut requests = Vec::new();
        for next in nexts {
            let Some(id) = ids.pop() else { break };
            let same = |other: &String| (weight(other), group(other)) == (weight(&id), group(&id));
            let other = ids.iter().position(same);
            let next = match (next, other) {
                (None, Some(other)) => Next::Id(ids.remove(other)),
                (ms, _) => Next::Lease(ms.unwrap_or(i64::MAX).min(lease(&id))),
            };
            requests.push((id, next));
        }
        requests
    })
}

fn clock() -> impl Strategy<Value = i64> {
    let near = [0, 1, MS, 499 * MS, 500 * MS, 10_000 * MS, 30_000 * MS, 70_003 * MS];
    let far = [-1, -MS, -999 * MS, -1_001 * MS, -30_000 * MS, -3_600_000 * MS, -DAY, DAY];
    prop_oneof![
        4 => prop::sample::select(near.to_vec()),
        1 => prop::sample::select(far.to_vec()),
        1 => -DAY..DAY,
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let kind = || {
        let brought = [
            "declare_if_unset",
            "declare_if_unset",
            "declare_if_unset",
            "declare",
            "initial",
            "existing",
        ];
        prop::sample::select(brought.to_vec())
    };
    let heartbeat_timeout =
        prop_oneof![4 => Just(10_000_i64), 1 => Just(1), 1 => Just(604_800_000)];
    let changes = ["set", "add", "clear", "cap a", "cap b", "uncap a", "uncap b"].map(Some);
    let change = prop::sample::select([&[None], &changes[..]].concat());
    let n = prop_oneof![19 => 0..7_i64, 1 => Just(u32::MAX.into())];
    prop_oneof![
        24 => (kind(), 2..6_i64, heartbeat_timeout, requests())
            .prop_map(|(kind, limit, heartbeat_timeout, requests)| {
                Step::Acquire { kind, limit, heartbeat_timeout, requests }
            }),
        12 => (prop::bool::weighted(0.1), any_ids())
            .prop_map(|(consume, ids)| Step::Release { consume, ids }),
        6 => refreshes().prop_map(|requests| Step::Refresh { requests }),
        4 => Just(Step::Wake),
        6 => (kind(), 0..7_i64, change, n, mark())
            .prop_map(|(kind, limit, change, n, mark)| {
                let change = change.map(|change| (change, n, mark));
                Step::Limit { kind, limit, change }
            }),
        10 => clock().prop_map(|us| Step::Clock { us }),
        4 => (0..2_usize, any::<bool>()).prop_map(|(client, listens)| Step::Listen { client, listens }),
        2 => prop::sample::select(vec![0, 1, 2, 3, 5]).prop_map(Step::Lose),
        1 => Just(Step::Crowd),
    ]
}

#[test]
fn random_sequences_reply_like_the_model_and_keep_the_invariants() {
    try_sequences(&mut System::start(), 700);
}

#[test]
fn random_sequences_reply_like_the_model_while_their_slot_is_migrating() {
    let mut system = System::start_moving();
    let calls = try_sequences(&mut system, 300);
    let served = system.moving.unwrap().served;
    assert!(served > calls / 20, "{served} of {calls} calls were not turned away");
}

/// Runs the sequences, and returns the number of steps.
fn try_sequences(system: &mut System, cases: u32) -> u32 {
    let cases = std::env::var("PROPTEST_CASES").map_or(cases, |cases| cases.parse().unwrap());
    // A failure is shrunk and printed. No file of seeds is written.
    let config =
        Config { cases, failure_persistence: None, max_shrink_time: 30_000, ..Config::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let system = std::cell::RefCell::new(system);
    let count = std::cell::Cell::new(0);
    runner
        .run(&vec(step(), 1..40), |steps| {
            let mut system = system.borrow_mut();
            system.begin_case();
            for (number, step) in steps.iter().enumerate() {
                let outcome = system.apply(step).and_then(|()| system.check_invariants());
                if let Err(problem) = outcome {
                    return Err(TestCaseError::fail(format!("step {number} {step:?}: {problem}")));
                }
                count.set(count.get() + 1);
            }
            system.end_case().map_err(TestCaseError::fail)
        })
        .unwrap();
    count.get()
}
