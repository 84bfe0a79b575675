//! Tests that `inspect` returns everything and changes nothing.

use redis::Value;

use super::{Inspection, START_US, Scripts, Timed};

fn page(semaphore: &mut Scripts, arguments: &str) -> Inspection {
    redis::from_redis_value(semaphore.call("inspect", arguments).unwrap()).unwrap()
}

fn entry(id: &str, weight: i64, ms: i64) -> (String, i64, i64) {
    (id.to_owned(), weight, ms)
}

#[test]
fn inspect_of_an_unused_semaphore_returns_nothing_and_creates_no_keys() {
    let mut semaphore = Timed::start();
    let now = semaphore.now();
    let inspection = semaphore.inspect();
    let expected = Inspection {
        received: Vec::new(),
        now,
        limit: -1,
        declared: -1,
        runtime: -1,
        held: 0,
        members: 0,
        queued: 0,
        last: 0,
        holders: vec![],
        waiters: vec![],
    };
    assert_eq!(inspection, expected);
    let keys = semaphore.keys.join(" ");
    assert_eq!(semaphore.command::<i64>(&format!("EXISTS {keys}")), 0);
}

#[test]
fn inspect_returns_holders_and_waiters_with_weights_and_times() {
    let mut semaphore = Timed::start();
    semaphore.ok("limit", "declare 9");
    semaphore.ok("limit", "set 6");
    semaphore.acquire(6, "late 1 90000 try heavy 3 60000 try soon 2 30000 try");
    semaphore.acquire(6, "w1 4 60000 wait");
    semaphore.pass(1000);
    semaphore.acquire(6, "w2 1 60000 wait");
    semaphore.pass(500);
    let expected = Inspection {
        received: vec![599_500; 2],
        now: semaphore.now(),
        limit: 6,
        declared: 9,
        runtime: 6,
        held: 6,
        members: 3,
        queued: 2,
        last: START_US + 1_000_000,
        holders: vec![
            entry("soon", 2, 28_500),
            entry("heavy", 3, 58_500),
            entry("late", 1, 88_500),
        ],
        waiters: vec![entry("w1", 4, 1500), entry("w2", 1, 500)],
    };
    assert_eq!(semaphore.inspect(), expected);
}

#[test]
fn the_reply_of_inspect_has_eight_integers_and_then_two_lists() {
    let mut semaphore = Timed::start();
    semaphore.acquire(1, "a 1 60000 try b 1 60000 wait");
    let Value::Array(reply) = semaphore.call("inspect", "0 9 0 9").unwrap() else { panic!() };
    assert_eq!(reply.len(), 10);
    assert!(reply[..8].iter().all(|value| matches!(value, Value::Int(_))), "{reply:?}");
    let [Value::Array(holders), Value::Array(waiters)] = &reply[8..] else { panic!("{reply:?}") };
    let [Value::BulkString(_), Value::Int(60_000)] = holders[..] else { panic!("{holders:?}") };
    let [Value::BulkString(_), Value::Int(0), Value::Int(600_000)] = waiters[..] else {
        panic!("{waiters:?}");
    };
}

fn ids(entries: &[(String, i64, i64)]) -> Vec<&str> {
    entries.iter().map(|(id, _, _)| id.as_str()).collect()
}

#[test]
fn holders_and_waiters_are_paged_separately() {
    let mut semaphore = Timed::start();
    semaphore.acquire(9, "h0 1 1000 try h1 2 2000 try h2 3 3000 try h3 1 4000 try h4 2 5000 try");
    semaphore.acquire(9, "w0 5 1000 wait w1 1 1000 wait w2 2 1000 wait");
    let cases: [(&str, &[&str], &[&str]); 8] = [
        ("0 0 0 0", &[], &[]),
        ("0 2 0 1", &["h0", "h1"], &["w0"]),
        ("2 2 1 1", &["h2", "h3"], &["w1"]),
        ("4 2 2 9", &["h4"], &["w2"]),
        ("5 2 3 9", &[], &[]),
        ("0 1000 0 1000", &["h0", "h1", "h2", "h3", "h4"], &["w0", "w1", "w2"]),
        ("9007199254740991 1000 9007199254740991 1000", &[], &[]),
        ("3 1 0 2", &["h3"], &["w0", "w1"]),
    ];
    for (arguments, holders, waiters) in cases {
        let inspection = page(&mut semaphore, arguments);
        assert_eq!(ids(&inspection.holders), holders, "{arguments}");
        assert_eq!(ids(&inspection.waiters), waiters, "{arguments}");
        let totals = (inspection.held, inspection.members, inspection.queued);
        assert_eq!(totals, (9, 5, 3), "{arguments}");
    }
    let third = page(&mut semaphore, "2 1 2 1");
    assert_eq!((third.holders[0].1, third.waiters[0].1), (3, 2));
}

#[test]
fn pages_of_a_thousand_together_contain_all_holders_and_waiters() {
    let mut semaphore = Timed::start();
    for call in 0..3 {
        let requests = (0..1000).map(|number| format!("id{call}-{number} 2 60000 wait"));
        semaphore.acquire(3000, &requests.collect::<Vec<_>>().join(" "));
    }
    let (mut holders, mut waiters) = (Vec::new(), Vec::new());
    for page_number in 0..3 {
        let from = page_number * 1000;
        let inspection = page(&mut semaphore, &format!("{from} 1000 {from} 1000"));
        assert_eq!((inspection.held, inspection.members, inspection.queued), (3000, 1500, 1500));
        holders.extend(inspection.holders);
        waiters.extend(inspection.waiters);
    }
    assert_eq!((holders.len(), waiters.len()), (1500, 1500));
    assert!(holders.iter().chain(&waiters).all(|(_, weight, _)| *weight == 2));
    let mut all: Vec<_> = holders.iter().chain(&waiters).map(|(id, _, _)| id).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 3000);
}

#[test]
fn idempotency_keys_do_not_count_as_holders() {
    let mut semaphore = Timed::start();
    semaphore.ok("limit", "add 4 one");
    semaphore.acquire(4, "a 3 90000 try b 1 30000 try");
    semaphore.ok("limit", "add 1 two");
    let inspection = semaphore.inspect();
    assert_eq!(ids(&inspection.holders), ["b", "a"]);
    assert_eq!((inspection.held, inspection.members), (4, 2));
    assert_eq!(page(&mut semaphore, "1 2 0 0").holders, [entry("a", 3, 90_000)]);
}

#[test]
fn inspect_omits_expired_leases_that_no_call_has_removed() {
    for weights in [[1, 1], [3, 2]] {
        let [ended, left] = weights;
        let mut semaphore = Timed::start();
        semaphore.acquire(9, &format!("ended {ended} 1000 try a {left} 2000 try"));
        semaphore.pass(1000);
        let inspection = semaphore.inspect();
        assert_eq!((inspection.held, inspection.members), (left, 1));
        assert_eq!(inspection.holders, [entry("a", left, 1000)]);
        let permits = semaphore.key("permits");
        // The members are the two permits and `*`.
        assert_eq!(semaphore.command::<i64>(&format!("ZCARD {permits}")), 3);
    }
}

#[test]
fn inspect_subtracts_at_most_1000_expired_leases_from_the_held_weight() {
    let mut semaphore = Timed::start();
    for call in 0..2 {
        let requests = (0..1000).map(|number| format!("id{call}-{number} 1 1000 try"));
        semaphore.acquire(5000, &requests.collect::<Vec<_>>().join(" "));
    }
    semaphore.pass(1000);
    // `inspect` examines at most 1,000 leases.
    assert_eq!(semaphore.inspect().held, 1000);
    // This call removes 1,000 expired leases.
    semaphore.acquire(5000, "heavy 7 60000 try");
    assert_eq!(semaphore.inspect().held, 7);
    assert_eq!(semaphore.inspect().holders, [entry("heavy", 7, 60_000)]);
}

#[test]
fn inspect_changes_nothing_even_after_the_loss_of_a_key() {
    for lost in ["", "permits", "queue", "clients", "state"] {
        let mut semaphore = Timed::start();
        semaphore.ok("limit", "add 4 mark");
        semaphore.acquire(4, "a 3 1000 try b 1 60000 try c 2 60000 wait d 1 60000 wait");
        semaphore.pass(1000);
        if !lost.is_empty() {
            semaphore.lose(lost);
        }
        let (before, expiries) = (semaphore.dump(), semaphore.expiries());
        let ((), commands) = semaphore.commands_of(|semaphore| {
            semaphore.inspect();
        });
        assert_eq!(semaphore.dump(), before, "without {lost}");
        assert_eq!(semaphore.expiries(), expiries, "without {lost}");
        let writes = ["zadd", "zrem", "hset", "hdel", "unlink", "pexpireat", "persist", "publish"];
        assert!(writes.iter().all(|write| commands.count(write) == 0), "{commands:?}");
    }
}

#[test]
fn inspect_returns_how_long_the_client_of_a_waiter_counts_as_alive() {
    let mut semaphore = Timed::start();
    semaphore.acquire(1, "a 1 60000 try");
    semaphore.acquire_for(1, "one poll 5000", "b 1 60000 wait");
    semaphore.acquire_for(1, "two poll 9000", "c 1 60000 wait");
    semaphore.pass(6000);
    let inspection = semaphore.inspect();
    assert_eq!(inspection.waiters, [entry("b", 1, 6000), entry("c", 1, 6000)]);
    assert_eq!(inspection.received, [-1, 3000]);
    semaphore.lose("clients");
    assert_eq!(semaphore.inspect().received, [-1, -1]);
}

/// If the nonce does not contain the head start, the head start counts as waiting time.
#[test]
fn a_head_start_in_the_id_does_not_count_as_waiting_time() {
    let mut semaphore = Timed::start();
    semaphore.acquire(1, "a 1 60000 try");
    semaphore.acquire(1, "first 1 60000 wait");
    semaphore.pass(2000);
    semaphore.acquire(1, "headstart60000-b 1 60000 +60000 c 1 60000 +60000");
    // If the ID claims a longer head start than requested, the waiting time is not negative.
    semaphore.acquire(1, "headstart9999999999999999999999-d 1 60000 wait headstart-e 1 60000 wait");
    // A client's name does not count as a head start.
    semaphore.acquire_for(1, "headstart400-x poll 600000", "f 1 60000 wait");
    semaphore.pass(500);
    let reported = [
        entry("headstart60000-b", 1, 500),
        entry("c", 1, 60_500),
        entry("first", 1, 2500),
        entry("headstart9999999999999999999999-d", 1, 0),
        entry("headstart-e", 1, 500),
        entry("f", 1, 500),
    ];
    assert_eq!(semaphore.inspect().waiters, reported);
}
