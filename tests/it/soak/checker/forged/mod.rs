//! Forged histories, each with one violation that the checker must find. Other histories look
//! wrong, but violate no rule.

mod admission;
mod counts;
mod losses;
mod queue;

use super::super::history::{ALL, Call, Counts, Event, How, Moment, What, Why};
use super::{Bounds, judge};

const BOUNDS: Bounds = Bounds {
    lease: 30,
    late: 10,
    way: 5,
    wait: 1000,
    patience: 20,
    tick: 1,
    reconnecting: 2,
    subscribing: 0,
};

fn event(at: Moment, process: u32, what: What) -> Event {
    Event { at, process, what }
}

fn asks(at: Moment, process: u32, turn: u64) -> Event {
    asks_for(at, process, turn, Call::Acquire, 0)
}

fn asks_for(at: Moment, process: u32, turn: u64, call: Call, ahead: Moment) -> Event {
    event(at, process, What::Asks { turn, semaphore: 0, weight: 1, group: 0, call, ahead })
}

/// Returns an event: at `at`, the process gets a permit with this token and a lease until `until`.
fn holds(at: Moment, process: u32, turn: u64, token: u64, until: Moment) -> Event {
    event(
        at,
        process,
        What::Holds { turn, semaphore: 0, token, until, id: format!("{process}/{turn}") },
    )
}

fn releases(at: Moment, process: u32, turn: u64) -> Event {
    event(at, process, What::Releases { turn, how: How::Release })
}

fn gives_up(at: Moment, why: Why) -> Event {
    event(at, 1, What::GivesUp { turn: 1, why })
}

fn limit(at: Moment, limit: u64) -> [Event; 2] {
    [
        event(at, 0, What::SetsLimit { semaphore: 0, limit }),
        event(at, 0, What::LimitIs { semaphore: 0, limit }),
    ]
}

/// Returns the violated rules of a history that begins with a limit of 1.
fn broken(events: &[Event]) -> Vec<String> {
    broken_within(BOUNDS, events)
}

fn broken_within(bounds: Bounds, events: &[Event]) -> Vec<String> {
    let mut history = limit(0, 1).to_vec();
    history.extend_from_slice(events);
    history.sort_by_key(|event| event.at);
    let violations = judge(&history, bounds).unwrap();
    violations.into_iter().map(|violation| violation.rule).collect()
}

const NONE: [&str; 0] = [];

/// Returns an event: permits with tokens up to `token` may have been lost between these moments.
fn unsettled(since: Moment, at: Moment, token: u64) -> Event {
    event(at, ALL, What::Unsettled { semaphore: 0, since, token })
}

#[test]
fn the_checker_detects_a_call_that_overtakes_a_drop() {
    let overtaken = event(50, 1, What::Overtaken { since: 45 });
    let with = |other: Event| broken(&[overtaken.clone(), other]);
    assert_eq!(broken(std::slice::from_ref(&overtaken)), ["own order"]);
    assert_eq!(with(unsettled(44, 46, 10)), NONE);
    assert_eq!(with(unsettled(20, 44, 10)), ["own order"]);
    assert_eq!(with(unsettled(51, 60, 10)), ["own order"]);
}

#[test]
fn the_checker_detects_calls_that_fail_without_an_excuse() {
    let failed = |operation: &str, excusable| {
        let (operation, error) = (operation.to_owned(), String::new());
        event(50, 1, What::Failed { turn: 1, operation, error, excusable })
    };
    let fault = [
        event(10, ALL, What::Fault { kind: "cut".to_owned(), spoils_order: true }),
        event(30, ALL, What::Healed { kind: "cut".to_owned() }),
    ];
    let in_trouble = |event: Event| broken(&[&fault[..], &[event]].concat());
    assert_eq!(broken(&[failed("release", true)]), ["errors"]);
    assert_eq!(in_trouble(failed("release", true)), NONE);
    assert_eq!(in_trouble(failed("release", false)), ["errors"]);
    assert_eq!(in_trouble(failed("acquire", true)), ["errors"]);
    assert_eq!(in_trouble(failed("panic", false)), ["errors"]);
}

#[test]
fn the_checker_rejects_an_impossible_history() {
    let twice = [asks(1, 1, 1), asks(2, 1, 1)];
    assert!(judge(&twice, BOUNDS).unwrap_err().contains("asks twice"));
    let stranger = [holds(1, 1, 1, 1, 100)];
    assert!(judge(&stranger, BOUNDS).unwrap_err().contains("no such turn"));
    let over = [asks(1, 1, 1), gives_up(2, Why::Failed), holds(3, 1, 1, 1, 9)];
    assert!(judge(&over, BOUNDS).unwrap_err().contains("no such turn"));
}
