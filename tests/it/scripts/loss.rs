//! Each of the four keys may get lost by itself: deleted, evicted, or forgotten in a failover.

use super::{Outcome, Timed};

const KEYS: [&str; 4] = ["permits", "queue", "waiting", "state"];

/// Of the limit 6, set at run time over a declared 5, "heavy" holds 3, "pair" 2 and "light" 1;
/// "first" waits for 2, "second" for 1. Answers their tickets, too.
fn full() -> (Timed, i64, i64) {
    let mut semaphore = Timed::start();
    semaphore.ok("limit", "declare 5");
    semaphore.ok("limit", "set 6");
    semaphore.acquire(5, "heavy 3 600000 try pair 2 600000 try light 1 600000 try");
    let waiters = semaphore.acquire(5, "first 2 60000 wait second 1 60000 wait");
    semaphore.pass(1000);
    (semaphore, waiters[0].ticket(), waiters[1].ticket())
}

/// How much weight can be acquired until the limit is reached: by tries, as anybody would.
fn fill_up(semaphore: &mut Timed) -> i64 {
    let (mut weight, now) = (0, semaphore.now());
    while semaphore.acquire_one(5, &format!("fill{weight}-{now} 1 60000 try")).is_granted() {
        weight += 1;
    }
    weight
}

#[test]
fn no_call_fails_or_gives_too_much_after_the_loss_of_a_key() {
    let calls = [
        ("acquire", "declared 5 client poll 600000 new 1 60000 wait heavy 3 60000 try"),
        ("acquire", "declared 5 client poll 600000 first 2 60000 wait second 1 60000 wait"),
        ("release", "return heavy second"),
        ("release", "consume pair light"),
        ("refresh", "heavy 600000 light 5000"),
        ("limit", "declare 4"),
        ("limit", "initial 4"),
        ("limit", "set 7"),
        ("limit", "add 1 more"),
        ("limit", "clear"),
        ("wake", ""),
        ("inspect", "0 100 0 100"),
    ];
    for key in KEYS {
        for (script, arguments) in calls {
            let (mut semaphore, ..) = full();
            semaphore.lose(key);
            let held = semaphore.inspect().held;
            semaphore.call(script, arguments).unwrap();
            if script != "inspect" {
                semaphore.assert_weights_agree();
                let now = semaphore.now();
                semaphore.assert_expiries(now);
            }
            let inspection = semaphore.inspect();
            // A lower limit drains; else it is kept.
            let allowed = inspection.limit.max(held);
            assert!(inspection.held <= allowed, "{key}, {script} {arguments}: {inspection:?}");
            semaphore.call("wake", "").unwrap();
            semaphore.ok("release", "return heavy pair light first second new");
            assert_eq!(semaphore.inspect().held, 0, "{key}, {script} {arguments}");
            let limit = semaphore.inspect().limit;
            // Without a state, the next acquire brings its limit.
            let limit = if limit < 0 { 5 } else { limit };
            assert_eq!(fill_up(&mut semaphore), limit, "{key}, {script} {arguments}");
        }
    }
}

#[test]
fn lost_permits_are_free_again_with_all_their_weight() {
    let (mut semaphore, ..) = full();
    semaphore.lose("permits");
    assert_eq!(semaphore.inspect().held, 0);
    assert_eq!(semaphore.ok("refresh", "heavy 600000 light 600000")[2..], [0, 0]);
    // The call has handed off already.
    let inspection = semaphore.inspect();
    assert_eq!((inspection.held, inspection.queued), (3, 0));
    assert_eq!(semaphore.ok("release", "return heavy pair")[2..], [0, 0]);
    assert_eq!(fill_up(&mut semaphore), 3);
    assert_eq!(semaphore.inspect().runtime, 6);
    assert_eq!(semaphore.expiries()["state"], -1);
    semaphore.assert_weights_agree();
}

#[test]
fn lost_permits_take_their_marks_along() {
    let mut semaphore = Timed::start();
    semaphore.ok("limit", "declare 2");
    semaphore.ok("limit", "add 1 more");
    semaphore.acquire(2, "a 2 60000 try");
    semaphore.lose("permits");
    assert_eq!(fill_up(&mut semaphore), 3);
    assert_eq!(semaphore.inspect().held, 3);
    semaphore.assert_weights_agree();
}

#[test]
fn tokens_and_tickets_grow_over_the_loss_of_each_key() {
    for key in KEYS {
        let (mut semaphore, ..) = full();
        let last = semaphore.inspect().sequence;
        semaphore.lose(key);
        let heavy = semaphore.acquire_one(5, "new 1 60000 wait");
        let number = match heavy {
            Outcome::Queued { ticket, .. } => ticket,
            granted => granted.token(),
        };
        assert!(number > last, "{key}: {number} after {last}");
    }
}

#[test]
fn waiters_of_a_lost_queue_come_back_to_their_places() {
    let (mut semaphore, first, second) = full();
    semaphore.lose("queue");
    assert_eq!(semaphore.acquire_one(5, "new 1 60000 wait").position(), 1);
    // Nothing of the others is left, until they ask again: the last one first.
    let waiting = semaphore.key("waiting");
    assert_eq!(semaphore.command::<i64>(&format!("HLEN {waiting}")), 1);
    let back = semaphore.acquire_one(5, &format!("second 1 60000 {second}"));
    assert_eq!(back, Outcome::Queued { ticket: second, position: 1 });
    let back = semaphore.acquire_one(5, &format!("first 2 60000 {first}"));
    assert_eq!(back, Outcome::Queued { ticket: first, position: 1 });
    assert_eq!(semaphore.inspect().waiter_ids(), ["first", "second", "new"]);
    semaphore.ok("release", "return heavy");
    assert_eq!(semaphore.inspect().waiter_ids(), ["new"]);
}

#[test]
fn waiters_whose_record_was_lost_keep_their_place_when_they_ask_in_time() {
    let (mut semaphore, first, second) = full();
    semaphore.lose("waiting");
    let back = semaphore.acquire(5, "second 1 60000 wait first 2 60000 wait");
    assert_eq!(back[0], Outcome::Queued { ticket: second, position: 2 });
    assert_eq!(back[1], Outcome::Queued { ticket: first, position: 1 });
    semaphore.ok("release", "return pair");
    assert!(semaphore.acquire_one(5, "first 2 60000 wait").is_granted());
}

#[test]
fn waiters_whose_record_was_lost_come_back_to_their_places() {
    let (mut semaphore, first, second) = full();
    semaphore.lose("waiting");
    semaphore.acquire(5, "new 1 60000 wait newer 1 60000 wait");
    // Who they are is not known, so they are passed over.
    semaphore.ok("release", "return light");
    let inspection = semaphore.inspect();
    assert_eq!(inspection.holder_ids(), ["heavy", "new", "pair"].into());
    assert_eq!(inspection.waiter_ids(), ["newer"]);
    let requests = format!("second 1 60000 {second} first 2 60000 {first}");
    let back = semaphore.acquire(5, &requests);
    assert_eq!((back[0].position(), back[1].position()), (2, 1));
    assert_eq!(semaphore.inspect().waiter_ids(), ["first", "second", "newer"]);
}

#[test]
fn a_lost_state_takes_the_weights_and_the_limit_along() {
    let (mut semaphore, ..) = full();
    semaphore.lose("state");
    let inspection = semaphore.inspect();
    assert_eq!((inspection.limit, inspection.held, inspection.queued), (-1, 3, 2));
    // The limit is known again from the first call that brings one; the waiters go first: two of
    // five were free for "first", none for "second".
    assert_eq!(semaphore.acquire_one(5, "new 1 60000 try"), Outcome::Refused);
    let inspection = semaphore.inspect();
    assert_eq!((inspection.declared, inspection.runtime, inspection.held), (5, -1, 5));
    assert_eq!(inspection.waiter_ids(), ["second"]);
    // Each release gives back what is known of it.
    semaphore.ok("release", "return heavy");
    assert_eq!(semaphore.inspect().held, 5);
    semaphore.ok("release", "return first second pair light");
    assert_eq!(semaphore.inspect().held, 0);
    semaphore.assert_weights_agree();
}

/// A limit of 0 set at run time would pause the semaphore for good.
#[test]
fn consume_sets_no_limit_where_none_is_known() {
    let (mut semaphore, ..) = full();
    semaphore.lose("state");
    assert_eq!(semaphore.ok("release", "consume heavy light")[2..], [1, 1]);
    assert_eq!(semaphore.inspect().limit, -1);
    semaphore.acquire(5, "first 2 60000 wait second 1 60000 wait");
    let inspection = semaphore.inspect();
    assert_eq!(inspection.holder_ids(), ["first", "pair", "second"].into());
}

/// No holder may lose its place because the state was lost: nobody knows how long the leases are,
/// but the keys still say when they end.
#[test]
fn permits_live_on_after_the_loss_of_the_state() {
    for (script, arguments) in [
        ("wake", ""),
        ("refresh", "light 5000"),
        ("acquire", "declared 3 client poll 5000 new 1 5000 try"),
        ("limit", "declare 3"),
    ] {
        let (mut semaphore, ..) = full();
        semaphore.lose("state");
        semaphore.call(script, arguments).unwrap();
        semaphore.pass(400_000);
        let lost = semaphore.ok("refresh", "heavy 600000 pair 600000")[2..].contains(&0);
        assert!(!lost, "after {script} {arguments}");
    }
}

#[test]
fn marks_of_add_do_not_count_for_ever_after_the_loss_of_the_state() {
    let mut semaphore = Timed::start();
    semaphore.ok("limit", "add 1 one");
    semaphore.ok("limit", "add 1 two");
    semaphore.lose("state");
    semaphore.ok("limit", "add 3 three");
    semaphore.pass(60_000);
    // All marks have ended, so all three are free.
    assert_eq!(fill_up(&mut semaphore), 3);
    semaphore.assert_weights_agree();
}

#[test]
fn waiters_keep_their_places_after_the_loss_of_permits_or_state() {
    for key in ["permits", "state"] {
        let mut semaphore = Timed::start();
        semaphore.acquire(5, "heavy 5 60000 try");
        semaphore.acquire(5, "patient 5 60000 wait");
        semaphore.lose(key);
        // Nothing can be handed off: the semaphore is paused.
        semaphore.ok("limit", "set 0");
        semaphore.pass(300_000);
        assert_eq!(semaphore.inspect().waiter_ids(), ["patient"], "{key}");
        semaphore.ok("limit", "set 5");
        assert_eq!(semaphore.inspect().holder_ids(), ["patient"].into(), "{key}");
    }
}

#[test]
fn a_new_record_of_waiters_expires_like_the_lost_one() {
    let (mut semaphore, ..) = full();
    semaphore.lose("waiting");
    semaphore.acquire(5, "new 1 60000 wait");
    let now = semaphore.now();
    semaphore.assert_expiries(now);
}

#[test]
fn all_four_keys_may_be_lost_at_once() {
    let (mut semaphore, first, second) = full();
    for key in KEYS {
        semaphore.lose(key);
    }
    assert_eq!(semaphore.ok("wake", "")[1..], [-1, 0]);
    assert_eq!(semaphore.ok("refresh", "heavy 60000")[2..], [0]);
    assert_eq!(semaphore.ok("release", "consume heavy")[2..], [0]);
    let keys = semaphore.keys.join(" ");
    assert_eq!(semaphore.command::<i64>(&format!("EXISTS {keys}")), 0);
    let requests = format!("first 2 60000 {first} second 1 60000 {second}");
    let back = semaphore.acquire(5, &requests);
    assert!(back.iter().all(|outcome| outcome.is_granted()), "{back:?}");
    assert_eq!(fill_up(&mut semaphore), 2);
}
