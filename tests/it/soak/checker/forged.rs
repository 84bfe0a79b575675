//! Histories that are wrong in one way each, so that the checker is known to see it; and what looks
//! wrong but is not.

use super::super::history::{ALL, Call, Counts, Event, How, Moment, What, Why};
use super::{Bounds, judge};

const BOUNDS: Bounds = Bounds {
    lease: 30,
    late: 10,
    way: 5,
    wait: 1000,
    patience: 20,
    tick: 1,
    ahead: 0,
    reconnecting: 2,
};

fn event(at: Moment, process: u32, what: What) -> Event {
    Event { at, process, what }
}

fn asks(at: Moment, process: u32, turn: u64) -> Event {
    asks_for(at, process, turn, Call::Acquire, 0)
}

fn asks_for(at: Moment, process: u32, turn: u64, call: Call, ahead: Moment) -> Event {
    event(at, process, What::Asks { turn, semaphore: 0, weight: 1, call, ahead })
}

/// Held from then on, with this token, until the lease ends.
fn holds(at: Moment, process: u32, turn: u64, token: u64, until: Moment) -> Event {
    event(
        at,
        process,
        What::Holds { turn, semaphore: 0, token, until, id: format!("{process}/{turn}") },
    )
}

fn releases(at: Moment, process: u32, turn: u64) -> Event {
    event(at, process, What::Releases { turn, how: How::Release })
}

fn gives_up(at: Moment, why: Why) -> Event {
    event(at, 1, What::GivesUp { turn: 1, why })
}

fn limit(at: Moment, limit: u64) -> [Event; 2] {
    [
        event(at, 0, What::SetsLimit { semaphore: 0, limit }),
        event(at, 0, What::LimitIs { semaphore: 0, limit }),
    ]
}

/// The rules that were broken, in a history that begins with a limit of 1.
fn broken(events: &[Event]) -> Vec<String> {
    let mut history = limit(0, 1).to_vec();
    history.extend_from_slice(events);
    history.sort_by_key(|event| event.at);
    let violations = judge(&history, BOUNDS).unwrap();
    violations.into_iter().map(|violation| violation.rule).collect()
}

const NONE: [&str; 0] = [];

#[test]
fn two_inside_at_once_are_seen() {
    let first = [asks(1, 1, 1), holds(2, 1, 1, 10, 100)];
    let second = [asks(3, 2, 1), holds(20, 2, 1, 11, 200), releases(30, 2, 1)];
    let with = |end: Event| broken(&[&first[..], &second, &[end]].concat());
    assert_eq!(with(releases(21, 1, 1)), ["over-admission"]);
    assert_eq!(with(releases(20, 1, 1)), NONE);
    // Whoever is dead believes nothing.
    assert_eq!(with(event(19, 1, What::Killed)), NONE);
}

#[test]
fn nobody_believes_to_hold_beyond_the_end_of_its_lease() {
    let stopped = [asks(1, 1, 1), holds(2, 1, 1, 10, 50), event(10, 1, What::Stopped)];
    let second = [asks(3, 2, 1), holds(60, 2, 1, 11, 200), releases(70, 2, 1)];
    let back = [event(80, 1, What::Continued), event(81, 1, What::Lost { turn: 1 })];
    assert_eq!(broken(&[&stopped[..], &second, &back].concat()), NONE);
    let renewed = [event(9, 1, What::Renewed { turn: 1, until: 65, by_hand: false })];
    let history = [&stopped[..], &renewed, &second, &back].concat();
    assert_eq!(broken(&history), ["over-admission"]);
}

#[test]
fn weights_are_added_up_against_the_largest_limit_since() {
    let heavy = |at, process, token, weight| {
        let asks = event(
            at,
            process,
            What::Asks { turn: 1, semaphore: 0, weight, call: Call::Acquire, ahead: 0 },
        );
        [asks, holds(at + 1, process, 1, token, 500), releases(400, process, 1)]
    };
    let both = [heavy(10, 1, 10, 2), heavy(20, 2, 11, 2)].concat();
    let with = |at, limit_then| broken(&[&limit(at, limit_then)[..], &both].concat());
    assert_eq!(with(5, 3), ["over-admission"]);
    assert_eq!(with(5, 4), NONE);
    // A limit that is lowered takes nothing away, and one that is being raised may be in force.
    assert_eq!(broken(&[&limit(5, 4)[..], &limit(15, 1), &both].concat()), NONE);
    let being_raised = event(5, 0, What::SetsLimit { semaphore: 0, limit: 4 });
    assert_eq!(broken(&[&[being_raised][..], &both].concat()), NONE);
    // One that was lowered before the first of them was asked for is of the past.
    assert_eq!(broken(&[&limit(5, 4)[..], &limit(8, 3), &both].concat()), ["over-admission"]);
}

#[test]
fn a_token_that_goes_back_is_seen() {
    let first = [asks(1, 1, 1), holds(2, 1, 1, 10, 100), releases(3, 1, 1)];
    let second = |token| [asks(4, 2, 1), holds(5, 2, 1, token, 100), releases(6, 2, 1)];
    assert_eq!(broken(&[first.clone(), second(9)].concat()), ["tokens"]);
    assert_eq!(broken(&[first.clone(), second(10)].concat()), ["tokens"]);
    assert_eq!(broken(&[first, second(11)].concat()), NONE);
}

#[test]
fn a_loss_that_is_told_late_or_never_is_seen() {
    let held = [asks(1, 1, 1), holds(2, 1, 1, 10, 50)];
    let then = |event: Event| broken(&[&held[..], &[event]].concat());
    assert_eq!(then(event(60, 1, What::Lost { turn: 1 })), NONE);
    assert_eq!(then(event(61, 1, What::Lost { turn: 1 })), ["losses"]);
    assert_eq!(then(event(100, 2, What::Killed)), ["losses"], "it is never told");
    assert_eq!(then(event(40, 1, What::Killed)), NONE);
    let stopped = [event(45, 1, What::Stopped), event(90, 1, What::Continued)];
    let told = [event(91, 1, What::Lost { turn: 1 })];
    assert_eq!(broken(&[&held[..], &stopped, &told].concat()), NONE);
}

#[test]
fn whoever_dies_untold_is_seen() {
    let held = [asks(1, 1, 1), holds(2, 1, 1, 10, 50)];
    let dies = |at| broken(&[&held[..], &[event(at, 1, What::Killed)]].concat());
    assert_eq!(dies(60), NONE);
    assert_eq!(dies(61), ["losses"]);
    // Being stopped for a while excuses that while, and no more.
    let stopped = [event(45, 1, What::Stopped), event(55, 1, What::Continued)];
    let told = |at| {
        let told = event(at, 1, What::Lost { turn: 1 });
        broken(&[&held[..], &stopped, &[told]].concat())
    };
    assert_eq!(told(65), NONE);
    assert_eq!(told(66), ["losses"]);
}

/// Permits with tokens up to this one may have been lost between these moments.
fn unsettled(since: Moment, at: Moment, token: u64) -> Event {
    event(at, ALL, What::Unsettled { semaphore: 0, since, token })
}

#[test]
fn a_permit_that_is_taken_away_is_seen() {
    let held = [asks(1, 1, 1), holds(2, 1, 1, 10, 50)];
    let lost = event(20, 1, What::Lost { turn: 1 });
    let with = |events: &[Event]| broken(&[&held[..], events].concat());
    assert_eq!(with(std::slice::from_ref(&lost)), ["taken away"]);
    assert_eq!(with(&[unsettled(9, 10, 10), lost.clone()]), NONE);
    // It was granted after that, is told too late, or was renewed since.
    assert_eq!(with(&[unsettled(9, 10, 9), lost.clone()]), ["taken away"]);
    assert_eq!(with(&[unsettled(3, 4, 10), lost.clone()]), ["taken away"]);
    let renewed = event(15, 1, What::Renewed { turn: 1, until: 41, by_hand: false });
    assert_eq!(with(&[unsettled(9, 10, 10), renewed, lost]), ["taken away"]);

    let answered =
        |at, held| with(&[releases(20, 1, 1), event(at, 1, What::Released { turn: 1, held })]);
    assert_eq!(answered(22, true), NONE);
    assert_eq!(answered(22, false), ["taken away"]);
    // Its lease may have ended before that arrived.
    assert_eq!(answered(50, false), NONE);
}

#[test]
fn what_may_have_been_lost_does_not_count_until_its_holder_must_know() {
    // A lease of 30: renewed every 10, and 5 on the way.
    let first = [asks(1, 1, 1), holds(2, 1, 1, 10, 100)];
    let second = |at| [asks(9, 2, 1), holds(at, 2, 1, 11, 200), releases(at + 1, 2, 1)];
    let with = |second: &[Event], more: &[Event]| broken(&[&first[..], second, more].concat());
    assert_eq!(with(&second(20), &[]), ["over-admission"]);
    assert_eq!(with(&second(20), &[unsettled(9, 10, 10)]), NONE);
    assert_eq!(with(&second(20), &[unsettled(9, 10, 9)]), ["over-admission"]);
    assert_eq!(with(&second(26), &[unsettled(9, 10, 10)]), ["over-admission"]);
    let renewed = |until| event(16, 1, What::Renewed { turn: 1, until, by_hand: false });
    let with_renewal = |until| with(&second(20), &[unsettled(9, 10, 10), renewed(until)]);
    assert_eq!(with_renewal(41), ["over-admission"], "renewed since");
    assert_eq!(with_renewal(40), NONE, "that was asked for before");
}

#[test]
fn what_is_consumed_counts_until_the_limit_is_set_anew() {
    let forgets = event(10, 1, What::Releases { turn: 1, how: How::Forget });
    let answered = |held| event(12, 1, What::Released { turn: 1, held });
    let first = [asks(1, 1, 1), holds(2, 1, 1, 10, 100), forgets];
    let second = [asks(20, 2, 1), holds(30, 2, 1, 11, 200), releases(31, 2, 1)];
    let with = |more: &[Event]| broken(&[&first[..], &second, more].concat());
    assert_eq!(with(&[answered(true)]), ["over-admission"]);
    assert_eq!(with(&[&[answered(true)][..], &limit(25, 1)].concat()), NONE);
    assert_eq!(with(&[&[answered(true)][..], &limit(9, 1)].concat()), ["over-admission"]);
    // Nobody knows which came first, or whether it was consumed.
    assert_eq!(with(&[&[answered(true)][..], &limit(11, 1)].concat()), NONE);
    assert_eq!(with(&[answered(false)]), ["taken away"]);
    assert_eq!(with(&[]), NONE);
}

fn offers(at: Moment, process: u32) -> Event {
    event(at, process, What::Offers { turn: 1, parts: String::new() })
}

#[test]
fn two_who_hold_the_same_permit_are_seen() {
    let passes = event(10, 1, What::Releases { turn: 1, how: How::Pass });
    let owner = [asks(1, 1, 1), holds(2, 1, 1, 10, 100), passes, offers(10, 1)];
    let adopts = |process, at, end| {
        let asks = asks_for(11, process, 1, Call::Adopt, 0);
        [asks, holds(at, process, 1, 10, 100), releases(end, process, 1)]
    };
    let with = |more: &[Event]| broken(&[&limit(0, 2)[..], &owner, more].concat());
    assert_eq!(with(&adopts(2, 15, 30)), NONE);
    assert_eq!(with(&[adopts(2, 15, 30), adopts(3, 30, 40)].concat()), NONE);
    assert_eq!(with(&[adopts(2, 15, 30), adopts(3, 29, 40)].concat()), ["one holder"]);
    // Its place was taken from the moment at which it was passed on.
    let others = |at| [4, 5].map(|process| [asks(5, process, 1), holds(at, process, 1, 11, 20)]);
    let tokens = |others: [[Event; 2]; 2]| [&others.concat()[..], &adopts(2, 15, 30)].concat();
    let told = [4, 5].map(|process| event(20, process, What::Lost { turn: 1 }));
    let judged = with(&[&tokens(others(11))[..], &told].concat());
    assert!(judged.contains(&"over-admission".to_owned()), "{judged:?}");
}

#[test]
fn an_owner_whose_permit_was_adopted_and_is_not_told_is_seen() {
    // A lease of 30: renewed every 10, and 5 on the way.
    let owner = [asks(1, 1, 1), holds(2, 1, 1, 10, 100), offers(10, 1)];
    let asks = asks_for(11, 2, 1, Call::Adopt, 0);
    let adopter = [asks, holds(15, 2, 1, 10, 100), releases(50, 2, 1)];
    let lost = |at| event(at, 1, What::Lost { turn: 1 });
    let told = |at| broken(&[&owner[..], &adopter, &[lost(at)]].concat());
    assert_eq!(told(30), NONE);
    assert_eq!(told(31), ["over-admission", "one holder", "taken away"]);
    // It may have been adopted and given back, but not before it was offered.
    assert_eq!(broken(&[&owner[..], &[lost(11)]].concat()), NONE);
    assert_eq!(broken(&[&owner[..], &[lost(9)]].concat()), ["taken away"]);
}

#[test]
fn what_is_left_counts_until_its_lease_ends() {
    let left = |how| {
        [asks(1, 1, 1), holds(2, 1, 1, 10, 31), event(10, 1, What::Releases { turn: 1, how })]
    };
    let answered = event(12, 1, What::Released { turn: 1, held: true });
    let next = |at| [asks(5, 2, 1), holds(at, 2, 1, 11, 200), releases(at + 1, 2, 1)];
    let with = |how, more: &[Event], at| broken(&[&left(how)[..], more, &next(at)].concat());
    let answered = std::slice::from_ref(&answered);
    // From the leave on; the server counts in units of 1.
    assert_eq!(with(How::Leave, answered, 38), ["over-admission"]);
    assert_eq!(with(How::Leave, answered, 39), NONE);
    // Where that has no answer it was renewed before, at 1.
    assert_eq!(with(How::DroppedLeave, &[], 29), ["over-admission"]);
    assert_eq!(with(How::LeavingDrop, &[], 30), NONE);
    assert_eq!(with(How::Drop, &[], 29), NONE);
    // It may have been lost since, but not if it was there after that.
    let lost = |since, at| [answered, &[unsettled(since, at, 10)]].concat();
    assert_eq!(with(How::Leave, &lost(19, 20), 19), NONE);
    assert_eq!(with(How::Leave, &lost(19, 20), 18), ["over-admission"]);
    assert_eq!(with(How::Leave, &lost(8, 9), 38), ["over-admission"]);
}

#[test]
fn calls_that_fail_are_seen() {
    let failed = |operation: &str, excusable| {
        let (operation, error) = (operation.to_owned(), String::new());
        event(50, 1, What::Failed { turn: 1, operation, error, excusable })
    };
    let fault = [
        event(10, ALL, What::Fault { kind: "cut".to_owned(), spoils_order: true }),
        event(30, ALL, What::Healed { kind: "cut".to_owned() }),
    ];
    let in_trouble = |event: Event| broken(&[&fault[..], &[event]].concat());
    assert_eq!(broken(&[failed("release", true)]), ["errors"]);
    assert_eq!(in_trouble(failed("release", true)), NONE);
    assert_eq!(in_trouble(failed("release", false)), ["errors"]);
    assert_eq!(in_trouble(failed("acquire", true)), ["errors"]);
    assert_eq!(in_trouble(failed("panic", false)), ["errors"]);
}

#[test]
fn whoever_overtakes_is_seen() {
    let ids = || vec!["1/1".to_owned()];
    let overtaken_from = |first_asked, asked, until| {
        vec![
            asks(first_asked, 1, 1),
            event(6, ALL, What::Queued { ids: ids() }),
            asks(asked, 2, 1),
            holds(20, 2, 1, 10, 100),
            event(24, ALL, What::Left { ids: ids(), until }),
            releases(30, 2, 1),
            holds(31, 1, 1, 11, 100),
            releases(40, 1, 1),
        ]
    };
    let overtaken = |asked, until| overtaken_from(5, asked, until);
    assert_eq!(broken(&overtaken(7, 21)), ["order"]);
    // Their requests may have passed each other on the way, or their grants.
    assert_eq!(broken(&overtaken(6, 21)), NONE);
    assert_eq!(broken(&overtaken(7, 20)), NONE);
    // Its place may be gone with its connection, but not with one of another.
    let fault = |healed, spoils_order| {
        let kind = "cut".to_owned();
        let begins = event(2, ALL, What::Fault { kind: kind.clone(), spoils_order });
        [begins, event(healed, ALL, What::Healed { kind })]
    };
    assert_eq!(broken(&[&overtaken(7, 21)[..], &fault(6, true)].concat()), NONE);
    assert_eq!(broken(&[&overtaken(7, 21)[..], &fault(6, false)].concat()), ["order"]);
    // Nor with one that was over, and time enough to listen again had passed.
    assert_eq!(broken(&[&overtaken(7, 21)[..], &fault(4, true)].concat()), NONE);
    assert_eq!(broken(&[&overtaken(7, 21)[..], &fault(3, true)].concat()), ["order"]);
}

#[test]
fn a_head_start_that_is_too_large_is_seen() {
    let ids = || vec!["1/1".to_owned()];
    let overtakes = |call, ahead| {
        broken(&[
            asks(5, 1, 1),
            event(6, ALL, What::Queued { ids: ids() }),
            asks_for(10, 2, 1, call, ahead),
            holds(20, 2, 1, 10, 100),
            event(24, ALL, What::Left { ids: ids(), until: 21 }),
            releases(30, 2, 1),
            holds(31, 1, 1, 11, 100),
            releases(40, 1, 1),
        ])
    };
    assert_eq!(overtakes(Call::HeadStart, 3), ["order"]);
    assert_eq!(overtakes(Call::HeadStart, 4), NONE);
    // Who adopts needs no turn.
    assert_eq!(overtakes(Call::Adopt, 0), NONE);
}

#[test]
fn whoever_waits_too_long_is_seen() {
    let waits = |until| vec![asks(1, 1, 1), gives_up(until, Why::Dropped)];
    assert_eq!(broken(&waits(1001)), NONE);
    assert_eq!(broken(&waits(1002)), ["waits"]);
    assert_eq!(broken(&[asks(1, 1, 1), event(1500, 2, What::Killed)]), ["waits"], "still waits");
    assert_eq!(broken(&[asks(1, 1, 1), event(900, 1, What::Killed), asks(1500, 2, 1)]), NONE);
    // The time in which something was wrong is added.
    let fault = [
        event(100, 0, What::Fault { kind: "pause".to_owned(), spoils_order: false }),
        event(200, 0, What::Healed { kind: "pause".to_owned() }),
    ];
    assert_eq!(broken(&[&waits(1101)[..], &fault].concat()), NONE);
    assert_eq!(broken(&[&waits(1102)[..], &fault].concat()), ["waits"]);
}

#[test]
fn what_was_counted_wrong_is_seen() {
    // One permit of 4 ns after 1 ns, given back; and one request of each other end.
    let mut history = vec![
        asks(1, 1, 0),
        holds(2, 1, 0, 1, 30),
        releases(5, 1, 0),
        event(7, 1, What::Gone { turn: 0, lost: false }),
    ];
    for (turn, why) in [Why::Refused, Why::TimedOut, Why::Dropped, Why::Failed].iter().enumerate() {
        let turn = turn as u64 + 1;
        history.extend([asks(8, 1, turn), event(9, 1, What::GivesUp { turn, why: *why })]);
    }
    // Somebody else's.
    history.push(asks(1, 2, 1));
    let right = Counts {
        waited: 1,
        wait_times: 1,
        hold_times: 1,
        refused: 1,
        timed_out: 1,
        cancelled: 1,
        failed: 1,
        wait_time: 1e-9,
        hold_time: 4e-9,
        ..Counts::default()
    };
    let with = |counts: Counts| {
        let counted = event(10, 1, What::Counted { semaphore: 0, counts });
        broken(&[&history[..], &[counted]].concat())
    };
    assert_eq!(with(right.clone()), NONE);
    let at_once =
        Counts { immediate: 1, waited: 0, wait_times: 0, wait_time: 0.0, ..right.clone() };
    assert_eq!(with(at_once), NONE);
    for wrong in [
        Counts { immediate: 1, ..right.clone() },
        Counts { wait_times: 0, ..right.clone() },
        Counts { hold_times: 2, ..right.clone() },
        Counts { refused: 2, ..right.clone() },
        Counts { timed_out: 0, ..right.clone() },
        Counts { cancelled: 0, ..right.clone() },
        Counts { failed: 0, ..right.clone() },
        Counts { lost: 1, ..right.clone() },
        Counts { held: 1, ..right.clone() },
        Counts { waiting: -1, ..right.clone() },
        Counts { wait_time: 2e-9, ..right.clone() },
        Counts { hold_time: 2e-9, ..right.clone() },
        Counts { hold_time: 7e-9, ..right.clone() },
    ] {
        assert_eq!(with(wrong.clone()), ["metrics"], "{wrong:?}");
    }
}

#[test]
fn a_log_that_cannot_be_is_refused() {
    let twice = [asks(1, 1, 1), asks(2, 1, 1)];
    assert!(judge(&twice, BOUNDS).unwrap_err().contains("asks twice"));
    let stranger = [holds(1, 1, 1, 1, 100)];
    assert!(judge(&stranger, BOUNDS).unwrap_err().contains("no such turn"));
    let over = [asks(1, 1, 1), gives_up(2, Why::Failed), holds(3, 1, 1, 1, 9)];
    assert!(judge(&over, BOUNDS).unwrap_err().contains("no such turn"));
}
