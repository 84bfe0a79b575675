use super::*;

#[test]
fn the_checker_detects_a_request_that_overtakes_a_waiter() {
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
    // The requests or the grants may have overtaken each other on the network.
    assert_eq!(broken(&overtaken(6, 21)), NONE);
    assert_eq!(broken(&overtaken(7, 20)), NONE);
    // The first request may lose its position when its own connection fails, but not when another
    // process's connection fails.
    let fault = |healed, spoils_order| {
        let kind = "cut".to_owned();
        let begins = event(2, ALL, What::Fault { kind: kind.clone(), spoils_order });
        [begins, event(healed, ALL, What::Healed { kind })]
    };
    assert_eq!(broken(&[&overtaken(7, 21)[..], &fault(6, true)].concat()), NONE);
    assert_eq!(broken(&[&overtaken(7, 21)[..], &fault(6, false)].concat()), ["order"]);
    // An earlier fault is no excuse if the process had enough time to subscribe again.
    assert_eq!(broken(&[&overtaken(7, 21)[..], &fault(4, true)].concat()), NONE);
    assert_eq!(broken(&[&overtaken(7, 21)[..], &fault(3, true)].concat()), ["order"]);
    // The first request may be skipped if its process has just begun to subscribe.
    let within = |subscribing| Bounds { subscribing, ..BOUNDS };
    let earlier = [asks(2, 1, 0), event(3, 1, What::GivesUp { turn: 0, why: Why::Refused })];
    assert_eq!(broken_within(within(1), &overtaken(7, 21)), NONE);
    let with_earlier = [&overtaken(7, 21)[..], &earlier].concat();
    assert_eq!(broken_within(within(4), &with_earlier), NONE);
    assert_eq!(broken_within(within(3), &with_earlier), ["order"]);
}

#[test]
fn the_checker_detects_a_request_that_overtakes_beyond_its_head_start() {
    let ids = || vec!["1/1".to_owned()];
    let overtakes_from = |start: Moment, clock: &[Event], call, ahead| {
        let history = [
            asks(start + 5, 1, 1),
            event(start + 6, ALL, What::Queued { ids: ids() }),
            asks_for(start + 10, 2, 1, call, ahead),
            holds(start + 20, 2, 1, 10, start + 100),
            event(start + 24, ALL, What::Left { ids: ids(), until: start + 21 }),
            releases(start + 30, 2, 1),
            holds(start + 31, 1, 1, 11, start + 100),
            releases(start + 40, 1, 1),
        ];
        broken(&[clock, &history].concat())
    };
    let overtakes = |call, ahead| overtakes_from(0, &[], call, ahead);
    assert_eq!(overtakes(Call::HeadStart, 3), ["order"]);
    assert_eq!(overtakes(Call::HeadStart, 4), NONE);
    // Adopting a permit does not require a position in the queue.
    assert_eq!(overtakes(Call::Adopt, 0), NONE);
    // After the server's clock stepped back, a head start may overtake all requests that arrive
    // until the clock has caught up. From then on, arrival times count again.
    let set = |since, ahead| [event(since + 1, ALL, What::ClockIs { since, ahead })];
    assert_eq!(overtakes_from(0, &set(2, -100), Call::HeadStart, 0), NONE);
    assert_eq!(overtakes_from(0, &set(2, -100), Call::Acquire, 0), ["order"]);
    assert_eq!(overtakes_from(0, &set(8, -100), Call::HeadStart, 1), ["order"]);
    assert_eq!(overtakes_from(0, &set(8, -100), Call::HeadStart, 2), NONE);
    let later = 2_000_000_000;
    assert_eq!(overtakes_from(later, &set(2, -100), Call::HeadStart, 3), ["order"]);
    assert_eq!(overtakes_from(later, &set(2, -100), Call::HeadStart, 4), NONE);
    assert_eq!(overtakes_from(0, &set(7, 1000), Call::HeadStart, 1003), ["order"]);
    assert_eq!(overtakes_from(0, &set(7, 1000), Call::HeadStart, 1004), NONE);
    assert_eq!(overtakes_from(0, &set(10, 1000), Call::HeadStart, 4), NONE);
}

#[test]
fn the_checker_detects_a_wait_that_is_too_long() {
    let waits = |until| vec![asks(1, 1, 1), gives_up(until, Why::Dropped)];
    assert_eq!(broken(&waits(1001)), NONE);
    assert_eq!(broken(&waits(1002)), ["waits"]);
    assert_eq!(broken(&[asks(1, 1, 1), event(1500, 2, What::Killed)]), ["waits"], "still waits");
    assert_eq!(broken(&[asks(1, 1, 1), event(900, 1, What::Killed), asks(1500, 2, 1)]), NONE);
    // The duration of the fault is added to the longest allowed wait.
    let fault = [
        event(100, 0, What::Fault { kind: "pause".to_owned(), spoils_order: false }),
        event(200, 0, What::Healed { kind: "pause".to_owned() }),
    ];
    assert_eq!(broken(&[&waits(1101)[..], &fault].concat()), NONE);
    assert_eq!(broken(&[&waits(1102)[..], &fault].concat()), ["waits"]);
}

#[test]
fn requests_of_different_groups_may_overtake_each_other() {
    let overtaken = |groups: [u32; 2]| {
        let asks = |at, process: u32, group| {
            let (turn, semaphore, weight, call, ahead) = (1, 0, 1, Call::Acquire, 0);
            event(at, process, What::Asks { turn, semaphore, weight, group, call, ahead })
        };
        let ids = || vec!["1/1".to_owned()];
        broken(&[
            asks(5, 1, groups[0]),
            event(6, ALL, What::Queued { ids: ids() }),
            asks(7, 2, groups[1]),
            holds(20, 2, 1, 10, 100),
            event(24, ALL, What::Left { ids: ids(), until: 21 }),
            releases(30, 2, 1),
            holds(31, 1, 1, 11, 100),
            releases(40, 1, 1),
        ])
    };
    assert_eq!(overtaken([1, 1]), ["order"]);
    assert_eq!(overtaken([1, 2]), NONE);
    assert_eq!(overtaken([1, 0]), NONE);
}
