//! Tests that no key stays forever, and that no key expires while it is in use.

use super::{Timed, outcomes};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
/// The minimum time for which a key outlives its use. After a use of more than a minute, the key
/// outlives the use by the length of the use.
const SLACK: i64 = MINUTE;
const STATE_SLACK: i64 = 2 * HOUR;

fn exist(semaphore: &mut Timed) -> Vec<&'static str> {
    let expiries = semaphore.expiries();
    let exists = |key: &&str| expiries[*key] != -2;
    ["permits", "queue", "clients", "state"].into_iter().filter(exists).collect()
}

#[test]
fn every_key_outlives_its_use_and_then_expires() {
    for (lease, heartbeat_timeout) in
        [(5000, 1000), (1000, 5000), (10 * MINUTE, 1000), (1, 10 * MINUTE)]
    {
        let mut semaphore = Timed::start();
        let client = format!("client poll {heartbeat_timeout}");
        let requests = format!("a 3 {lease} try b 2 {lease} wait");
        semaphore.acquire_for(3, &client, &requests);
        let now = semaphore.now();
        semaphore.assert_expiries(now);
        let used = lease.max(heartbeat_timeout);
        semaphore.pass(used + SLACK - 1);
        assert_eq!(
            exist(&mut semaphore).len(),
            4,
            "lease {lease}, heartbeat_timeout {heartbeat_timeout}"
        );
        semaphore.pass(used.max(SLACK));
        assert_eq!(
            exist(&mut semaphore),
            ["state"],
            "lease {lease}, heartbeat_timeout {heartbeat_timeout}"
        );
        semaphore.pass(STATE_SLACK);
        assert!(
            exist(&mut semaphore).is_empty(),
            "lease {lease}, heartbeat_timeout {heartbeat_timeout}"
        );
    }
}

/// A key that a later call creates again gets the semaphore's expiry, although that expiry has not
/// moved.
#[test]
fn recreated_keys_get_an_expiry() {
    let mut semaphore = Timed::start();
    let steps = [
        ("acquire", "declare_if_unset 1 client poll 9000 a 1 60000 try"),
        ("acquire", "declare_if_unset 1 client poll 9000 b 1 5000 wait"),
        ("release", "return a"),
        ("release", "return b"),
        ("acquire", "declare_if_unset 1 client poll 9000 c 1 5000 try d 1 5000 wait"),
        ("release", "return d"),
        ("acquire", "declare_if_unset 1 client poll 9000 d 1 5000 wait"),
        ("release", "return c d"),
        ("limit", "declare 2"),
        ("acquire", "declare_if_unset 1 client poll 9000 e 1 1 try"),
    ];
    for (script, arguments) in steps {
        semaphore.ok(script, arguments);
        let now = semaphore.now();
        semaphore.assert_expiries(now);
    }
    // The expired lease is removed, and the request is granted, in one call.
    semaphore.pass(5000);
    semaphore.acquire(2, "f 2 5000 try");
    let now = semaphore.now();
    semaphore.assert_expiries(now);
}

#[test]
fn keys_stay_while_permits_are_refreshed_and_heartbeats_are_sent() {
    let mut semaphore = Timed::start();
    semaphore.acquire_for(1, "client poll 10000", "a 1 10000 try b 1 10000 wait");
    for _ in 0..2000 {
        semaphore.pass(9000);
        assert!(semaphore.ok("refresh", "a 10000")[2] > 0);
        let reply = semaphore.ok("acquire", "declare_if_unset 1 client poll 10000 b 1 10000 wait");
        assert_eq!(outcomes(&reply)[0].position(), 1);
    }
    let now = semaphore.now();
    semaphore.assert_expiries(now);
}

#[test]
fn refreshes_rarely_move_the_expiry_of_keys() {
    let mut semaphore = Timed::start();
    semaphore.acquire(1, "a 1 10000 try");
    // The permit is refreshed for ten minutes.
    let ((), commands) = semaphore.commands_of(|semaphore| {
        for _ in 0..300 {
            semaphore.pass(2000);
            semaphore.ok("refresh", "a 10000");
        }
    });
    assert!(commands.count("pexpireat") <= 4 * 11, "{commands:?}");
    assert_eq!(commands.count("zadd"), 300);
}

#[test]
fn the_expiry_of_keys_is_never_moved_to_an_earlier_time() {
    let mut semaphore = Timed::start();
    semaphore.acquire(3, "a 1 3600000 try heavy 3 1000 wait");
    let before = semaphore.expiries();
    for (script, arguments) in [
        ("acquire", "declare_if_unset 3 client poll 1 b 1 1 try c 1 1 wait"),
        ("refresh", "a 1"),
        ("limit", "add 0 more"),
        ("limit", "clear"),
        ("limit", "declare 3"),
        ("wake", ""),
        ("release", "return c"),
    ] {
        semaphore.ok(script, arguments);
        for (key, ttl) in semaphore.expiries() {
            let is_kept = key == "state" && ttl == -1;
            assert!(ttl >= before[&key] || is_kept, "{key} after {script} {arguments}");
        }
    }
}

#[test]
fn a_runtime_limit_does_not_expire_until_it_is_cleared() {
    let ways = [
        ("limit", "set 3"),
        ("limit", "initial 3"),
        ("limit", "add 3 more"),
        ("release", "forget two"),
        ("acquire", "initial 3 client poll 1000 new 1 1000 try"),
    ];
    for (script, arguments) in ways {
        // The first round uses a new semaphore. In the second round the state has an expiry.
        for is_used in [false, true] {
            let mut semaphore = Timed::start();
            if is_used {
                semaphore.ok("limit", "set 9");
                semaphore.ok("limit", "clear");
                assert!(semaphore.expiries()["state"] > 0);
            }
            if script == "release" {
                semaphore.acquire(5, "two 2 1000 try");
            }
            semaphore.ok(script, arguments);
            assert_eq!(semaphore.expiries()["state"], -1, "{script} {arguments}");
            semaphore.pass(365 * 24 * HOUR);
            assert_eq!(exist(&mut semaphore), ["state"], "{script} {arguments}");
            assert_eq!(semaphore.inspect().runtime, 3, "{script} {arguments}");
            // Later calls do not give the key an expiry.
            semaphore.acquire(9, "a 3 1000 try");
            semaphore.ok("release", "return a");
            assert_eq!(semaphore.expiries()["state"], -1, "{script} {arguments}");
            semaphore.ok("limit", "clear");
            let left = semaphore.expiries()["state"];
            assert!((1..=STATE_SLACK + 2 * MINUTE).contains(&left), "{left}");
            semaphore.pass(left + 1);
            assert!(exist(&mut semaphore).is_empty(), "{script} {arguments}");
        }
    }
}

#[test]
fn the_state_outlives_a_long_lease_after_the_limit_is_cleared() {
    let mut semaphore = Timed::start();
    semaphore.ok("limit", "set 3");
    semaphore.acquire(3, "a 2 36000000 try");
    semaphore.ok("limit", "clear");
    semaphore.ok("limit", "declare 3");
    let now = semaphore.now();
    semaphore.assert_expiries(now);
    semaphore.pass(10 * HOUR - 1);
    assert_eq!(semaphore.inspect().holders, [("a".to_owned(), 2, 1)]);
    assert_eq!(semaphore.inspect().limit, 3);
}

#[test]
fn weights_do_not_outlive_their_permits() {
    for limit in ["declare 9", "set 9"] {
        let mut semaphore = Timed::start();
        semaphore.ok("limit", limit);
        semaphore.ok("limit", "add 0 mark");
        semaphore.acquire(9, "a 4 1000 try b 5 1000 try");
        semaphore.pass(HOUR);
        assert_eq!(exist(&mut semaphore), ["state"]);
        let inspection = semaphore.inspect();
        assert_eq!((inspection.held, inspection.limit), (0, 9));
        let token = semaphore.acquire_one(9, "c 9 1000 try").token();
        assert!(token > inspection.last);
        semaphore.assert_weights_agree();
        assert_eq!(semaphore.inspect().limit, 9);
        assert_eq!(semaphore.inspect().held, 9);
    }
}

/// One call removes the only permit and the only waiter, and adds another permit and another
/// waiter.
#[test]
fn a_key_whose_only_entry_is_replaced_in_one_call_still_expires() {
    let mut semaphore = Timed::start();
    semaphore.acquire_for(1, "a poll 1000", "a 1 5000 try");
    semaphore.acquire_for(1, "b poll 1000", "b 1 5000 wait");
    // The lease has expired, and the waiter's client is dead.
    semaphore.pass(5000);
    let requests = "c 1 30000 wait d 1 30000 wait";
    let outcomes = semaphore.acquire_for(1, "c poll 30000", requests);
    assert!(outcomes[0].is_granted());
    assert_eq!(outcomes[1].position(), 1);
    let now = semaphore.now();
    semaphore.assert_expiries(now);
    let expire: Vec<bool> = semaphore.dump().into_iter().map(|(_, expires)| expires).collect();
    assert_eq!(expire, [true; 4]);
}

/// If a call empties the queue while its slot is migrating, the node considers the queue as already
/// moved. The call still succeeds.
#[test]
fn the_expiry_of_the_remaining_keys_is_moved_while_their_slot_is_migrating() {
    let (mut semaphore, mut moving) = Timed::start_moving();
    semaphore.acquire_for(1, "client poll 1000", "a 1 1000 try b 1 600000 wait");
    // "b" replaces the ID of the permit, and leaves the queue.
    let arguments = [semaphore.id("a"), semaphore.id("b")];
    let keys = semaphore.keys.clone();
    let refresh = |scripts: &mut test_support::scripts::Scripts| {
        scripts.call_with("refresh", &keys, &arguments)
    };
    moving.response(&mut semaphore.scripts.raw, refresh).unwrap();
    assert_eq!(moving.served, 1);
    assert_eq!(exist(&mut semaphore), ["permits", "clients", "state"]);
    let now = semaphore.now();
    semaphore.assert_expiries(now);
}
