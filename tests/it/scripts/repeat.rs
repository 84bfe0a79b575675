//! Tests of repeated calls. A repeated call has no further effect on permits, queue and limit, so
//! any call may be sent twice, for example after a lost reply.

use super::{Outcome, Timed, fresh};

#[test]
fn a_repeated_acquire_of_a_holder_gives_no_second_permit() {
    let mut semaphore = fresh();
    let first = semaphore.acquire_one(2, "a 2 60000 try");
    for place in ["try", "wait", "1"] {
        let again = semaphore.acquire_one(2, &format!("a 2 60000 {place}"));
        assert!(again.token() > first.token(), "{place}: {again:?} after {first:?}");
    }
    let inspection = semaphore.inspect();
    assert_eq!((inspection.held, inspection.members), (2, 1));
    semaphore.ok("release", "return a");
    assert_eq!(semaphore.inspect().held, 0);
}

#[test]
fn a_repeated_acquire_of_a_queued_request_keeps_its_ticket() {
    let mut semaphore = fresh();
    let queued = semaphore.acquire(1, "a 1 60000 try b 1 60000 wait c 1 60000 wait");
    for place in ["try", "wait", "1", "9007199254740991"] {
        let again = semaphore.acquire(1, &format!("c 1 60000 {place} b 1 60000 {place}"));
        assert_eq!(again, [queued[2], queued[1]], "{place}");
    }
    assert_eq!(semaphore.inspect().waiter_ids(), ["b", "c"]);
}

#[test]
fn a_repeated_acquire_after_an_unnoticed_handoff_returns_the_permit() {
    let mut semaphore = fresh();
    let queued = semaphore.acquire(1, "a 1 60000 try b 1 60000 wait");
    semaphore.ok("release", "return a");
    let Outcome::Granted { token, .. } = semaphore.acquire_one(1, "b 1 60000 wait") else {
        panic!("b should hold");
    };
    assert!(token > queued[1].ticket());
    assert_eq!(semaphore.inspect().held, 1);
}

#[test]
fn a_repeated_release_changes_nothing() {
    let mut semaphore = fresh();
    semaphore.acquire(2, "a 2 60000 try b 1 60000 wait c 1 60000 wait d 1 60000 wait");
    assert_eq!(semaphore.ok("release", "return a d")[2..], [1, 2]);
    let before = semaphore.dump();
    assert_eq!(semaphore.ok("release", "return a d")[2..], [0, 0]);
    assert_eq!(semaphore.ok("release", "forget a d")[2..], [0, 0]);
    assert_eq!(semaphore.dump(), before);
    assert_eq!(semaphore.inspect().holder_ids(), ["b", "c"].into());
}

#[test]
fn a_refresh_after_a_release_returns_lost() {
    let mut semaphore = fresh();
    semaphore.acquire(2, "a 1 60000 try b 1 60000 try");
    semaphore.ok("release", "return a");
    let reply = semaphore.ok("refresh", "a 60000 b 60000");
    assert_eq!(reply[2], 0);
    assert!(reply[3] > reply[0]);
    assert_eq!(semaphore.inspect().holder_ids(), ["b"].into());
}

/// After the first call, a second addition would exceed the maximum. The retry adds nothing, so the
/// retry returns no error.
#[test]
fn a_repeated_add_is_accepted_near_the_largest_limit() {
    let mut semaphore = fresh();
    assert_eq!(semaphore.ok("limit", "add 3000000000 one")[2], 3_000_000_000);
    assert_eq!(semaphore.ok("limit", "add 3000000000 one")[2..4], [3_000_000_000; 2]);
    assert_eq!(semaphore.refuses("limit", "add 3000000000 two").code, "SEM_ARG");
}

/// A sequence that contains every kind of event. Each call whose reply may be lost is sent again.
const STORY: [(&str, &str); 19] = [
    ("limit", "declare 4"),
    ("acquire", "declare_if_unset 4 c poll 600000 a 1 60000 try b 3 60000 try"),
    ("acquire", "declare_if_unset 4 c poll 600000 d 2 60000 wait e 1 60000 wait f 1 60000 try"),
    ("refresh", "a 60000 b 30000 nobody 60000"),
    ("release", "return a"),
    ("wake", ""),
    ("release", "return b"),
    ("limit", "add 2 more"),
    ("acquire", "declare_if_unset 4 c poll 600000 g 3 60000 wait h 2 60000 wait i 1 60000 wait"),
    ("release", "forget e nobody"),
    ("limit", "initial 1"),
    ("release", "forget d i"),
    ("limit", "set 3 setting"),
    ("acquire", "declare_if_unset 4 c poll 600000 j 1 60000 wait k 1 60000 1"),
    ("wake", ""),
    ("limit", "clear clearing"),
    ("release", "return g"),
    ("refresh", "h 60000 k 60000 g 60000"),
    ("acquire", "declare_if_unset 4 c poll 600000 h 2 60000 wait l 3 60000 wait m 1 60000 wait"),
];

#[test]
fn a_sequence_of_calls_ends_the_same_if_every_call_is_repeated() {
    let mut endings = Vec::new();
    for times in 1..=3 {
        let mut semaphore = Timed::start();
        for (script, arguments) in STORY {
            for _ in 0..times {
                semaphore.ok(script, arguments);
            }
            semaphore.assert_weights_agree();
        }
        let mut ending = semaphore.inspect();
        // Only the last number may differ, because a retry may get a newer token.
        ending.last = 0;
        endings.push(ending);
    }
    assert!(endings[0].holders.len() > 1 && endings[0].queued > 0, "{:?}", endings[0]);
    assert_eq!(endings[1], endings[0]);
    assert_eq!(endings[2], endings[0]);
}
