use super::*;

#[test]
fn the_checker_detects_two_holders_at_once() {
    let first = [asks(1, 1, 1), holds(2, 1, 1, 10, 100)];
    let second = [asks(3, 2, 1), holds(20, 2, 1, 11, 200), releases(30, 2, 1)];
    let with = |end: Event| broken(&[&first[..], &second, &[end]].concat());
    assert_eq!(with(releases(21, 1, 1)), ["over-admission"]);
    assert_eq!(with(releases(20, 1, 1)), NONE);
    // A dead process believes nothing.
    assert_eq!(with(event(19, 1, What::Killed)), NONE);
}

#[test]
fn a_stopped_holder_counts_only_until_its_lease_expires() {
    let stopped = [asks(1, 1, 1), holds(2, 1, 1, 10, 50), event(10, 1, What::Stopped)];
    let second = [asks(3, 2, 1), holds(60, 2, 1, 11, 200), releases(70, 2, 1)];
    let back = [event(80, 1, What::Continued), event(81, 1, What::Lost { turn: 1 })];
    assert_eq!(broken(&[&stopped[..], &second, &back].concat()), NONE);
    let refreshed = [event(9, 1, What::Refreshed { turn: 1, until: 65, by_hand: false })];
    let history = [&stopped[..], &refreshed, &second, &back].concat();
    assert_eq!(broken(&history), ["over-admission"]);
}

#[test]
fn the_checker_compares_the_held_weight_with_the_largest_possible_limit() {
    let heavy = |at, process, token, weight| {
        let asks = event(
            at,
            process,
            What::Asks { turn: 1, semaphore: 0, weight, group: 0, call: Call::Acquire, ahead: 0 },
        );
        [asks, holds(at + 1, process, 1, token, 500), releases(400, process, 1)]
    };
    let both = [heavy(10, 1, 10, 2), heavy(20, 2, 11, 2)].concat();
    let with = |at, limit_then| broken(&[&limit(at, limit_then)[..], &both].concat());
    assert_eq!(with(5, 3), ["over-admission"]);
    assert_eq!(with(5, 4), NONE);
    // A lower limit takes no permit away, and a limit that is being raised may already be
    // effective.
    assert_eq!(broken(&[&limit(5, 4)[..], &limit(15, 1), &both].concat()), NONE);
    let being_raised = event(5, 0, What::SetsLimit { semaphore: 0, limit: 4 });
    assert_eq!(broken(&[&[being_raised][..], &both].concat()), NONE);
    // A limit that was replaced before the first of these requests no longer counts.
    assert_eq!(broken(&[&limit(5, 4)[..], &limit(8, 3), &both].concat()), ["over-admission"]);
}

#[test]
fn the_checker_detects_a_token_that_does_not_grow() {
    let first = [asks(1, 1, 1), holds(2, 1, 1, 10, 100), releases(3, 1, 1)];
    let second = |token| [asks(4, 2, 1), holds(5, 2, 1, token, 100), releases(6, 2, 1)];
    assert_eq!(broken(&[first.clone(), second(9)].concat()), ["tokens"]);
    assert_eq!(broken(&[first.clone(), second(10)].concat()), ["tokens"]);
    assert_eq!(broken(&[first, second(11)].concat()), NONE);
}

#[test]
fn a_possibly_lost_permit_does_not_count_until_its_holder_must_know() {
    // The lease is 30, with a refresh every 10 that takes up to 5.
    let first = [asks(1, 1, 1), holds(2, 1, 1, 10, 100)];
    let second = |at| [asks(9, 2, 1), holds(at, 2, 1, 11, 200), releases(at + 1, 2, 1)];
    let with = |second: &[Event], more: &[Event]| broken(&[&first[..], second, more].concat());
    assert_eq!(with(&second(20), &[]), ["over-admission"]);
    assert_eq!(with(&second(20), &[unsettled(9, 10, 10)]), NONE);
    assert_eq!(with(&second(20), &[unsettled(9, 10, 9)]), ["over-admission"]);
    assert_eq!(with(&second(26), &[unsettled(9, 10, 10)]), ["over-admission"]);
    let refreshed = |until| event(16, 1, What::Refreshed { turn: 1, until, by_hand: false });
    let with_refresh = |until| with(&second(20), &[unsettled(9, 10, 10), refreshed(until)]);
    assert_eq!(with_refresh(41), ["over-admission"], "refreshed since");
    assert_eq!(with_refresh(40), NONE, "the refresh was requested before");
}

#[test]
fn a_forgotten_permit_counts_until_the_limit_is_set_again() {
    let forgets = event(10, 1, What::Releases { turn: 1, how: How::Forget });
    let answered = |held| event(12, 1, What::Released { turn: 1, held });
    let first = [asks(1, 1, 1), holds(2, 1, 1, 10, 100), forgets];
    let second = [asks(20, 2, 1), holds(30, 2, 1, 11, 200), releases(31, 2, 1)];
    let with = |more: &[Event]| broken(&[&first[..], &second, more].concat());
    assert_eq!(with(&[answered(true)]), ["over-admission"]);
    assert_eq!(with(&[&[answered(true)][..], &limit(25, 1)].concat()), NONE);
    assert_eq!(with(&[&[answered(true)][..], &limit(9, 1)].concat()), ["over-admission"]);
    // The order of the two events is unknown, so the permit may or may not reduce the new limit.
    assert_eq!(with(&[&[answered(true)][..], &limit(11, 1)].concat()), NONE);
    assert_eq!(with(&[answered(false)]), ["taken away"]);
    assert_eq!(with(&[]), NONE);
}

fn offers(at: Moment, process: u32) -> Event {
    event(at, process, What::Offers { turn: 1, detached: String::new() })
}

#[test]
fn the_checker_detects_two_holders_of_the_same_permit() {
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
    // The permit counts from the moment at which it was detached.
    let others = |at| [4, 5].map(|process| [asks(5, process, 1), holds(at, process, 1, 11, 20)]);
    let tokens = |others: [[Event; 2]; 2]| [&others.concat()[..], &adopts(2, 15, 30)].concat();
    let reported = [4, 5].map(|process| event(20, process, What::Lost { turn: 1 }));
    let judged = with(&[&tokens(others(11))[..], &reported].concat());
    assert!(judged.contains(&"over-admission".to_owned()), "{judged:?}");
}

#[test]
fn the_checker_detects_an_owner_that_reports_an_adoption_too_late() {
    // The lease is 30, with a refresh every 10 that takes up to 5.
    let owner = [asks(1, 1, 1), holds(2, 1, 1, 10, 100), offers(10, 1)];
    let asks = asks_for(11, 2, 1, Call::Adopt, 0);
    let adopter = [asks, holds(15, 2, 1, 10, 100), releases(50, 2, 1)];
    let lost = |at| event(at, 1, What::Lost { turn: 1 });
    let reported = |at| broken(&[&owner[..], &adopter, &[lost(at)]].concat());
    assert_eq!(reported(30), NONE);
    assert_eq!(reported(31), ["over-admission", "one holder", "taken away"]);
    // If a fault or a stop delays the refresh, the duration of the fault or stop extends the
    // deadline.
    let fault = [
        event(20, ALL, What::Fault { kind: "hold".to_owned(), spoils_order: true }),
        event(33, ALL, What::Healed { kind: "hold".to_owned() }),
    ];
    let stop = [event(28, 1, What::Stopped), event(41, 1, What::Continued)];
    for held_up in [fault, stop] {
        let reported = |at| broken(&[&owner[..], &adopter, &held_up, &[lost(at)]].concat());
        assert_eq!(reported(43), NONE);
        assert_eq!(reported(44), ["over-admission", "one holder", "taken away"]);
    }
    // The permit may have been adopted and released, but not before the offer.
    assert_eq!(broken(&[&owner[..], &[lost(11)]].concat()), NONE);
    assert_eq!(broken(&[&owner[..], &[lost(9)]].concat()), ["taken away"]);
}

#[test]
fn after_let_expire_a_permit_counts_until_its_lease_expires() {
    let left = |how| {
        [asks(1, 1, 1), holds(2, 1, 1, 10, 31), event(10, 1, What::Releases { turn: 1, how })]
    };
    let answered = event(12, 1, What::Released { turn: 1, held: true });
    let next = |at| [asks(5, 2, 1), holds(at, 2, 1, 11, 200), releases(at + 1, 2, 1)];
    let with = |how, more: &[Event], at| broken(&[&left(how)[..], more, &next(at)].concat());
    let answered = std::slice::from_ref(&answered);
    // The lease starts with `let_expire`. The server counts time in units of 1.
    assert_eq!(with(How::Leave, answered, 38), ["over-admission"]);
    assert_eq!(with(How::Leave, answered, 39), NONE);
    // Without a result, the lease starts with the earlier refresh, at 1.
    assert_eq!(with(How::DroppedLeave, &[], 29), ["over-admission"]);
    assert_eq!(with(How::LeavingDrop, &[], 30), NONE);
    assert_eq!(with(How::Drop, &[], 29), NONE);
    // The permit may have been lost after `let_expire`. A loss before `let_expire` is ruled out,
    // because the call found the permit held.
    let lost = |since, at| [answered, &[unsettled(since, at, 10)]].concat();
    assert_eq!(with(How::Leave, &lost(19, 20), 19), NONE);
    assert_eq!(with(How::Leave, &lost(19, 20), 18), ["over-admission"]);
    assert_eq!(with(How::Leave, &lost(8, 9), 38), ["over-admission"]);
}

fn asks_of_group(at: Moment, process: u32, group: u32) -> Event {
    let (turn, semaphore, weight, call, ahead) = (1, 0, 1, Call::Acquire, 0);
    event(at, process, What::Asks { turn, semaphore, weight, group, call, ahead })
}

/// The cap is 2.
#[test]
fn the_checker_detects_a_group_that_holds_more_than_its_cap() {
    let turn = |process, group, from, to| {
        [
            asks_of_group(1, process, group),
            holds(from, process, 1, from, 500),
            releases(to, process, 1),
        ]
    };
    let two = [limit(0, 9).to_vec(), turn(1, 1, 10, 50).into(), turn(2, 1, 11, 40).into()].concat();
    let with = |third: [Event; 3]| broken(&[&two[..], &third].concat());
    assert_eq!(with(turn(3, 1, 12, 60)), ["caps"]);
    assert_eq!(with(turn(3, 2, 12, 60)), NONE, "another group");
    assert_eq!(with(turn(3, 0, 12, 60)), NONE, "no group");
    assert_eq!(with(turn(3, 1, 40, 60)), NONE, "later");
}
