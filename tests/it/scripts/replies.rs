//! Tests of every reply that the head comments list. All numbers are exact to the last digit,
//! because the clock does not move.

use redis::Value;

use super::{Granted, Outcome, Queued, START_US, Timed, id, outcomes};

const SECOND: i64 = 1000;

#[test]
fn acquire_returns_granted_queued_or_not_granted() {
    let mut semaphore = Timed::start();
    let (now, end) = (semaphore.now(), semaphore.now() + 5 * SECOND);
    let head = "declare_if_unset 2 client poll 600000";
    let reply = semaphore.ok(
        "acquire",
        &format!("{head} a 1 5000 try b 2 5000 try c 2 5000 wait d 1 5000 try e 1 5000 wait"),
    );
    assert_eq!(reply[..3], [now, 5 * SECOND, -1]);
    let expected = [
        // The token is larger than the tickets of this call.
        Granted { token: START_US + 2, end },
        // This request does not fit.
        Outcome::Refused,
        Queued { ticket: START_US, position: 1 },
        // This request would fit, but another request waits.
        Outcome::Refused,
        Queued { ticket: START_US + 1, position: 2 },
    ];
    assert_eq!(outcomes(&reply), expected);
}

#[test]
fn acquire_returns_the_previously_declared_limit() {
    let mut semaphore = Timed::start();
    let mut before = |kind: &str, limit: i64| {
        semaphore.ok("acquire", &format!("{kind} {limit} client poll 600000 a 1 5000 try"))[2]
    };
    assert_eq!(before("initial", 4), -1);
    assert_eq!(before("declare_if_unset", 3), -1, "the limit of `initial` is not a declared one");
    assert_eq!(before("declare", 5), -1);
    assert_eq!(before("declare", 5), 5);
    assert_eq!(before("declare", 6), 5);
    assert_eq!(before("declare_if_unset", 7), 6);
    assert_eq!(before("initial", 8), 6, "the known declared limit is returned");
    assert_eq!(before("initial", 8), 6);
}

/// The test reads the short form of the reply, as the server returns it.
#[test]
fn one_short_reply_stands_for_several_requests_with_equal_results() {
    let mut semaphore = Timed::start();
    semaphore.ok("limit", "declare 9");
    let mut responses = |script: &str, arguments: &str| -> Vec<i64> {
        let reply = semaphore.call(script, arguments).unwrap();
        let head = if script == "acquire" { 3 } else { 2 };
        redis::from_redis_value::<Vec<i64>>(reply).unwrap()[head..].to_vec()
    };
    let head = "declare_if_unset 9 client poll 600000";
    let end = START_US / 1000 + 5 * SECOND;
    let token = responses("acquire", &format!("{head} a 1 5000 try"))[1];
    let all = responses("acquire", &format!("{head} b 1 5000 try c 1 5000 wait d 1 5000 try"));
    assert_eq!(all, [3, token + 1, end]);
    // The next request gets the number after these three.
    assert_eq!(responses("acquire", &format!("{head} e 1 5000 try")), [1, token + 4, end]);
    assert_eq!(responses("release", "return b c"), [3]);
    assert_eq!(responses("release", "return d"), [1]);
    assert_eq!(responses("release", "return b e"), [0, 1]);
    // If the expiries differ, the reply has no short form.
    let each = responses("acquire", &format!("{head} f 1 5000 try g 1 6000 try"));
    assert_eq!(each, [1, token + 5, end, 1, token + 6, end + SECOND]);
}

#[test]
fn acquire_returns_the_time_to_the_next_expiry_to_waiters() {
    let mut semaphore = Timed::start();
    let head = "declare_if_unset 2 client poll 600000";
    let wake_in = |semaphore: &mut Timed, requests: &str| {
        semaphore.ok("acquire", &format!("{head} {requests}"))[1]
    };
    // No request waits.
    assert_eq!(wake_in(&mut semaphore, "a 1 9000 try b 1 5000 try c 1 5000 try"), -1);
    assert_eq!(wake_in(&mut semaphore, "c 1 5000 wait"), 5 * SECOND);
    semaphore.pass(SECOND);
    assert_eq!(wake_in(&mut semaphore, "d 1 5000 wait"), 4 * SECOND);
    // Other requests wait, but no request of this call does.
    assert_eq!(wake_in(&mut semaphore, "a 1 9000 try"), -1);
    // No lease can expire.
    let mut paused = Timed::start();
    let reply = paused.ok("acquire", "initial 0 client poll 600000 e 1 5000 wait");
    assert_eq!(reply[1], -1);
}

#[test]
fn a_repeated_acquire_refreshes_the_lease_of_the_same_permit() {
    let mut semaphore = Timed::start();
    semaphore.acquire(5, "a 3 5000 try");
    semaphore.pass(SECOND);
    let again = semaphore.acquire_one(5, "a 3 5000 try");
    let end = semaphore.now() + 5 * SECOND;
    assert_eq!(again, Granted { token: START_US + 1_000_000, end });
    assert_eq!(semaphore.inspect().holders, [("a".to_owned(), 3, 5 * SECOND)]);
}

#[test]
fn a_waiter_gets_the_weight_and_the_lease_in_its_id() {
    let mut semaphore = Timed::start();
    semaphore.acquire(3, "a 3 5000 try b 1 9000 wait c 2 7000 wait");
    semaphore.pass(SECOND);
    semaphore.ok("release", "return a");
    let expected = [("c".to_owned(), 2, 7 * SECOND), ("b".to_owned(), 1, 9 * SECOND)];
    assert_eq!(semaphore.inspect().holders, expected);
}

/// An ID contains a weight and a lease. A request with another weight or lease therefore has
/// another ID.
#[test]
fn ids_with_another_weight_or_lease_are_other_requests() {
    let mut semaphore = Timed::start();
    semaphore.acquire(5, "a 3 5000 try");
    assert!(semaphore.acquire_one(5, "a 1 5000 try").is_granted());
    assert!(semaphore.acquire_one(5, "a 1 6000 try").is_granted());
    assert_eq!(semaphore.inspect().held, 5);
    semaphore.assert_weights_agree();
}

#[test]
fn release_returns_held_queued_or_unknown() {
    let mut semaphore = Timed::start();
    semaphore.acquire(2, "a 1 5000 try b 1 9000 try c 1 5000 wait d 2 5000 wait");
    semaphore.pass(5 * SECOND);
    // The lease of "a" has expired, and no call has removed it.
    let reply = semaphore.ok("release", "return b d nobody a c");
    assert_eq!(reply, [semaphore.now(), -1, 1, 2, 0, 0, 2]);
    let inspection = semaphore.inspect();
    assert_eq!((inspection.held, inspection.members, inspection.queued), (0, 0, 0));
}

#[test]
fn refresh_returns_the_new_expiry_or_lost_for_each_permit() {
    let mut semaphore = Timed::start();
    semaphore.acquire(3, "a 1 5000 try b 1 9000 try c 2 5000 wait");
    semaphore.pass(5 * SECOND);
    let reply = semaphore.ok("refresh", "b 9000 a 5000 c 5000 nobody 5000");
    let now = semaphore.now();
    assert_eq!(reply, [now, -1, now + 9 * SECOND, 0, 0, 0]);
}

#[test]
fn refresh_moves_a_permit_to_another_id() {
    let mut semaphore = Timed::start();
    semaphore.acquire(3, "a 2 5000 try b 1 5000 try");
    semaphore.pass(SECOND);
    let now = semaphore.now();
    let (old, keys) = (semaphore.id("a"), semaphore.keys.clone());
    let heir = id("P", "other", 2, 9000, "heir");
    let mut refresh = |arguments: [&str; 2]| -> Vec<i64> {
        let reply = semaphore.call_with("refresh", &keys, &arguments).unwrap();
        redis::from_redis_value(reply).unwrap()
    };
    // The lease of the new ID starts now.
    assert_eq!(refresh([&old, &heir]), [now, -1, now + 9 * SECOND]);
    assert_eq!(refresh([&old, "5000"]), [now, -1, 0]);
    assert_eq!(refresh([&old, &heir]), [now, -1, now + 9 * SECOND]);
    // The ID cannot be exchanged a second time.
    let late = id("P", "third", 2, 9000, "late");
    assert_eq!(refresh([&old, &late]), [now, -1, 0]);
    let expected = [("b".to_owned(), 1, 4 * SECOND), ("heir".to_owned(), 2, 9 * SECOND)];
    assert_eq!(semaphore.inspect().holders, expected);
    semaphore.assert_weights_agree();
}

#[test]
fn refresh_may_shorten_a_lease() {
    let mut semaphore = Timed::start();
    semaphore.acquire(1, "a 1 600000 try");
    let end = semaphore.now() + 5 * SECOND;
    assert_eq!(semaphore.ok("refresh", "a 5000")[2], end);
    semaphore.pass(5 * SECOND);
    assert!(semaphore.acquire_one(1, "b 1 5000 try").is_granted());
}

#[test]
fn refresh_grants_expired_permits_to_waiters() {
    let mut semaphore = Timed::start();
    semaphore.acquire(2, "a 1 5000 try b 1 9000 try c 1 7000 wait");
    semaphore.pass(5 * SECOND);
    semaphore.ok("refresh", "b 9000");
    assert_eq!(semaphore.inspect().holder_ids(), ["b", "c"].into());
}

#[test]
fn wake_returns_the_time_to_the_next_expiry_and_the_length_of_the_queue() {
    let mut semaphore = Timed::start();
    let now = semaphore.now();
    assert_eq!(semaphore.ok("wake", ""), [now, -1, 0]);
    semaphore.acquire(1, "a 1 5000 try");
    assert_eq!(semaphore.ok("wake", ""), [now, -1, 0]);
    semaphore.acquire(1, "b 1 9000 wait c 1 5000 wait");
    assert_eq!(semaphore.ok("wake", ""), [now, 5 * SECOND, 2]);
    semaphore.pass(5 * SECOND);
    assert_eq!(semaphore.ok("wake", ""), [now + 5 * SECOND, 9 * SECOND, 1]);
    semaphore.pass(9 * SECOND);
    assert_eq!(semaphore.ok("wake", ""), [now + 14 * SECOND, -1, 0]);
    semaphore.pass(5 * SECOND);
    assert_eq!(semaphore.ok("wake", ""), [now + 19 * SECOND, -1, 0]);
}

#[test]
fn the_longest_id_is_returned_unchanged() {
    let mut semaphore = Timed::start();
    let (client, nonce) = ("Az.-_09".repeat(15)[..100].to_owned(), "Az-_09zA".repeat(8));
    let mut listener = semaphore.listen(&client);
    let longest = id("P", &client, 4_294_967_295, 604_800_000, &nonce);
    assert_eq!(longest.len(), 2 + 101 + 11 + 10 + 64);
    let keys = semaphore.keys.clone();
    semaphore.acquire(4_294_967_295, "a 1 5000 try");
    let arguments = ["declare_if_unset", "4294967295", "60000", &longest, "wait"];
    semaphore.call_with("acquire", &keys, &arguments).unwrap();
    semaphore.ok("release", "return a");

    let end = semaphore.now() + 604_800 * SECOND;
    assert_eq!(listener.message(), format!("timed\n{longest} {} {end}", START_US + 2));
    let Value::Array(reply) = semaphore.call("inspect", "0 1 0 0").unwrap() else { panic!() };
    let reported = Value::BulkString(longest.clone().into_bytes());
    assert_eq!(reply[8], Value::Array(vec![reported, Value::Int(604_800 * SECOND)]));
    assert_eq!(semaphore.inspect().held, 4_294_967_295);
    let reply = semaphore.call_with("release", &keys, &["return", &longest]).unwrap();
    assert_eq!(redis::from_redis_value::<Vec<i64>>(reply).unwrap()[2..], [1]);
    semaphore.assert_weights_agree();
}
