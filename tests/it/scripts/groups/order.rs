//! Tests of the lowest ticket, which clients may send.

use super::{holders, start};

#[test]
fn the_lowest_ticket_is_first_in_its_group_and_without_a_group() {
    let mut semaphore = start();
    semaphore.acquire(1, "holder 1 600000 try");
    semaphore.acquire(1, "a@a,1,0 1 600000 wait b 1 600000 wait");
    for first in ["first-a@a,1,0", "first-b"] {
        let outcome = semaphore.acquire_one(1, &format!("{first} 1 600000 1"));
        assert_eq!((outcome.ticket(), outcome.position()), (1, 1), "{first}");
    }
    let (mut held, mut order) = ("holder".to_owned(), Vec::new());
    for _ in 0..4 {
        semaphore.ok("release", &format!("return {held}"));
        held = holders(&mut semaphore).remove(0);
        order.push(held.clone());
    }
    let at = |name: &str| order.iter().position(|granted| granted == name);
    assert!(at("first-a") < at("a") && at("first-b") < at("b"), "{order:?}");
}

/// The program made the calls one after the other.
#[test]
fn a_try_before_the_waits_of_a_call_is_granted_first() {
    let mut semaphore = start();
    let calls =
        "try@a,1,0 1 600000 try other 1 600000 try wait@b,9,0 1 600000 wait late 1 600000 try";
    let outcomes = semaphore.acquire(1, calls);
    assert_eq!(holders(&mut semaphore), ["try"]);
    assert_eq!(outcomes[2].position(), 1);
}

/// A stranger wrote them. The scripts grant the permit, and reply without an error.
#[test]
fn wrong_entries_of_order_are_dropped_or_passed() {
    for (member, score) in [("a:", 0), ("a:junk", 0), ("a:0000000000000001:gone", 0), ("a:x", 5)] {
        let mut semaphore = start();
        semaphore.acquire(1, "holder 1 600000 try");
        semaphore.acquire(1, "a@a,1,0 1 600000 wait");
        let key = semaphore.keys[4].clone();
        semaphore.command::<i64>(&format!("ZADD {key} {score} {member}"));
        semaphore.ok("release", "return holder");
        semaphore.acquire(1, "a@a,1,0 1 600000 1");
        assert_eq!(holders(&mut semaphore), ["a"], "{member}");
        let left = semaphore.scores("order");
        let comes_first = score == 0 && member < "a:1";
        assert!(
            !comes_first || left.iter().all(|(entry, _)| entry != member),
            "{member}: {left:?}"
        );
    }
}
