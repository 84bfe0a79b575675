//! Tests of the ledger with requests and permits in every stage.

use tokio::time::Instant;

use super::*;
use crate::error::Error;
use crate::protocol::Place;

fn request(number: u128) -> Arc<Acquisition> {
    Arc::new(Acquisition::new(number, format!("P:c:1:1000:{number}"), 1, Instant::now()))
}

fn queued(number: u128, ticket: u64) -> Arc<Acquisition> {
    let request = request(number);
    request.queued(request.created, 5_000, Place { ticket, position: 1 });
    request
}

fn resolved(number: u128) -> Arc<Acquisition> {
    let resolved = queued(number, 1);
    resolved.resolve(Err(Error::Shutdown));
    resolved
}

fn held(number: u128) -> Arc<Acquisition> {
    let held = request(number);
    assert!(held.hold());
    held
}

fn ledger_of(entries: &[Arc<Acquisition>]) -> Ledger {
    let ledger = Ledger::default();
    ledger.enter(entries.iter());
    ledger
}

fn numbers(found: &[Arc<Acquisition>]) -> Vec<u128> {
    let mut numbers: Vec<_> = found.iter().map(|acquisition| acquisition.number).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn an_acquisition_that_has_ended_is_not_entered() {
    let ended = request(1);
    ended.end();
    assert!(ledger_of(&[ended]).find(1).is_none());
}

/// An ID may be forged, so that its number is the number of another acquisition.
#[test]
fn an_acquisition_neither_replaces_nor_removes_another_one_with_its_number() {
    let (first, second) = (request(1), request(1));
    let ledger = ledger_of(&[first.clone(), second.clone()]);
    let is_first = || ledger.find(1).is_some_and(|found| Arc::ptr_eq(&found, &first));
    assert!(is_first());
    ledger.remove([&*second].into_iter());
    assert!(is_first());
    ledger.remove([&*first].into_iter());
    assert!(ledger.find(1).is_none());
}

#[test]
fn only_waiting_requests_are_waits() {
    assert!(!ledger_of(&[resolved(1), held(2)]).has_waits());
    assert!(ledger_of(&[resolved(1), request(2)]).has_waits());
}

#[test]
fn queued_requests_are_sorted_by_ticket() {
    let entries: Vec<_> = (1..=50).map(|number| queued(number, 100 - number as u64)).collect();
    let ledger = ledger_of(&[entries, vec![request(60), resolved(61), held(62)]].concat());
    let found = ledger.queued();
    assert!(found.iter().map(|acquisition| acquisition.number).eq((1..=50).rev()));
}

#[test]
fn ending_the_waits_leaves_permits_only() {
    let entries = [request(1), queued(2, 7), resolved(3), held(4)];
    let ledger = ledger_of(&entries);
    assert_eq!(numbers(&ledger.end_waits()), [1, 2, 3]);
    assert!(
        entries[..3].iter().all(|entry| entry.is_ended() && ledger.find(entry.number).is_none())
    );
    assert!(ledger.find(4).is_some());
}

#[test]
fn granted_requests_and_permits_are_refreshed() {
    let ended = held(5);
    let ledger = ledger_of(&[request(1), queued(2, 7), resolved(3), held(4), ended.clone()]);
    ended.end();
    assert_eq!(numbers(&ledger.to_refresh()), [3, 4]);
}
