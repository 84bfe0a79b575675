//! By default, 500 random sequences of bursts. A burst is a group of calls of the public API that
//! start together, so that the library batches them. The results are compared with a reference, and
//! the invariants are checked.

mod bursts;
mod clients;
mod reference;
mod settle;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use clients::Clients;

/// An acquire of a burst.
#[derive(Debug, Clone)]
pub struct Ask {
    weight: u32,
    waits: bool,
    /// The request is dropped immediately after its start.
    is_dropped: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum End {
    Release,
    Forget,
    Drop,
}

#[derive(Debug, Clone)]
pub enum Change {
    Set(u32),
    Add(u32),
    Clear,
}

/// Operations that a client starts at the same time. A number selects a permit or a wait, modulo
/// the number of existing permits or waits.
#[derive(Debug, Clone)]
pub enum Burst {
    Acquire(Vec<Ask>),
    /// All ends are of one kind, or a mixture of releases and forgets.
    End(Vec<(usize, End)>),
    Refresh(Vec<usize>),
    Cancel(Vec<usize>),
    /// Permits are dropped, waits are canceled, and acquires follow immediately.
    Reuse(Vec<usize>, Vec<usize>, Vec<Ask>),
    /// The server removes permits, as if their leases had expired.
    Lose(Vec<usize>),
    Limit(Vec<Change>),
    /// Acquires of both clients and ends of permits start at the same time. The order of their
    /// effects is unknown.
    Mixed(Vec<(usize, Ask)>, Vec<(usize, End)>),
}

#[derive(Debug, Clone)]
pub struct Step {
    client: usize,
    /// The number of operations that start before the test yields. With 0, the test does not yield.
    lead: usize,
    burst: Burst,
}

const MOST: usize = 12;

fn ask() -> impl Strategy<Value = Ask> {
    let weight = prop_oneof![6 => Just(1_u32), 3 => 2..4_u32, 1 => 4..9_u32];
    (weight, prop::bool::weighted(0.7), prop::bool::weighted(0.1))
        .prop_map(|(weight, waits, is_dropped)| Ask { weight, waits, is_dropped })
}

fn asks() -> impl Strategy<Value = Vec<Ask>> {
    (vec(ask(), 1..MOST), prop::bool::weighted(0.3)).prop_map(|(mut asks, some_are_dropped)| {
        for ask in &mut asks {
            ask.is_dropped &= some_are_dropped;
        }
        asks.sort_by_key(|ask| !ask.is_dropped);
        asks
    })
}

fn ends() -> impl Strategy<Value = Vec<(usize, End)>> {
    let released = prop_oneof![3 => Just(End::Release), 1 => Just(End::Forget)];
    prop_oneof![
        3 => vec((any::<usize>(), Just(End::Release)), 1..MOST),
        1 => vec((any::<usize>(), released), 1..MOST),
        2 => vec((any::<usize>(), Just(End::Drop)), 1..MOST),
    ]
}

/// Returns changes of the limit. A clear is always the last change: after a clear, a client may
/// send its requests again, which would interfere with later changes.
fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change =
        prop_oneof![2 => (0..7_u32).prop_map(Change::Set), 1 => (0..4_u32).prop_map(Change::Add)];
    (vec(change, 0..4), any::<bool>()).prop_map(|(mut changes, is_cleared)| {
        if is_cleared || changes.is_empty() {
            changes.push(Change::Clear);
        }
        changes
    })
}

fn step() -> impl Strategy<Value = Step> {
    let picks = || vec(any::<usize>(), 1..MOST);
    let few = || vec(any::<usize>(), 1..4);
    let mixed_end = prop_oneof![Just(End::Release), Just(End::Drop)];
    let mixed = (vec((0..2_usize, ask()), 2..MOST), vec((any::<usize>(), mixed_end), 0..MOST));
    let burst = prop_oneof![
        8 => asks().prop_map(Burst::Acquire),
        6 => ends().prop_map(Burst::End),
        3 => picks().prop_map(Burst::Refresh),
        2 => picks().prop_map(Burst::Cancel),
        4 => (picks(), few(), asks()).prop_map(|(permits, waits, asks)| Burst::Reuse(permits, waits, asks)),
        2 => few().prop_map(Burst::Lose),
        2 => changes().prop_map(Burst::Limit),
        3 => mixed.prop_map(|(asks, ends)| Burst::Mixed(asks, ends)),
    ];
    (0..2_usize, 0..3_usize, burst).prop_map(|(client, lead, burst)| Step { client, lead, burst })
}

#[test]
fn random_bursts_have_the_results_of_the_reference_and_are_batched() {
    let cases = std::env::var("PROPTEST_CASES").map_or(500, |cases| cases.parse().unwrap());
    let config =
        Config { cases, failure_persistence: None, max_shrink_time: 30_000, ..Config::default() };
    // With one thread, the first operation to start is the first in its batch.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let clients = std::cell::RefCell::new(runtime.block_on(Clients::connect()));
    TestRunner::new(config)
        .run(&(1..6_u32, vec(step(), 1..15)), |(limit, steps)| {
            let mut clients = clients.borrow_mut();
            clients.begin_case(limit);
            for (number, step) in steps.iter().enumerate() {
                runtime.block_on(clients.apply(step)).map_err(|problem| {
                    TestCaseError::fail(format!("step {number} {step:?}: {problem}"))
                })?;
            }
            runtime.block_on(clients.end_case()).map_err(TestCaseError::fail)
        })
        .unwrap();
}
