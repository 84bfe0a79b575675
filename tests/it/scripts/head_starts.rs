//! Tests which other requests a request with a head start overtakes. In most tests, the server's
//! clock was set back.

use super::{Outcome, START_US, Timed};

const DAY: i64 = 24 * 3_600_000;

/// A head start has no effect while the clock is more than a second behind the last number. During
/// that time, the numbers grow slowly. If head starts applied, earlier requests would therefore be
/// overtaken until the clock catches up.
#[test]
fn after_a_step_back_head_starts_do_not_starve_earlier_requests() {
    let mut semaphore = Timed::start();
    semaphore.acquire(1, "holder 1 600000 try");
    semaphore.pass(1000);
    semaphore.acquire(1, "first 1 60000 wait");
    semaphore.pass(-DAY);
    for number in 0..50 {
        let newcomer = semaphore.acquire_one(1, &format!("new{number} 1 60000 +3600000"));
        assert_eq!(newcomer.position(), number + 2);
        semaphore.pass(100);
    }
    assert_eq!(semaphore.inspect().waiter_ids()[..2], ["first", "new0"]);
    semaphore.ok("release", "return holder");
    assert_eq!(semaphore.inspect().holder_ids(), ["first"].into());
    let mut served = vec!["first".to_owned()];
    while semaphore.inspect().queued > 0 {
        let holder = served.last().unwrap().clone();
        semaphore.ok("release", &format!("return {holder}"));
        served.extend(semaphore.inspect().holders.into_iter().map(|(name, ..)| name));
    }
    let in_order = ["first".to_owned()].into_iter().chain((0..50).map(|n| format!("new{n}")));
    assert_eq!(served, in_order.collect::<Vec<_>>());
}

#[test]
fn a_head_start_counts_again_once_the_clock_has_caught_up() {
    for (behind, position) in [(1001, 3), (999, 1), (0, 1)] {
        let mut semaphore = Timed::start();
        semaphore.acquire(1, "holder 1 600000 try");
        semaphore.pass(10_000);
        semaphore.acquire(1, "first 1 60000 wait second 1 60000 wait");
        semaphore.pass(-behind);
        let ahead = semaphore.acquire_one(1, "ahead 1 60000 +5000").position();
        assert_eq!(ahead, position, "{behind} ms behind");
    }
}

/// A machine's clock may start in 1970 until it is synchronized.
#[test]
fn a_head_start_longer_than_the_time_since_1970_gives_a_reusable_ticket() {
    let mut semaphore = Timed::start();
    set_clock(&mut semaphore, 600_000_000);
    semaphore.acquire(1, "holder 1 600000 try");
    let ahead = semaphore.acquire_one(1, "ahead 1 60000 +3600000");
    let ticket = ahead.ticket();
    assert_eq!((ahead.position(), ticket), (1, 1));
    let again = semaphore.acquire_one(1, &format!("ahead 1 60000 {ticket}"));
    assert_eq!((again.position(), again.ticket()), (1, 1));
}

fn set_clock(semaphore: &mut Timed, now_us: i64) {
    semaphore.now_us = now_us;
    semaphore.pass(0);
}

/// The last number is ahead of the clock by exactly one second, or by one second and one
/// microsecond.
#[test]
fn a_head_start_counts_until_the_clock_is_more_than_a_second_behind() {
    for (ahead, position) in [(1_000_000, 1), (1_000_001, 2)] {
        let mut semaphore = Timed::start();
        semaphore.acquire(1, "holder 1 600000 try");
        let ticket = START_US + ahead;
        set_clock(&mut semaphore, ticket);
        semaphore.acquire(1, &format!("first 1 60000 {ticket}"));
        set_clock(&mut semaphore, START_US);
        let place = semaphore.acquire_one(1, "ahead 1 60000 +5000").position();
        assert_eq!(place, position, "{ahead} µs ahead");
    }
}

/// Returns the position of a request with a head start of 1 ms that arrives `waited` ms after
/// "first". The clock was set back before "first" arrived. So the ticket of "first" is `ahead` µs
/// later than the clock.
fn place_behind_first(ahead: i64, waited: i64) -> i64 {
    let mut semaphore = Timed::start();
    set_clock(&mut semaphore, START_US + ahead - 1);
    semaphore.acquire(1, "holder 1 604800000 try");
    set_clock(&mut semaphore, START_US);
    let first = semaphore.acquire_one(1, "first 1 60000 wait");
    assert_eq!(first, Outcome::Queued { ticket: START_US + ahead, position: 1 });
    semaphore.pass(waited);
    semaphore.acquire_one(1, "ahead 1 60000 +1").position()
}

/// A head start lets a request overtake another request for a time that equals the head start.
/// After a step back of the clock, this time is at most one second longer. The time begins when the
/// clock is one second behind the ticket of the other request.
#[test]
fn after_a_step_back_a_head_start_overtakes_for_at_most_one_more_second() {
    const DAY_US: i64 = 1000 * DAY;
    for (ahead, waited, position) in [
        // The first two results are equal to the results without a step back.
        (1, 0, 1),
        (1, 2, 2),
        (999_999, 0, 1),
        (999_999, 1000, 1),
        (999_999, 1001, 2),
        (1_000_001, 0, 2),
        (1_000_001, 1, 1),
        (1_000_001, 1001, 1),
        (1_000_001, 1002, 2),
        (DAY_US, 0, 2),
        (DAY_US, DAY - 1001, 2),
        (DAY_US, DAY - 1000, 1),
        (DAY_US, DAY, 1),
        (DAY_US, DAY + 2, 2),
    ] {
        let place = place_behind_first(ahead, waited);
        assert_eq!(place, position, "{ahead} µs ahead, {waited} ms later");
    }
}
