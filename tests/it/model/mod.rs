//! Thousands of random sequences of calls, against a model and against the invariants.

mod client;
mod invariants;
mod moving;
mod semaphore;
mod system;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError};

use semaphore::{LIVENESS, Place, Request};
use system::System;

/// What a client, the clock or the network may do next. Ids and clients are numbers below ten, so
/// that they come again.
#[derive(Debug, Clone)]
pub enum Step {
    Acquire {
        client: usize,
        limit: i64,
        requests: Vec<Request>,
    },
    Release {
        consume: bool,
        ids: Vec<String>,
    },
    Refresh {
        requests: Vec<(String, i64)>,
    },
    Wake,
    Limit {
        action: &'static str,
        number: i64,
        id: String,
    },
    /// The server's clock goes on, or steps.
    Clock {
        us: i64,
    },
    Listen {
        client: usize,
        listens: bool,
    },
    LoseEverything,
}

fn id() -> impl Strategy<Value = String> {
    (0..9).prop_map(|number| format!("id{number}"))
}

fn ids() -> impl Strategy<Value = Vec<String>> {
    vec(id(), 1..4).prop_map(|mut ids| {
        ids.sort();
        ids.dedup();
        ids
    })
}

fn lease() -> impl Strategy<Value = i64> {
    prop_oneof![Just(1), Just(500), Just(5_000), Just(30_000), Just(600_000)]
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let place = prop_oneof![
        3 => Just(Place::Try),
        6 => Just(Place::Wait),
        // What the system makes of it: a ticket that this id had, if it had one.
        2 => Just(Place::Ticket(0)),
        1 => Just(Place::Ticket(9_007_199_254_740_991)),
    ];
    let weight = prop_oneof![4 => Just(1_i64), 1 => 2..5_i64];
    (ids(), vec((weight, lease(), place), 4)).prop_map(|(ids, rest)| {
        let with = |(id, (weight, lease, place))| Request { id, weight, lease, place };
        ids.into_iter().zip(rest).map(with).collect()
    })
}

fn step() -> impl Strategy<Value = Step> {
    let limit =
        prop_oneof![Just("declare"), Just("set"), Just("initial"), Just("add"), Just("clear")];
    prop_oneof![
        12 => (0..3_usize, 2..6_i64, requests())
            .prop_map(|(client, limit, requests)| Step::Acquire { client, limit, requests }),
        6 => (prop::bool::weighted(0.1), ids())
            .prop_map(|(consume, ids)| Step::Release { consume, ids }),
        3 => (ids(), vec(lease(), 4))
            .prop_map(|(ids, leases)| Step::Refresh { requests: ids.into_iter().zip(leases).collect() }),
        2 => Just(Step::Wake),
        2 => (limit, 0..7_i64, id()).prop_map(|(action, number, id)| Step::Limit { action, number, id }),
        4 => prop_oneof![
            Just(0), Just(1), Just(1_000), Just(499_000), Just(500_000), Just(LIVENESS * 1_000),
            Just(30_000_000), Just(70_000_000),
        ].prop_map(|us| Step::Clock { us }),
        1 => prop_oneof![Just(-3_600_000_000), Just(86_400_000_000), Just(-86_400_000_000), Just(-1)]
            .prop_map(|us| Step::Clock { us }),
        2 => (0..3_usize, any::<bool>()).prop_map(|(client, listens)| Step::Listen { client, listens }),
        1 => prop::strategy::LazyJust::new(|| Step::LoseEverything),
    ]
}

#[test]
fn random_sequences_answer_as_the_model_says_and_keep_the_invariants() {
    try_sequences(&mut System::start(), 2_000);
}

#[test]
fn random_sequences_answer_so_while_their_slot_begins_to_move() {
    let mut system = System::start_moving();
    let calls = try_sequences(&mut system, 300);
    let served = system.moving.unwrap().served;
    assert!(served > calls / 20, "{served} of {calls} calls were not turned away");
}

/// Answers how many steps there were.
fn try_sequences(system: &mut System, cases: u32) -> u32 {
    let cases = std::env::var("PROPTEST_CASES").map_or(cases, |cases| cases.parse().unwrap());
    // A failure is shrunk and printed; a file of seeds is for the developer who looks at it.
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
