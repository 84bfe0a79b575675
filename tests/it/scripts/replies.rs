//! Every reply that the head comments name, to the last number: the clock stands still.

use redis::Value;

use super::{Granted, Outcome, Queued, START_US, Timed, outcomes};

const SECOND: i64 = 1000;

#[test]
fn acquire_grants_queues_and_refuses() {
    let mut semaphore = Timed::start();
    let (now, end) = (semaphore.now(), semaphore.now() + 5 * SECOND);
    let head = "declared 2 client poll 600000";
    let reply = semaphore.ok(
        "acquire",
        &format!("{head} a 1 5000 try b 2 5000 try c 2 5000 wait d 1 5000 try e 1 5000 wait"),
    );
    assert_eq!(reply[..2], [now, 5 * SECOND]);
    let expected = [
        Granted { token: START_US, end },
        // It does not fit.
        Outcome::Refused,
        Queued { ticket: START_US + 1, position: 1 },
        // It would fit, but somebody waits.
        Outcome::Refused,
        Queued { ticket: START_US + 2, position: 2 },
    ];
    assert_eq!(outcomes(&reply), expected);
}

/// The short form, as it comes from the server.
#[test]
fn one_answer_stands_for_all_of_several_requests() {
    let mut semaphore = Timed::start();
    semaphore.ok("limit", "declare 9");
    let mut answers = |script: &str, arguments: &str| -> Vec<i64> {
        let reply = semaphore.call(script, arguments).unwrap();
        redis::from_redis_value::<Vec<i64>>(reply).unwrap()[2..].to_vec()
    };
    let head = "declared 9 client poll 600000";
    let end = START_US / 1000 + 5 * SECOND;
    let token = answers("acquire", &format!("{head} a 1 5000 try"))[1];
    let all = answers("acquire", &format!("{head} b 1 5000 try c 1 5000 wait d 1 5000 try"));
    assert_eq!(all, [3, token + 1, end]);
    // The next number is that of the request after the last of them.
    assert_eq!(answers("acquire", &format!("{head} e 1 5000 try")), [1, token + 4, end]);
    assert_eq!(answers("release", "return b c"), [3]);
    assert_eq!(answers("release", "return d"), [1]);
    assert_eq!(answers("release", "return b e"), [0, 1]);
    // Not where they end at different times.
    let each = answers("acquire", &format!("{head} f 1 5000 try g 1 6000 try"));
    assert_eq!(each, [1, token + 5, end, 1, token + 6, end + SECOND]);
}

#[test]
fn acquire_tells_those_who_wait_when_the_next_lease_ends() {
    let mut semaphore = Timed::start();
    let head = "declared 2 client poll 600000";
    let wake_in = |semaphore: &mut Timed, requests: &str| {
        semaphore.ok("acquire", &format!("{head} {requests}"))[1]
    };
    // Nobody waits.
    assert_eq!(wake_in(&mut semaphore, "a 1 9000 try b 1 5000 try c 1 5000 try"), -1);
    assert_eq!(wake_in(&mut semaphore, "c 1 5000 wait"), 5 * SECOND);
    semaphore.pass(SECOND);
    assert_eq!(wake_in(&mut semaphore, "d 1 5000 wait"), 4 * SECOND);
    // Others wait, but not those of this call.
    assert_eq!(wake_in(&mut semaphore, "a 1 9000 try"), -1);
    // No lease is there to end: the limit is 0.
    semaphore.ok("release", "return a b c d");
    semaphore.ok("limit", "set 0");
    assert_eq!(wake_in(&mut semaphore, "e 1 5000 wait"), -1);
}

#[test]
fn acquire_again_renews_the_lease_and_keeps_the_weight() {
    let mut semaphore = Timed::start();
    semaphore.acquire(5, "a 3 5000 try");
    semaphore.pass(SECOND);
    // Another weight is not believed: the permit is the one that was granted.
    let again = semaphore.acquire_one(5, "a 1 9000 try");
    let end = semaphore.now() + 9 * SECOND;
    assert_eq!(again, Granted { token: START_US + 1_000_000, end });
    assert_eq!(semaphore.inspect().holders, [("a".to_owned(), 3, 9 * SECOND)]);
}

#[test]
fn a_queued_request_may_change_its_weight_and_lease() {
    let mut semaphore = Timed::start();
    semaphore.acquire(3, "a 3 5000 try b 3 5000 wait");
    semaphore.acquire(3, "b 1 9000 wait c 2 7000 wait");
    semaphore.ok("release", "return a");
    let end = semaphore.now() + 9 * SECOND;
    let inspection = semaphore.inspect();
    let left: Vec<_> = inspection.holders.iter().map(|(id, w, left)| (&**id, *w, *left)).collect();
    assert_eq!(left, [("c", 2, 7 * SECOND), ("b", 1, end - semaphore.now())]);
}

#[test]
fn release_tells_held_queued_and_unknown() {
    let mut semaphore = Timed::start();
    semaphore.acquire(2, "a 1 5000 try b 1 9000 try c 1 5000 wait d 2 5000 wait");
    semaphore.pass(5 * SECOND);
    // The lease of "a" has ended, though nothing has purged it.
    let reply = semaphore.ok("release", "return b d nobody a c");
    assert_eq!(reply, [semaphore.now(), -1, 1, 2, 0, 0, 2]);
    let inspection = semaphore.inspect();
    assert_eq!((inspection.held, inspection.members, inspection.queued), (0, 0, 0));
}

#[test]
fn refresh_tells_the_new_end_and_what_is_lost() {
    let mut semaphore = Timed::start();
    semaphore.acquire(3, "a 1 5000 try b 1 9000 try c 2 5000 wait");
    semaphore.pass(5 * SECOND);
    let reply = semaphore.ok("refresh", "b 60000 a 5000 c 5000 nobody 5000");
    let now = semaphore.now();
    assert_eq!(reply, [now, -1, now + 60 * SECOND, 0, 0, 0]);
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
fn refresh_hands_off_what_ended_meanwhile() {
    let mut semaphore = Timed::start();
    semaphore.acquire(2, "a 1 5000 try b 1 9000 try c 1 7000 wait");
    semaphore.pass(5 * SECOND);
    semaphore.ok("refresh", "b 9000");
    assert_eq!(semaphore.inspect().holder_ids(), ["b", "c"].into());
}

#[test]
fn wake_tells_the_next_end_and_the_length_of_the_queue() {
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

/// Any bytes but blanks and control characters: they come back as they were given, everywhere.
#[test]
fn an_id_of_any_bytes_comes_back_as_it_was_given() {
    let mut semaphore = Timed::start();
    let mut listener = semaphore.listen("channel");
    let mut id = b"%s%d{}'\"\\[^-\xff\xfe\x80".to_vec();
    id.resize(256, 0xc3);
    let keys = semaphore.keys.clone();
    let head =
        ["declared", "2", "channel", "publish", "60000"].map(|word| word.as_bytes().to_vec());
    let holder = ["a", "2", "5000", "try"].map(|word| word.as_bytes().to_vec());
    let waiter = [id.clone(), b"2".into(), b"5000".into(), b"wait".into()];
    let arguments = [&head[..], &holder, &waiter].concat();
    semaphore.call_with("acquire", &keys, &arguments).unwrap();
    semaphore.ok("release", "return a");

    let (_, _, message): (String, String, Vec<u8>) = listener.receive();
    let end = semaphore.now() + 5 * SECOND;
    let numbers = format!(" {} {end}", START_US + 2);
    assert_eq!(message, [b"timed\n", id.as_slice(), numbers.as_bytes()].concat());
    let Value::Array(reply) = semaphore.call("inspect", "0 1 0 0").unwrap() else { panic!() };
    let (weight, left) = (Value::Int(2), Value::Int(5 * SECOND));
    assert_eq!(reply[8], Value::Array(vec![Value::BulkString(id.clone()), weight, left]));
    let arguments = [b"return".to_vec(), id];
    let reply = semaphore.call_with("release", &keys, &arguments).unwrap();
    assert_eq!(redis::from_redis_value::<Vec<i64>>(reply).unwrap()[2..], [1]);
    semaphore.assert_weights_agree();
}
