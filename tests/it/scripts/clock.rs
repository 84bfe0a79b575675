//! Tests of the expiry of leases, and of steps of the server's clock.

use super::{Granted, Outcome, START_US, Timed};
use test_support::scripts::id;

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

#[test]
fn an_expired_permit_is_lost_whether_or_not_a_call_has_removed_it() {
    for is_purged in [false, true] {
        let mut semaphore = Timed::start();
        semaphore.acquire(2, "a 1 5000 try b 1 60000 try");
        semaphore.pass(4999);
        let end = semaphore.now() + 5000;
        assert_eq!(semaphore.ok("refresh", "a 5000")[2], end);
        semaphore.pass(5000);
        if is_purged {
            // This request makes the script remove the expired lease.
            assert!(semaphore.acquire_one(2, "c 1 5000 try").is_granted());
        }
        assert_eq!(semaphore.scores("permits").len(), 2);
        assert_eq!(semaphore.ok("refresh", "a 5000 b 5000")[2..], [0, semaphore.now() + 5000]);
        assert_eq!(semaphore.ok("release", "return a")[2..], [0]);
        assert_eq!(semaphore.ok("refresh", "a 5000")[2..], [0]);
    }
}

/// After `refresh` has returned that a permit is lost, the permit stays lost, even if the clock
/// steps back to a time before the permit's expiry.
#[test]
fn a_permit_reported_lost_stays_lost_when_the_clock_steps_back() {
    for ask in ["p 1000", "p 1", "p q"] {
        let mut semaphore = Timed::start();
        assert!(semaphore.acquire_one(2, "p 1 1000 try").is_granted());
        semaphore.pass(1000);
        let next = id("N", "other", 1, 9000, "q");
        semaphore.ids.insert("q".to_owned(), next.clone());
        let ask = ask.replace('q', &next);
        assert_eq!(semaphore.ok("refresh", &ask)[2..], [0], "{ask}");
        for step in [-1, -500, -DAY] {
            semaphore.pass(step);
            assert_eq!(semaphore.ok("refresh", &ask)[2..], [0], "{ask}");
            assert_eq!(semaphore.ok("refresh", "q 9000")[2..], [0], "{ask}");
            assert_eq!(semaphore.ok("release", "return p")[2..], [0], "{ask}");
            assert_eq!(semaphore.inspect().held, 0, "{ask}");
        }
        semaphore.assert_weights_agree();
    }
}

/// A permit is moved to another ID, and then expires. The test refreshes both IDs.
#[test]
fn an_adopted_permit_reported_lost_stays_lost_when_the_clock_steps_back() {
    let mut semaphore = Timed::start();
    semaphore.acquire(2, "p 1 9000 try");
    let next = id("N", "other", 1, 1000, "q");
    semaphore.ids.insert("q".to_owned(), next.clone());
    let take_over = format!("p {next}");
    assert_eq!(semaphore.ok("refresh", &take_over)[2..], [semaphore.now() + 1000]);
    semaphore.pass(1000);
    assert_eq!(semaphore.ok("refresh", &take_over)[2..], [0]);
    semaphore.pass(-1);
    assert_eq!(semaphore.ok("refresh", &take_over)[2..], [0]);
    assert_eq!(semaphore.ok("refresh", "p 9000 q 1000")[2..], [0, 0]);
    assert_eq!(semaphore.inspect().held, 0);
}

#[test]
fn an_id_whose_lease_expired_counts_as_a_new_request() {
    let mut semaphore = Timed::start();
    let first = semaphore.acquire_one(4, "a 3 5000 try");
    semaphore.pass(5000);
    let end = semaphore.now() + 5000;
    let again = semaphore.acquire_one(4, "a 3 5000 try");
    assert_eq!(again, Granted { token: first.token() + 5_000_000, end });
    // The permit counts once.
    assert_eq!(semaphore.inspect().held, 3);
    semaphore.assert_weights_agree();
    // The ID has no priority over a waiting request.
    semaphore.acquire(4, "b 3 60000 wait");
    semaphore.pass(5000);
    assert_eq!(semaphore.acquire_one(4, "a 3 5000 try"), Outcome::Refused);
    assert_eq!(semaphore.inspect().holder_ids(), ["b"].into());
    semaphore.assert_weights_agree();
}

#[test]
fn wake_grants_expired_permits_to_waiters() {
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

/// The dead holder's lease seems to expire an hour late, until the lease is shortened to the
/// longest lease in use.
#[test]
fn after_a_step_back_a_dead_holder_expires_within_the_longest_lease() {
    // Either a second permit has the longest lease in use, or the waiter requires the whole limit.
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
fn after_a_step_back_a_try_is_granted_after_the_longest_lease() {
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

/// If the state was lost, the longest lease is unknown, so the scripts assume the maximum, seven
/// days.
#[test]
fn after_the_loss_of_the_state_leases_are_not_shortened() {
    let mut semaphore = Timed::start();
    semaphore.acquire(1, "a 1 600000 try");
    semaphore.lose("state");
    assert_eq!(semaphore.acquire_one(1, "b 1 1 wait").position(), 1);
    assert_eq!(semaphore.inspect().holders, [("a".to_owned(), 1, 600_000)]);
    semaphore.pass(590_000);
    assert_eq!(semaphore.ok("wake", "")[1], 10_000);
}

#[test]
fn a_step_forward_of_the_clock_expires_leases_early() {
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
fn tokens_grow_when_the_clock_steps_back_while_the_semaphore_is_unused() {
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

/// If all keys have expired, tokens keep growing only because of the clock.
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

/// The last number is a day ahead of the clock, and is kept until the clock has caught up.
#[test]
fn the_last_number_is_kept_while_it_is_ahead_of_the_clock() {
    let mut semaphore = Timed::start();
    let first = semaphore.acquire_one(1, "a 1 5000 try").token();
    semaphore.pass(-DAY);
    assert_eq!(semaphore.acquire_one(1, "a 1 5000 try").token(), first + 1);
    semaphore.ok("release", "return a");
    semaphore.pass(DAY - HOUR);
    assert_eq!(semaphore.acquire_one(1, "b 1 5000 try").token(), first + 2);
}

/// Returns a semaphore with five waiters that die immediately, and a live waiter behind them. If a
/// dead waiter got a permit, its lease would last a day.
fn five_dead_before_a_live_one(heartbeat_timeout: i64) -> Timed {
    let mut semaphore = Timed::start();
    semaphore.acquire(1, "holder 1 600000 try");
    for number in 0..5 {
        let client = format!("dead{number} poll {heartbeat_timeout}");
        semaphore.acquire_for(1, &client, &format!("dead{number} 1 {DAY} wait"));
    }
    semaphore.acquire_for(1, "live poll 1000", "live 1 60000 wait");
    semaphore
}

#[test]
fn after_a_step_back_dead_waiters_last_at_most_the_longest_heartbeat_timeout() {
    for heartbeat_timeout in [1, 1000, 30_000, 600_000] {
        let mut semaphore = five_dead_before_a_live_one(heartbeat_timeout);
        semaphore.pass(-DAY);
        // A script notices the step of the clock in any call. This call is a heartbeat.
        semaphore.acquire_for(1, "live poll 1000", "live 1 60000 wait");
        semaphore.pass(heartbeat_timeout.max(1000) + 1);
        semaphore.acquire_for(1, "live poll 1000", "live 1 60000 wait");
        semaphore.ok("release", "return holder");
        let inspection = semaphore.inspect();
        assert_eq!(
            inspection.holder_ids(),
            ["live"].into(),
            "heartbeat_timeout {heartbeat_timeout}"
        );
        assert_eq!(inspection.queued, 0, "heartbeat_timeout {heartbeat_timeout}");
    }
}

/// The lifetime of an idempotency key does not affect how long clients count as alive.
#[test]
fn after_a_step_back_no_idempotency_key_keeps_dead_waiters_in_the_queue() {
    let mut semaphore = five_dead_before_a_live_one(1000);
    let mark = "N:client:0:604800000:mark____________";
    semaphore.ok("limit", &format!("existing 0 set 1 {mark}"));
    semaphore.pass(-DAY);
    semaphore.acquire_for(1, "live poll 1000", "live 1 60000 wait");
    semaphore.pass(1001);
    semaphore.acquire_for(1, "live poll 1000", "live 1 60000 wait");
    semaphore.ok("release", "return holder");
    let inspection = semaphore.inspect();
    assert_eq!((inspection.holder_ids(), inspection.queued), (["live"].into(), 0));
    // The change with this key counts once, even if the clock steps.
    for step in [0, DAY] {
        semaphore.pass(step);
        assert_eq!(semaphore.ok("limit", &format!("existing 0 set 9 {mark}"))[2..4], [1, 1]);
    }
}

/// The entry that stores the longest heartbeat timeout does not count as a dead client.
#[test]
fn the_longest_heartbeat_timeout_stays_stored_if_it_is_the_maximum() {
    let mut semaphore = Timed::start();
    semaphore.acquire(1, "holder 1 600000 try");
    semaphore.acquire_for(1, "patient poll 604800000", "patient 1 60000 wait");
    semaphore.acquire_for(1, "new poll 1000", "new 1 60000 wait");
    let clients = semaphore.key("clients");
    assert_eq!(semaphore.command::<i64>(&format!("ZSCORE {clients} *")), 604_800_000);
}

#[test]
fn after_a_step_back_live_waiters_keep_their_positions() {
    let mut semaphore = five_dead_before_a_live_one(30_000);
    semaphore.pass(-DAY);
    for _ in 0..10 {
        let live = semaphore.acquire_for(1, "live poll 1000", "live 1 60000 wait")[0];
        assert_eq!(live.position(), 6);
        semaphore.pass(500);
    }
    let received = semaphore.inspect().received;
    assert!(received.iter().all(|received| (0..=30_000).contains(received)), "{received:?}");
}

/// For more than a day, nothing was granted or queued, but the waiting clients sent heartbeats.
#[test]
fn after_a_step_back_dead_waiters_are_skipped_even_without_recent_grants() {
    let mut semaphore = Timed::start();
    semaphore.ok("limit", "set 0");
    for _ in 0..3 * 24 * 60 {
        for client in ["dead", "live"] {
            let client_of = format!("{client} poll 60000");
            semaphore.acquire_for(1, &client_of, &format!("{client} 1 {DAY} wait"));
        }
        semaphore.pass(30_000);
    }
    semaphore.pass(-HOUR);
    semaphore.acquire_for(1, "live poll 60000", &format!("live 1 {DAY} wait"));
    semaphore.pass(60_001);
    semaphore.acquire_for(1, "live poll 60000", &format!("live 1 {DAY} wait"));
    semaphore.ok("limit", "set 1");
    assert_eq!(semaphore.inspect().holder_ids(), ["live"].into());
}

/// A ticket that may have been issued is accepted, and the next numbers are larger.
#[test]
fn a_new_request_is_queued_behind_a_ticket_from_before_a_step_back() {
    let mut semaphore = Timed::start();
    let last = semaphore.acquire_one(2, "h 1 60000 try").token();
    semaphore.pass(1);
    let heavy = semaphore.acquire_one(2, &format!("heavy 2 60000 {}", last + 999));
    assert_eq!(heavy, Outcome::Queued { ticket: last + 999, position: 1 });
    semaphore.pass(-1);
    let new = semaphore.acquire_one(2, "new 1 60000 wait");
    assert_eq!(new, Outcome::Queued { ticket: last + 1000, position: 2 });
    assert_eq!(semaphore.inspect().waiter_ids(), ["heavy", "new"]);
}

/// The ticket equals the next number.
#[test]
fn a_new_request_is_queued_behind_a_ticket_of_the_same_microsecond() {
    let mut semaphore = Timed::start();
    semaphore.acquire(2, "h 1 60000 try");
    semaphore.pass(1);
    let this = semaphore.now_us;
    let outcomes = semaphore.acquire(2, &format!("heavy 2 60000 {this} new 1 60000 wait"));
    assert_eq!(outcomes[0], Outcome::Queued { ticket: this, position: 1 });
    assert_eq!(outcomes[1], Outcome::Queued { ticket: this + 1, position: 2 });
}

/// The last number is ahead of the clock by exactly one second, or by one second and one
/// microsecond.
#[test]
fn leases_are_shortened_when_the_last_number_is_more_than_a_second_ahead() {
    for (holders, last, left) in
        [("a 1 5000 try", START_US, 6000), ("a 1 5000 try b 1 5000 try", START_US + 1, 5000)]
    {
        let mut semaphore = Timed::start();
        semaphore.acquire(2, holders);
        assert_eq!(semaphore.inspect().last, last);
        semaphore.pass(-1000);
        semaphore.ok("wake", "");
        let ends: Vec<i64> = semaphore.scores("permits").iter().map(|(_, end)| *end).collect();
        let now = semaphore.now();
        assert!(ends.iter().all(|end| end - now == left), "{ends:?}");
    }
}
