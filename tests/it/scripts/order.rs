//! Tests of the strict order of grants. No request overtakes another request or starves. A request
//! that returns gets its old position.

use super::{Outcome, Timed, fresh};

#[test]
fn a_heavy_request_is_not_starved_by_light_ones() {
    let mut semaphore = fresh();
    semaphore.acquire(3, "a 1 60000 try b 1 60000 try c 1 60000 try");
    semaphore.acquire(3, "heavy 3 60000 wait");
    for (number, released) in ["a", "b", "c"].iter().enumerate() {
        // These requests would fit, but the heavy request arrived first.
        let light = semaphore.acquire_one(3, &format!("light{number} 1 60000 wait"));
        assert_eq!(light.position(), number as i64 + 2);
        assert_eq!(semaphore.acquire_one(3, "tried 1 60000 try"), Outcome::Refused);
        assert_eq!(semaphore.inspect().waiter_ids()[0], "heavy");
        semaphore.ok("release", &format!("return {released}"));
    }
    assert_eq!(semaphore.inspect().holder_ids(), ["heavy"].into());
    semaphore.ok("release", "return heavy");
    assert_eq!(semaphore.inspect().holder_ids(), ["light0", "light1", "light2"].into());
}

#[test]
fn a_try_never_overtakes_a_waiting_request() {
    let mut semaphore = fresh();
    semaphore.acquire(2, "a 1 60000 try heavy 2 60000 wait");
    assert_eq!(semaphore.acquire_one(2, "tried 1 60000 try"), Outcome::Refused);
    // A request in the same call does not overtake the heavy request either.
    let mut semaphore = fresh();
    let outcomes = semaphore.acquire(2, "a 1 60000 try heavy 2 60000 wait tried 1 60000 try");
    assert_eq!(outcomes[2], Outcome::Refused);
    semaphore.ok("release", "return heavy");
    assert!(semaphore.acquire_one(2, "tried 1 60000 try").is_granted());
}

#[test]
fn requests_are_granted_until_their_weights_reach_the_limit() {
    let mut semaphore = fresh();
    let outcomes = semaphore.acquire(10, "a 4 60000 try b 7 60000 try c 4 60000 try d 2 60000 try");
    let granted: Vec<_> = outcomes.iter().map(|outcome| outcome.is_granted()).collect();
    assert_eq!(granted, [true, false, true, true]);
    assert_eq!(semaphore.acquire_one(10, "e 1 60000 try"), Outcome::Refused);
    semaphore.acquire(10, "e 3 60000 wait f 2 60000 wait g 1 60000 wait");
    // A weight of 4 is free. The first request fits, the second request does not fit, and the third
    // request must not overtake the second request.
    semaphore.ok("release", "return a");
    let inspection = semaphore.inspect();
    assert_eq!(inspection.holder_ids(), ["c", "d", "e"].into());
    assert_eq!((inspection.held, inspection.waiter_ids()), (9, vec!["f", "g"]));
    semaphore.ok("release", "return d");
    let inspection = semaphore.inspect();
    assert_eq!((inspection.held, inspection.queued), (10, 0));
    semaphore.assert_weights_agree();
}

#[test]
fn permits_freed_in_a_call_are_granted_in_the_order_of_the_queue() {
    let mut semaphore = fresh();
    semaphore.acquire(3, "a 1 60000 try b 1 60000 try c 1 60000 try");
    let tickets: Vec<_> = (0..5)
        .map(|number| semaphore.acquire_one(3, &format!("w{number} 1 60000 wait")).ticket())
        .collect();
    assert!(tickets.is_sorted_by(|earlier, later| earlier < later), "{tickets:?}");
    semaphore.ok("release", "return c a");
    assert_eq!(semaphore.inspect().waiter_ids(), ["w2", "w3", "w4"]);
    let tokens: Vec<_> = (0..2)
        .map(|number| semaphore.acquire_one(3, &format!("w{number} 1 60000 wait")).token())
        .collect();
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
}

#[test]
fn a_release_of_a_waiting_request_immediately_grants_the_next_waiter() {
    let mut semaphore = fresh();
    semaphore.acquire(3, "a 2 60000 try heavy 3 60000 wait light 1 60000 wait");
    assert_eq!(semaphore.ok("release", "return heavy")[2..], [2]);
    assert_eq!(semaphore.inspect().holder_ids(), ["a", "light"].into());
}

#[test]
fn queued_requests_are_granted_before_the_requests_of_the_call() {
    let mut semaphore = Timed::start();
    semaphore.acquire(2, "a 2 5000 try b 1 60000 wait");
    semaphore.pass(5000);
    // The lease of "a" has expired, but no call has granted "b" the permit yet. The next call grants
    // the permit to "b" first, because "b" arrived before "c" and "d".
    let outcomes = semaphore.acquire(2, "c 2 60000 wait d 1 60000 try");
    assert_eq!(outcomes[0].position(), 1);
    assert_eq!(outcomes[1], Outcome::Refused);
    assert_eq!(semaphore.inspect().holder_ids(), ["b"].into());
}

/// Queues "x" and "y" in this order. After that, the client of "x" sends no heartbeat in time, so
/// "x" is removed.
fn skip_x(semaphore: &mut Timed) -> (i64, i64) {
    semaphore.acquire(2, "a 1 600000 try b 1 600000 try");
    let x = semaphore.acquire_for(2, "absent poll 5000", "x 1 60000 wait")[0].ticket();
    let y = semaphore.acquire(2, "y 1 60000 wait")[0].ticket();
    semaphore.pass(5001);
    semaphore.ok("release", "return a");
    let inspection = semaphore.inspect();
    assert_eq!((inspection.holder_ids(), inspection.queued), (["b", "y"].into(), 0));
    (x, y)
}

#[test]
fn a_returning_waiter_gets_its_old_position() {
    let mut semaphore = Timed::start();
    let (x, _) = skip_x(&mut semaphore);
    assert_eq!(semaphore.acquire_one(2, "z 1 60000 wait").position(), 1);
    let back = semaphore.acquire_one(2, &format!("x 1 60000 {x}"));
    assert_eq!(back, Outcome::Queued { ticket: x, position: 1 });
    assert_eq!(semaphore.acquire_one(2, "z 1 60000 wait").position(), 2);
    semaphore.ok("release", "return b");
    assert_eq!(semaphore.inspect().waiter_ids(), ["z"]);
}

#[test]
fn returning_waiters_are_sorted_by_their_tickets() {
    let mut semaphore = Timed::start();
    let (x, y) = skip_x(&mut semaphore);
    semaphore.acquire(2, "z 1 60000 wait");
    let requests = format!("new 1 60000 wait later 1 60000 {y} x 1 60000 {x}");
    let outcomes = semaphore.acquire(2, &requests);
    let positions: Vec<_> = outcomes.iter().map(|outcome| outcome.position()).collect();
    assert_eq!(positions, [4, 2, 1]);
    assert_eq!(semaphore.inspect().waiter_ids(), ["x", "later", "z", "new"]);
}

#[test]
fn a_light_waiter_that_returns_ahead_of_a_heavy_waiter_is_granted_at_once() {
    let mut semaphore = Timed::start();
    let (x, _) = skip_x(&mut semaphore);
    semaphore.ok("release", "return b");
    semaphore.acquire(2, "heavy 2 60000 wait");
    // One permit is free: too little for the head of the queue, but enough for "x".
    assert!(semaphore.acquire_one(2, &format!("x 1 60000 {x}")).is_granted());
    assert_eq!(semaphore.inspect().waiter_ids(), ["heavy"]);
}

#[test]
fn a_ticket_that_was_never_issued_is_ignored() {
    let mut semaphore = Timed::start();
    semaphore.acquire(1, "a 1 60000 try b 1 60000 wait");
    let future = semaphore.now() * 1000 + 3_600_000_000;
    let outcome = semaphore.acquire_one(1, &format!("c 1 60000 {future}"));
    assert_eq!(outcome.position(), 2);
    assert!(outcome.ticket() < future);
    assert_eq!(semaphore.acquire_one(1, "d 1 60000 9007199254740991").position(), 3);
}
