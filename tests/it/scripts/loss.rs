//! Tests of lost keys. Each of the four keys may be lost separately: a key may be deleted, be
//! evicted, or be missing after a failover.

use super::{Outcome, Timed};

const KEYS: [&str; 4] = ["permits", "queue", "clients", "state"];

/// Returns a full semaphore with a runtime limit of 6 and a declared limit of 5. "heavy" holds 3,
/// "pair" 2 and "light" 1. "first" waits for 2, and "second" for 1. Also returns the tickets of the
/// two waiters.
fn full() -> (Timed, i64, i64) {
    let mut semaphore = Timed::start();
    semaphore.ok("limit", "declare 5");
    semaphore.ok("limit", "set 6");
    semaphore.acquire(5, "heavy 3 600000 try pair 2 600000 try light 1 600000 try");
    let waiters = semaphore.acquire(5, "first 2 60000 wait second 1 60000 wait");
    semaphore.pass(1000);
    (semaphore, waiters[0].ticket(), waiters[1].ticket())
}

/// Acquires with `try` requests until the limit is reached, and returns the granted weight.
fn fill_up(semaphore: &mut Timed) -> i64 {
    fill_up_to(semaphore, 5)
}

fn fill_up_to(semaphore: &mut Timed, limit: i64) -> i64 {
    let (mut weight, now) = (0, semaphore.now());
    while semaphore.acquire_one(limit, &format!("fill{weight}-{now} 1 60000 try")).is_granted() {
        weight += 1;
    }
    weight
}

#[test]
fn no_call_fails_or_grants_above_the_limit_after_the_loss_of_a_key() {
    let calls = [
        ("acquire", "declare_if_unset 5 client poll 600000 new 1 60000 wait heavy 3 600000 try"),
        ("acquire", "declare_if_unset 5 client poll 600000 first 2 60000 wait second 1 60000 wait"),
        ("release", "return heavy second"),
        ("release", "forget pair light"),
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
            // The weight held may exceed the limit only if the call lowered the limit.
            let allowed = inspection.limit.max(held);
            assert!(inspection.held <= allowed, "{key}, {script} {arguments}: {inspection:?}");
            semaphore.call("wake", "").unwrap();
            semaphore.ok("release", "return heavy pair light first second new");
            assert_eq!(semaphore.inspect().held, 0, "{key}, {script} {arguments}");
            let limit = semaphore.inspect().limit;
            // If the state is lost, the next acquire sets the limit.
            let limit = if limit < 0 { 5 } else { limit };
            assert_eq!(fill_up(&mut semaphore), limit, "{key}, {script} {arguments}");
        }
    }
}

#[test]
fn after_the_loss_of_the_permits_all_their_weight_is_free() {
    let (mut semaphore, ..) = full();
    semaphore.lose("permits");
    assert_eq!(semaphore.inspect().held, 0);
    assert_eq!(semaphore.ok("refresh", "heavy 600000 light 600000")[2..], [0, 0]);
    // This `refresh` has already granted the lost permits to the waiters.
    let inspection = semaphore.inspect();
    assert_eq!((inspection.held, inspection.queued), (3, 0));
    assert_eq!(semaphore.ok("release", "return heavy pair")[2..], [0, 0]);
    assert_eq!(fill_up(&mut semaphore), 3);
    assert_eq!(semaphore.inspect().runtime, 6);
    assert_eq!(semaphore.expiries()["state"], -1);
    semaphore.assert_weights_agree();
}

#[test]
fn the_loss_of_the_clients_loses_the_idempotency_keys() {
    let mut semaphore = Timed::start();
    semaphore.ok("limit", "declare 2");
    semaphore.ok("limit", "add 1 more");
    semaphore.lose("clients");
    assert_eq!(semaphore.ok("limit", "add 1 more")[2..4], [4, 3]);
    assert_eq!(fill_up(&mut semaphore), 4);
    semaphore.assert_weights_agree();
}

#[test]
fn tokens_and_tickets_grow_over_the_loss_of_each_key() {
    for key in KEYS {
        let (mut semaphore, ..) = full();
        let last = semaphore.inspect().last;
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
fn waiters_of_a_lost_queue_return_to_their_positions() {
    let (mut semaphore, first, second) = full();
    semaphore.lose("queue");
    assert_eq!(semaphore.acquire_one(5, "new 1 60000 wait").position(), 1);
    // The lost requests return with their next heartbeat, in any order.
    let back = semaphore.acquire_one(5, &format!("second 1 60000 {second}"));
    assert_eq!(back, Outcome::Queued { ticket: second, position: 1 });
    let back = semaphore.acquire_one(5, &format!("first 2 60000 {first}"));
    assert_eq!(back, Outcome::Queued { ticket: first, position: 1 });
    assert_eq!(semaphore.inspect().waiter_ids(), ["first", "second", "new"]);
    semaphore.ok("release", "return heavy");
    assert_eq!(semaphore.inspect().waiter_ids(), ["new"]);
}

#[test]
fn waiters_whose_client_was_lost_keep_their_position_with_a_heartbeat() {
    let (mut semaphore, first, second) = full();
    semaphore.lose("clients");
    let back = semaphore.acquire(5, "second 1 60000 wait first 2 60000 wait");
    assert_eq!(back[0], Outcome::Queued { ticket: second, position: 2 });
    assert_eq!(back[1], Outcome::Queued { ticket: first, position: 1 });
    semaphore.ok("release", "return pair");
    assert!(semaphore.acquire_one(5, "first 2 60000 wait").is_granted());
}

/// A heartbeat applies to all requests of the client.
#[test]
fn a_heartbeat_for_one_request_restores_a_lost_client_for_all_its_requests() {
    let (mut semaphore, _, second) = full();
    semaphore.lose("clients");
    let back = semaphore.acquire_one(5, "second 1 60000 wait");
    assert_eq!(back, Outcome::Queued { ticket: second, position: 2 });
    semaphore.ok("release", "return heavy");
    assert_eq!(semaphore.inspect().holder_ids(), ["first", "light", "pair", "second"].into());
}

#[test]
fn skipped_waiters_whose_client_was_lost_return_to_their_positions() {
    let (mut semaphore, first, second) = full();
    semaphore.lose("clients");
    semaphore.acquire_for(5, "other poll 600000", "new 1 60000 wait newer 1 60000 wait");
    // "first" and "second" are skipped, because the server does not know whether their client is
    // alive.
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
fn the_loss_of_the_state_loses_the_limit_but_no_weight() {
    let (mut semaphore, ..) = full();
    semaphore.lose("state");
    let inspection = semaphore.inspect();
    assert_eq!((inspection.limit, inspection.held, inspection.queued), (-1, 6, 2));
    // The first call with a limit sets the limit again. The call frees no permit.
    assert_eq!(semaphore.acquire_one(5, "new 1 60000 try"), Outcome::Refused);
    let inspection = semaphore.inspect();
    assert_eq!((inspection.declared, inspection.runtime, inspection.held), (5, -1, 6));
    assert_eq!(inspection.waiter_ids(), ["first", "second"]);
    // After the release, two of five are free for "first", and none for "second".
    semaphore.ok("release", "return heavy");
    let inspection = semaphore.inspect();
    assert_eq!((inspection.held, inspection.waiter_ids()), (5, vec!["second"]));
    semaphore.ok("release", "return first second pair light");
    assert_eq!(semaphore.inspect().held, 0);
    semaphore.assert_weights_agree();
}

/// The semaphore has 300 permits with weights of 1 to 5. The leases of two thirds expire.
#[test]
fn the_limit_holds_after_the_loss_of_the_state_with_many_mixed_weights() {
    for (script, arguments) in [
        ("wake", ""),
        ("limit", "declare 900"),
        ("acquire", "declare_if_unset 900 client poll 600000 new 1 1000 try"),
        ("refresh", "id3 600000"),
    ] {
        let mut semaphore = Timed::start();
        let weight = |number: i64| number % 5 + 1;
        let lease = |number: i64| if number % 3 == 0 { 600_000 } else { 60_000 };
        let request = |n: i64| format!("id{n} {} {} try", weight(n), lease(n));
        let requests: Vec<String> = (0..300).map(request).collect();
        let outcomes = semaphore.acquire(900, &requests.join(" "));
        assert!(outcomes.iter().all(|outcome| outcome.is_granted()));
        semaphore.lose("state");
        semaphore.ok(script, arguments);
        assert_eq!(semaphore.inspect().held, 900, "{script}");
        assert_eq!(fill_up_to(&mut semaphore, 900), 0, "{script}");
        // Each release frees the weight of the permit.
        for number in [4, 10, 23] {
            semaphore.ok("release", &format!("return id{number}"));
            semaphore.pass(1);
            assert_eq!(fill_up_to(&mut semaphore, 900), weight(number), "{script}");
        }
        semaphore.lose("state");
        semaphore.pass(70_000);
        let left: i64 = (0..300).filter(|number| number % 3 == 0).map(weight).sum();
        assert_eq!(fill_up_to(&mut semaphore, 900), 900 - left, "{script}");
        assert_eq!(semaphore.inspect().held, 900, "{script}");
        semaphore.assert_weights_agree();
    }
}

/// A sorted set orders equal scores by ID. The ID of a new request must not affect the request's
/// position.
#[test]
fn a_new_request_is_behind_a_thousand_waiters_after_the_loss_of_a_key() {
    for key in ["permits", "clients", "state"] {
        let mut semaphore = Timed::start();
        semaphore.ok("limit", "set 1");
        semaphore.acquire(1, "holder 1 600000 try");
        for from in [0, 1000] {
            let count = if from == 0 { 1000 } else { 1 };
            let requests = (from..from + count).map(|n| format!("waits{n} 2 60000 wait"));
            semaphore.acquire(1, &requests.collect::<Vec<_>>().join(" "));
        }
        // No number in the queue may be issued again, even if the clock steps back.
        semaphore.pass(-1);
        semaphore.lose(key);
        semaphore.ok("limit", "set 1");
        let new = semaphore.acquire_one(1, "a-new-one 1 60000 wait").position();
        assert_eq!(new, 1002, "{key}");
        assert_eq!(semaphore.scores("queue").last().unwrap().0, semaphore.id("a-new-one"));
    }
}

/// If `forget` set a runtime limit without a known limit, this runtime limit would be 0, and would
/// pause the semaphore permanently.
#[test]
fn forget_sets_no_limit_if_the_limit_was_lost() {
    let (mut semaphore, ..) = full();
    semaphore.lose("state");
    assert_eq!(semaphore.ok("release", "forget heavy light")[2..], [1, 1]);
    assert_eq!(semaphore.inspect().limit, -1);
    semaphore.acquire(5, "first 2 60000 wait second 1 60000 wait");
    let inspection = semaphore.inspect();
    assert_eq!(inspection.holder_ids(), ["first", "pair", "second"].into());
}

/// The loss of the state must not end a permit. The lengths of the leases are lost, but not the
/// times at which they expire.
#[test]
fn permits_survive_the_loss_of_the_state() {
    for (script, arguments) in [
        ("wake", ""),
        ("refresh", "light 5000"),
        ("acquire", "declare_if_unset 3 client poll 5000 new 1 5000 try"),
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
fn idempotency_keys_have_no_weight_after_the_loss_of_the_state() {
    let mut semaphore = Timed::start();
    semaphore.ok("limit", "declare 1");
    semaphore.ok("limit", "add 1 one");
    semaphore.ok("limit", "clear two");
    semaphore.lose("state");
    assert!(semaphore.acquire_one(1, "a 1 60000 wait").is_granted());
    assert_eq!(semaphore.inspect().held, 1);
    // An idempotency key is known until its own expiry, so the change counts once. The effect of
    // the change was lost with the state.
    semaphore.ok("limit", "add 3 one");
    assert_eq!(semaphore.inspect().limit, 1);
    semaphore.ok("limit", "add 3 three");
    assert_eq!(fill_up(&mut semaphore), 3);
    semaphore.pass(60_000);
    assert_eq!(fill_up(&mut semaphore), 4);
    semaphore.assert_weights_agree();
}

/// `state` stores how long `clients` is needed. After the loss of `state`, the scripts assume the
/// maximum.
#[test]
fn idempotency_keys_survive_the_loss_of_the_state() {
    let mut semaphore = Timed::start();
    let add = "declare_if_unset 1 add 1 N:client:0:600000:mark____________";
    assert_eq!(semaphore.ok("limit", add)[2], 2);
    semaphore.lose("state");
    semaphore.acquire(1, "a 1 1000 try");
    semaphore.pass(400_000);
    assert_eq!(semaphore.ok("limit", add)[2], 1, "the repeated call counts once");
}

/// After the step back, the last ticket is a month ahead of the clock, and must be kept until the
/// clock has caught up.
#[test]
fn tokens_grow_after_the_loss_of_the_state_and_a_long_step_back() {
    const DAY: i64 = 24 * 3_600_000;
    let mut semaphore = Timed::start();
    let ticket = semaphore.acquire(1, "a 1 1000 try b 1 1000 wait")[1].ticket();
    semaphore.lose("state");
    semaphore.pass(-30 * DAY);
    semaphore.ok("wake", "");
    semaphore.pass(20 * DAY);
    let token = semaphore.acquire_one(1, "new 1 1000 try").token();
    assert!(token > ticket, "{token} after {ticket}");
}

#[test]
fn waiters_stay_queued_after_the_loss_of_permits_or_state() {
    for key in ["permits", "state"] {
        let mut semaphore = Timed::start();
        semaphore.acquire(5, "heavy 5 60000 try");
        semaphore.acquire(5, "patient 5 60000 wait");
        semaphore.lose(key);
        // The semaphore is paused, so it grants nothing.
        semaphore.ok("limit", "set 0");
        semaphore.pass(300_000);
        assert_eq!(semaphore.inspect().waiter_ids(), ["patient"], "{key}");
        semaphore.ok("limit", "set 5");
        assert_eq!(semaphore.inspect().holder_ids(), ["patient"].into(), "{key}");
    }
}

#[test]
fn a_key_that_is_recreated_after_its_loss_gets_an_expiry() {
    for key in KEYS {
        let (mut semaphore, ..) = full();
        let before = semaphore.expiries();
        semaphore.lose(key);
        semaphore.acquire_for(5, "other poll 60000", "new 1 60000 wait");
        let now = semaphore.now();
        semaphore.assert_expiries(now);
        let after = semaphore.expiries();
        assert!(after[key] >= before[key] || key == "state", "{key}: {before:?}, {after:?}");
    }
}

#[test]
fn the_semaphore_recovers_from_the_loss_of_all_four_keys() {
    let (mut semaphore, first, second) = full();
    for key in KEYS {
        semaphore.lose(key);
    }
    assert_eq!(semaphore.ok("wake", "")[1..], [-1, 0]);
    assert_eq!(semaphore.ok("refresh", "heavy 60000")[2..], [0]);
    assert_eq!(semaphore.ok("release", "forget heavy")[2..], [0]);
    let keys = semaphore.keys.join(" ");
    assert_eq!(semaphore.command::<i64>(&format!("EXISTS {keys}")), 0);
    let requests = format!("first 2 60000 {first} second 1 60000 {second}");
    let back = semaphore.acquire(5, &requests);
    assert!(back.iter().all(|outcome| outcome.is_granted()), "{back:?}");
    assert_eq!(fill_up(&mut semaphore), 2);
}
