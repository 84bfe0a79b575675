//! The end of leases, and a server's clock that steps.

use super::{Granted, Outcome, Timed};

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

#[test]
fn an_ended_lease_is_lost_whether_purged_or_not() {
    for is_purged in [false, true] {
        let mut semaphore = Timed::start();
        semaphore.acquire(2, "a 1 5000 try b 1 60000 try");
        semaphore.pass(4999);
        let end = semaphore.now() + 5000;
        assert_eq!(semaphore.ok("refresh", "a 5000")[2], end);
        semaphore.pass(5000);
        if is_purged {
            // This one needs the room.
            assert!(semaphore.acquire_one(2, "c 1 5000 try").is_granted());
        }
        let permits = semaphore.key("permits");
        let members: i64 = semaphore.command(&format!("ZCARD {permits}"));
        assert_eq!(members, 2);
        assert_eq!(semaphore.ok("refresh", "a 5000 b 5000")[2..], [0, semaphore.now() + 5000]);
        assert_eq!(semaphore.ok("release", "return a")[2..], [0]);
        assert_eq!(semaphore.ok("refresh", "a 5000")[2..], [0]);
    }
}

#[test]
fn an_id_whose_lease_ended_starts_anew() {
    let mut semaphore = Timed::start();
    let first = semaphore.acquire_one(3, "a 3 5000 try");
    semaphore.pass(5000);
    let end = semaphore.now() + 7000;
    let again = semaphore.acquire_one(3, "a 1 7000 try");
    assert_eq!(again, Granted { token: first.token() + 5_000_000, end });
    // Its old weight has not stayed.
    assert_eq!(semaphore.inspect().held, 1);
    semaphore.assert_weights_agree();
    // It goes behind others like any new one.
    semaphore.acquire(3, "b 3 60000 wait");
    semaphore.pass(7000);
    assert_eq!(semaphore.acquire_one(3, "a 1 7000 try"), Outcome::Refused);
    assert_eq!(semaphore.inspect().holder_ids(), ["b"].into());
}

#[test]
fn wake_hands_off_what_ended() {
    let mut semaphore = Timed::start();
    semaphore.acquire(3, "a 2 5000 try b 1 9000 try");
    semaphore.acquire(3, "c 1 60000 wait d 1 60000 wait e 1 60000 wait");
    semaphore.pass(4999);
    assert_eq!(semaphore.ok("wake", "")[1..], [1, 3]);
    semaphore.pass(1);
    assert_eq!(semaphore.ok("wake", "")[1..], [4000, 1]);
    assert_eq!(semaphore.inspect().holder_ids(), ["b", "c", "d"].into());
    semaphore.assert_weights_agree();
}

/// The dead holder's lease seems to end an hour late, until it is cut to the longest lease in use.
#[test]
fn after_a_step_back_a_dead_holder_keeps_its_place_no_longer_than_the_longest_lease() {
    // A second permit's lease is the longest in use; or a waiter's weight asks for all.
    for (holders, waiter, longest) in [
        ("dead 1 5000 try gone 1 5000 try", "b 2 60000 wait", 5000),
        ("dead 1 5000 try other 1 30000 try", "b 1 60000 wait", 30_000),
    ] {
        let mut semaphore = Timed::start();
        semaphore.acquire(2, holders);
        semaphore.pass(-HOUR);
        assert_eq!(semaphore.acquire_one(2, waiter).position(), 1);
        let wake_in = semaphore.ok("wake", "")[1];
        assert!((1..=longest).contains(&wake_in), "{wake_in}");
        semaphore.pass(longest);
        assert_eq!(semaphore.ok("wake", "")[2], 0);
        assert_eq!(semaphore.inspect().holder_ids(), ["b"].into());
    }
}

#[test]
fn after_a_step_back_a_try_gets_in_after_the_longest_lease() {
    let mut semaphore = Timed::start();
    semaphore.acquire(1, "dead 1 5000 try");
    semaphore.pass(-DAY);
    assert_eq!(semaphore.acquire_one(1, "b 1 5000 try"), Outcome::Refused);
    semaphore.pass(5000);
    assert!(semaphore.acquire_one(1, "b 1 5000 try").is_granted());
}

#[test]
fn after_a_step_back_holders_keep_their_permits() {
    let mut semaphore = Timed::start();
    semaphore.acquire(2, "a 2 60000 try b 1 60000 wait");
    semaphore.pass(-HOUR);
    semaphore.ok("wake", "");
    for _ in 0..10 {
        semaphore.pass(20_000);
        let end = semaphore.now() + 60_000;
        assert_eq!(semaphore.ok("refresh", "a 60000")[2], end);
    }
    assert_eq!(semaphore.inspect().holders, [("a".to_owned(), 2, 60_000)]);
}

/// Once the state was lost, nobody knows what the longest lease was: seven days is the largest.
#[test]
fn after_a_step_back_and_a_lost_state_leases_are_not_cut_too_short() {
    let mut semaphore = Timed::start();
    semaphore.acquire(1, "a 1 600000 try");
    semaphore.lose("state");
    assert_eq!(semaphore.acquire_one(1, "b 1 1 wait").position(), 1);
    assert_eq!(semaphore.inspect().holders, [("a".to_owned(), 1, 600_000)]);
    semaphore.pass(590_000);
    assert_eq!(semaphore.ok("wake", "")[1], 10_000);
}

#[test]
fn a_step_forward_ends_leases_early() {
    let mut semaphore = Timed::start();
    semaphore.acquire(1, "a 1 60000 try b 1 60000 wait");
    semaphore.pass(70_000);
    assert_eq!(semaphore.ok("refresh", "a 60000")[2..], [0]);
    assert_eq!(semaphore.inspect().holder_ids(), ["b"].into());
}

#[test]
fn tokens_grow_over_every_step_of_the_clock() {
    let mut semaphore = Timed::start();
    let mut last = 0;
    let steps = [0, 1, DAY, -HOUR, 0, -2 * DAY, 5, 1000, HOUR, DAY, 3 * DAY, 30 * DAY];
    for (number, step) in steps.into_iter().enumerate() {
        semaphore.pass(step);
        let token = semaphore.acquire_one(100, &format!("id{number} 1 5000 try")).token();
        assert!(token > last, "{token} after {last}, step {step}");
        last = token;
        let ticket = semaphore.acquire(100, "all 100 5000 wait");
        let ticket = match ticket[0] {
            Outcome::Queued { ticket, .. } => ticket,
            granted => granted.token(),
        };
        assert!(ticket > last, "{ticket} after {last}, step {step}");
        last = ticket;
        semaphore.ok("release", "return all");
    }
}

#[test]
fn tokens_grow_when_the_clock_steps_back_while_nobody_is_there() {
    let mut semaphore = Timed::start();
    let first = semaphore.acquire_one(1, "a 1 5000 try").token();
    semaphore.ok("release", "return a");
    semaphore.acquire_one(1, "b 1 5000 try");
    semaphore.pass(90 * 60_000);
    let state = semaphore.key("state");
    let keys = semaphore.keys.join(" ");
    assert_eq!(semaphore.command::<i64>(&format!("EXISTS {keys}")), 1);
    assert_eq!(semaphore.command::<i64>(&format!("EXISTS {state}")), 1);
    semaphore.pass(-HOUR - 90 * 60_000);
    let later = semaphore.acquire_one(1, "c 1 5000 try").token();
    assert!(later > first + 1, "{later} after {first}");
}

/// When even the state has expired, the clock alone keeps the tokens growing.
#[test]
fn tokens_grow_when_all_keys_have_expired() {
    let mut semaphore = Timed::start();
    let first = semaphore.acquire_one(1, "a 1 5000 try").token();
    semaphore.pass(DAY);
    let keys = semaphore.keys.join(" ");
    assert_eq!(semaphore.command::<i64>(&format!("EXISTS {keys}")), 0);
    let later = semaphore.acquire_one(1, "b 1 5000 try").token();
    assert_eq!(later, first + DAY * 1000);
}

/// The sequence is ahead of the clock by a day: it must be kept until the clock has caught up.
#[test]
fn the_sequence_is_kept_while_it_is_ahead_of_the_clock() {
    let mut semaphore = Timed::start();
    let first = semaphore.acquire_one(1, "a 1 5000 try").token();
    semaphore.pass(-DAY);
    assert_eq!(semaphore.acquire_one(1, "a 1 5000 try").token(), first + 1);
    semaphore.ok("release", "return a");
    semaphore.pass(DAY - HOUR);
    assert_eq!(semaphore.acquire_one(1, "b 1 5000 try").token(), first + 2);
}
