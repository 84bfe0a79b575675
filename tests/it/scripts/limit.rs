//! Tests of all calls that change the limit: declare, set, add, forget and clear.

use super::{Outcome, Scripts, Timed, fresh};

const NONE: i64 = -1;

/// Returns the reply of `limit` without the time and `wake_in`.
fn limit(semaphore: &mut Scripts, arguments: &str) -> [i64; 4] {
    let reply = semaphore.ok("limit", arguments);
    assert_eq!(reply[1], NONE, "{arguments}");
    reply[2..].try_into().unwrap()
}

#[test]
fn limit_returns_the_effective_and_declared_limits_and_their_old_values() {
    let stories: [&[(&str, [i64; 4])]; 9] = [
        &[
            ("declare 3", [3, NONE, 3, NONE]),
            ("declare 3", [3, 3, 3, 3]),
            ("declare 0", [0, 3, 0, 3]),
            ("set 7", [7, 0, 0, 0]),
            // A runtime limit stays effective.
            ("declare 7", [7, 7, 7, 0]),
            ("declare 4", [7, 7, 4, 7]),
            ("set 0", [0, 7, 4, 4]),
            ("clear", [4, 0, 4, 4]),
            ("clear", [4, 4, 4, 4]),
        ],
        &[
            ("initial 2", [2, NONE, NONE, NONE]),
            ("initial 9", [2, 2, NONE, NONE]),
            ("set 3", [3, 2, NONE, NONE]),
            ("initial 9", [3, 3, NONE, NONE]),
            ("clear", [NONE, 3, NONE, NONE]),
            ("initial 0", [0, NONE, NONE, NONE]),
            ("initial 9", [0, 0, NONE, NONE]),
        ],
        &[("declare 3", [3, NONE, 3, NONE]), ("initial 5", [3, 3, 3, 3])],
        &[
            ("declare_if_unset 3", [3, NONE, 3, NONE]),
            ("declare_if_unset 5", [3, 3, 3, 3]),
            ("set 4", [4, 3, 3, 3]),
            ("declare 5", [4, 4, 5, 3]),
        ],
        &[("set 4", [4, NONE, NONE, NONE]), ("declare_if_unset 5", [4, 4, NONE, NONE])],
        &[
            ("add 4 a", [4, NONE, NONE, NONE]),
            ("add 2 b", [6, 4, NONE, NONE]),
            ("add 2 a", [6, 6, NONE, NONE]),
            ("declare 1", [6, 6, 1, NONE]),
            ("clear", [1, 6, 1, 1]),
            ("add 2 c", [3, 1, 1, 1]),
        ],
        &[("declare 3", [3, NONE, 3, NONE]), ("add 0 a", [3, 3, 3, 3])],
        &[("clear", [NONE, NONE, NONE, NONE])],
        &[("set 4294967295", [4_294_967_295, NONE, NONE, NONE])],
    ];
    for story in stories {
        let mut semaphore = fresh();
        for (arguments, expected) in story {
            assert_eq!(limit(&mut semaphore, arguments), *expected, "{arguments} of {story:?}");
        }
    }
}

#[test]
fn limit_returns_the_server_time() {
    let mut semaphore = Timed::start();
    for arguments in ["declare 1", "initial 1", "set 1", "add 1 a", "clear"] {
        assert_eq!(semaphore.ok("limit", arguments)[0], semaphore.now());
        semaphore.pass(17);
    }
}

#[test]
fn a_raised_limit_immediately_grants_permits_to_waiters() {
    for raise in ["declare 4", "set 4", "add 2 more"] {
        let mut semaphore = fresh();
        semaphore.acquire(2, "a 2 60000 try b 1 60000 wait c 1 60000 wait d 1 60000 wait");
        semaphore.ok("limit", raise);
        let inspection = semaphore.inspect();
        assert_eq!(inspection.holder_ids(), ["a", "b", "c"].into(), "{raise}");
        assert_eq!(inspection.waiter_ids(), ["d"], "{raise}");
    }
    let mut semaphore = fresh();
    semaphore.ok("limit", "set 0");
    semaphore.acquire(2, "a 2 60000 wait");
    semaphore.ok("limit", "declare 2");
    assert_eq!(semaphore.inspect().queued, 1);
    semaphore.ok("limit", "clear");
    assert_eq!(semaphore.inspect().held, 2);
}

#[test]
fn a_lowered_limit_takes_effect_as_holders_release_their_permits() {
    for lower in ["declare 1", "set 1"] {
        let mut semaphore = fresh();
        semaphore.acquire(3, "a 1 60000 try b 1 60000 try c 1 60000 try");
        semaphore.ok("limit", lower);
        semaphore.acquire(3, "w 1 60000 wait");
        for (released, held) in [("a", 2), ("b", 1)] {
            let reply = semaphore.ok("refresh", "c 60000");
            assert!(reply[2] > 0, "holders keep their permits");
            semaphore.ok("release", &format!("return {released}"));
            assert_eq!(semaphore.inspect().held, held, "{lower}");
            assert_eq!(semaphore.acquire_one(3, "tried 1 60000 try"), Outcome::Refused);
        }
        semaphore.ok("release", "return c");
        assert_eq!(semaphore.inspect().holder_ids(), ["w"].into(), "{lower}");
    }
}

#[test]
fn a_limit_of_zero_pauses_grants_until_a_higher_limit_is_set() {
    let mut semaphore = fresh();
    semaphore.acquire(2, "a 1 60000 try");
    semaphore.ok("limit", "set 0");
    assert_eq!(semaphore.acquire_one(2, "b 1 60000 try"), Outcome::Refused);
    assert_eq!(semaphore.acquire_one(2, "c 1 60000 wait").position(), 1);
    assert!(semaphore.acquire_one(2, "a 1 60000 try").is_granted());
    semaphore.ok("release", "return a");
    assert_eq!(semaphore.ok("wake", "")[2], 1);
    semaphore.ok("limit", "set 1");
    assert_eq!(semaphore.inspect().holder_ids(), ["c"].into());
}

#[test]
fn acquire_sets_its_limit_only_if_no_limit_exists() {
    let mut semaphore = fresh();
    semaphore.acquire(3, "a 1 60000 try");
    let inspection = semaphore.inspect();
    assert_eq!((inspection.limit, inspection.declared, inspection.runtime), (3, 3, NONE));
    // If a limit exists, the limit in the call is ignored.
    semaphore.acquire(9, "a 1 60000 try");
    assert_eq!(semaphore.inspect().limit, 3);

    let mut semaphore = fresh();
    semaphore.ok("acquire", "initial 3 client poll 600000 a 1 60000 try");
    semaphore.ok("acquire", "initial 9 client poll 600000 b 1 60000 try");
    let inspection = semaphore.inspect();
    assert_eq!((inspection.limit, inspection.declared, inspection.runtime), (3, NONE, 3));

    let mut semaphore = fresh();
    semaphore.ok("limit", "set 2");
    semaphore.acquire(9, "a 1 60000 try");
    let inspection = semaphore.inspect();
    assert_eq!((inspection.limit, inspection.declared), (2, NONE));
}

#[test]
fn an_add_with_the_same_idempotency_key_counts_once_within_a_minute() {
    let mut semaphore = Timed::start();
    assert_eq!(limit(&mut semaphore, "add 2 same")[0], 2);
    let now = semaphore.now();
    semaphore.assert_expiries(now);
    semaphore.pass(59_999);
    assert_eq!(limit(&mut semaphore, "add 2 same")[0], 2);
    semaphore.pass(1);
    assert_eq!(limit(&mut semaphore, "add 2 same")[0], 4);
    semaphore.pass(59_999);
    assert_eq!(limit(&mut semaphore, "add 2 same")[0], 4);
    semaphore.assert_weights_agree();
}

/// Idempotency keys do not affect leases: the expiry of an idempotency key requires no `wake`.
#[test]
fn idempotency_keys_do_not_affect_wake_in() {
    let mut semaphore = Timed::start();
    semaphore.ok("limit", "add 1 first");
    semaphore.acquire(1, "holder 1 600000 try");
    let waiting =
        semaphore.ok("acquire", "declare_if_unset 1 client poll 600000 waiter 1 60000 wait");
    assert_eq!(waiting[1], 600_000, "until the holder's lease ends");
}

#[test]
fn a_thousand_idempotency_keys_hide_no_lease_when_the_clock_steps_back() {
    let mut semaphore = Timed::start();
    semaphore.acquire(1, "dead 1 120000 try");
    for number in 0..1000 {
        semaphore.ok("limit", &format!("set 1 mark{number}"));
    }
    semaphore.pass(-3_600_000);
    assert_eq!(semaphore.acquire_one(1, "next 1 60000 try"), Outcome::Refused);
    semaphore.pass(120_000);
    assert!(semaphore.acquire_one(1, "next 1 60000 try").is_granted());
}

#[test]
fn idempotency_keys_of_add_have_no_weight() {
    let mut semaphore = Timed::start();
    for number in 0..5 {
        semaphore.ok("limit", &format!("add 1 mark{number}"));
    }
    let outcomes = semaphore.acquire(5, "a 3 600000 try b 2 600000 try c 1 600000 try");
    assert!(outcomes[1].is_granted());
    assert_eq!(outcomes[2], Outcome::Refused);
    semaphore.pass(60_000);
    assert_eq!(semaphore.acquire_one(5, "c 1 600000 try"), Outcome::Refused);
    assert_eq!(semaphore.inspect().held, 5);
    semaphore.assert_weights_agree();
    let marks = |semaphore: &mut Timed| semaphore.scores("clients").len();
    assert_eq!(marks(&mut semaphore), 5);
    // Each call with a new idempotency key removes two expired idempotency keys.
    semaphore.pass(1);
    semaphore.ok("limit", "add 1 more");
    assert_eq!(marks(&mut semaphore), 4);
}

#[test]
fn add_subtracts_the_weight_of_expired_leases_once() {
    for raise in 0..3 {
        let mut semaphore = Timed::start();
        semaphore.acquire(3, "a 2 1000 try b 1 1000 try");
        let waiters: String =
            (0..9).map(|number| format!("waiter{number} 1 60000 wait ")).collect();
        semaphore.acquire(3, &waiters);
        semaphore.pass(1000);
        assert_eq!(limit(&mut semaphore, &format!("add {raise} same"))[0], 3 + raise);
        let inspection = semaphore.inspect();
        assert_eq!(inspection.held, 3 + raise);
        assert_eq!(inspection.holder_ids().len() as i64, 3 + raise);
        semaphore.assert_weights_agree();
    }
}

#[test]
fn an_idempotency_key_of_add_does_not_conflict_with_an_id_of_acquire() {
    let mut semaphore = fresh();
    semaphore.ok("limit", "add 2 same");
    assert!(semaphore.acquire_one(2, "same 2 60000 try").is_granted());
    assert_eq!(semaphore.ok("release", "return same")[2..], [1]);
    assert_eq!(semaphore.ok("limit", "add 2 same")[2], 2);
}

#[test]
fn add_rejects_a_number_that_exceeds_the_largest_limit() {
    let mut semaphore = fresh();
    semaphore.ok("limit", "set 4294967290");
    let refusal = semaphore.refuses("limit", "add 6 more");
    assert_eq!(refusal.code, "SEM_ARG");
    let says = "ARGV[4] (n) must be at most 5: the limit cannot exceed 4294967295, got \"6\"";
    assert_eq!(refusal.detail, says);
    assert_eq!(semaphore.ok("limit", "add 5 more")[2], 4_294_967_295);
    assert_eq!(semaphore.refuses("limit", "add 1 again").code, "SEM_ARG");
    assert_eq!(semaphore.ok("limit", "add 0 again")[2], 4_294_967_295);
}

/// The call adds to the limit that it declares.
#[test]
fn add_with_a_declared_limit_rejects_a_sum_above_the_largest_limit() {
    let mut semaphore = fresh();
    semaphore.ok("limit", "declare 3");
    let mark = semaphore.mark(None);
    let refusal = semaphore.refuses("limit", &format!("declare 4294967290 add 6 {mark}"));
    assert_eq!(refusal.code, "SEM_ARG");
    assert!(refusal.detail.contains("at most 5"), "{}", refusal.detail);
    let reply = semaphore.ok("limit", &format!("declare 4294967290 add 5 {mark}"));
    assert_eq!(reply[2..], [4_294_967_295, 3, 4_294_967_290, 3]);
}

#[test]
fn forget_subtracts_the_weight_from_the_limit() {
    let mut semaphore = fresh();
    semaphore.acquire(5, "a 3 60000 try b 1 60000 try c 2 60000 wait");
    assert_eq!(semaphore.ok("release", "forget a nobody")[2..], [1, 0]);
    let inspection = semaphore.inspect();
    assert_eq!((inspection.limit, inspection.declared, inspection.runtime), (2, 5, 2));
    // The limit decreases by the weight of "a": one of two is free, and "c" needs both.
    assert_eq!((inspection.held, inspection.waiter_ids()), (1, vec!["c"]));
    // Forgetting a queued request subtracts nothing.
    assert_eq!(semaphore.ok("release", "forget c")[2..], [2]);
    assert_eq!(semaphore.inspect().limit, 2);
    semaphore.ok("release", "forget b");
    assert_eq!(semaphore.inspect().limit, 1);
    semaphore.assert_weights_agree();
}

#[test]
fn forget_subtracts_nothing_for_an_expired_lease_and_never_goes_below_zero() {
    let mut semaphore = Timed::start();
    semaphore.acquire(5, "a 2 5000 try b 3 60000 try");
    semaphore.pass(5000);
    assert_eq!(semaphore.ok("release", "forget a")[2..], [0]);
    assert_eq!(semaphore.inspect().limit, 5);
    semaphore.ok("limit", "set 1");
    semaphore.ok("release", "forget b");
    assert_eq!(semaphore.inspect().limit, 0);
}

/// The calls are P and V of the textbook.
#[test]
fn each_signal_of_a_signaling_semaphore_is_used_once() {
    let mut semaphore = fresh();
    semaphore.ok("limit", "initial 0");
    semaphore.ok("acquire", "initial 0 client poll 600000 p1 1 60000 wait p2 1 60000 wait");
    semaphore.ok("limit", "add 1 v1");
    assert_eq!(semaphore.inspect().holder_ids(), ["p1"].into());
    semaphore.ok("release", "forget p1");
    let inspection = semaphore.inspect();
    assert_eq!((inspection.limit, inspection.held, inspection.queued), (0, 0, 1));
    semaphore.ok("limit", "add 2 v2");
    semaphore.ok("release", "forget p2");
    assert!(semaphore.acquire_one(0, "p3 1 60000 try").is_granted());
    assert_eq!(semaphore.acquire_one(0, "p4 1 60000 try"), Outcome::Refused);
}
