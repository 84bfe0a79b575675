//! Tests of requests whose weight can never fit.

use super::{Listener, Outcome, Timed, fresh, in_use, reported};

#[test]
fn a_weight_above_the_declared_limit_is_an_error() {
    let mut semaphore = in_use();
    let cases = [
        ("declare_if_unset 5 c poll 9 new 6 60000 wait", 4, 6),
        ("declare_if_unset 5 c poll 9 new 6 60000 try", 4, 6),
        ("declare_if_unset 5 c poll 9 a 1 60000 wait b 4294967295 60000 try", 6, 4_294_967_295_i64),
        // The effective limit counts, not the limit in the call.
        ("declare_if_unset 9 c poll 9 new 6 60000 wait", 4, 6),
        ("initial 9 c poll 9 new 6 60000 wait", 4, 6),
        // Other requests in the call do not matter.
        ("declare_if_unset 5 client poll 9 heavy 3 600000 try first 2 600000 wait a 6 9 try", 8, 6),
    ];
    for (arguments, index, weight) in cases {
        let refusal = semaphore.refuses("acquire", arguments);
        assert_eq!(refusal.code, "SEM_TOO_HEAVY", "{arguments}");
        let says = format!("ARGV[{index}] (id) weighs {weight}, the limit is 5");
        assert_eq!(refusal.detail, says);
    }
}

#[test]
fn a_weight_above_the_limit_in_the_call_is_an_error_if_no_limit_exists() {
    let mut semaphore = fresh();
    let refusal = semaphore.refuses("acquire", "declare_if_unset 2 c poll 9 a 3 60000 wait");
    assert_eq!(refusal.code, "SEM_TOO_HEAVY");
    assert_eq!(semaphore.command::<i64>(&format!("EXISTS {}", semaphore.keys.join(" "))), 0);
}

#[test]
fn no_request_is_too_heavy_while_a_runtime_limit_is_set() {
    let mut semaphore = fresh();
    semaphore.ok("limit", "declare 5");
    semaphore.ok("limit", "set 2");
    assert_eq!(semaphore.acquire_one(5, "heavy 9 60000 wait").position(), 1);
    assert_eq!(semaphore.acquire_one(5, "tried 9 60000 try"), Outcome::Refused);
    semaphore.ok("limit", "set 9");
    assert!(semaphore.acquire_one(5, "heavy 9 60000 wait").is_granted());
    // An initial limit is a runtime limit, too.
    let reply = fresh().ok("acquire", "initial 2 c poll 600000 a 3 60000 wait");
    assert_eq!(reply[3], 2);
}

#[test]
fn a_held_permit_is_not_too_heavy_for_a_lowered_limit() {
    let mut semaphore = fresh();
    assert!(semaphore.acquire_one(5, "a 3 60000 try").is_granted());
    semaphore.ok("limit", "declare 2");
    assert!(semaphore.acquire_one(2, "a 3 60000 try").is_granted());
    assert_eq!(semaphore.inspect().held, 3);
}

/// Returns a semaphore on which "heavy" (8) waits before "light". The limit is 10, and a weight of
/// 4 is held.
fn queue_with_a_heavy_head(limits: &str) -> (Timed, Listener) {
    let mut semaphore = Timed::start();
    let listener = semaphore.listen("channel");
    for limit in limits.split(',') {
        semaphore.ok("limit", limit);
    }
    assert!(semaphore.acquire_one(5, "a 4 600000 try").is_granted());
    let requests = "heavy 8 600000 wait light 1 600000 wait";
    semaphore.acquire_for(5, "channel publish 600000", requests);
    (semaphore, listener)
}

#[test]
fn a_queued_request_that_became_too_heavy_is_removed_and_notified() {
    let changes = [("declare 5,set 10", "clear"), ("declare 10", "declare 5")];
    for (before, change) in changes {
        let (mut semaphore, mut listener) = queue_with_a_heavy_head(before);
        semaphore.ok("limit", change);
        let text = reported(&mut listener);
        assert!(text.starts_with("timed\nheavy 0 0\nlight 18"), "{before}, {change}: {text}");
        listener.expect_silence(&mut semaphore);
        let inspection = semaphore.inspect();
        assert_eq!((inspection.held, inspection.queued), (5, 0));
    }
}

#[test]
fn a_queued_request_that_became_too_heavy_is_removed_when_a_permit_is_free() {
    let (mut semaphore, mut listener) = queue_with_a_heavy_head("declare 5,set 10");
    semaphore.ok("limit", "declare 4");
    semaphore.ok("limit", "clear");
    // No permit is free, so the heavy request delays no other request yet.
    listener.expect_silence(&mut semaphore);
    assert_eq!(semaphore.inspect().waiter_ids(), ["heavy", "light"]);
    semaphore.ok("release", "return a");
    assert!(reported(&mut listener).starts_with("timed\nheavy 0 0\nlight "));
}

#[test]
fn a_queued_request_that_became_too_heavy_is_rejected_at_its_heartbeat() {
    let (mut semaphore, _listener) = queue_with_a_heavy_head("declare 5,set 10");
    semaphore.ok("limit", "declare 4");
    semaphore.ok("limit", "clear");
    let again = "declare_if_unset 4 channel publish 600000 heavy 8 600000 wait";
    assert_eq!(semaphore.refuses("acquire", again).code, "SEM_TOO_HEAVY");
    assert_eq!(semaphore.ok("release", "return heavy")[2..], [2]);
    let light = |semaphore: &mut Timed| {
        semaphore.acquire_for(4, "channel publish 600000", "light 1 600000 wait")[0]
    };
    assert_eq!(light(&mut semaphore).position(), 1);
    semaphore.ok("release", "return a");
    assert!(light(&mut semaphore).is_granted());
}
