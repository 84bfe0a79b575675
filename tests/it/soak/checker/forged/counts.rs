use super::*;

#[test]
fn the_checker_detects_wrong_metrics() {
    // The history has one permit that is granted after 1 ns and released after 4 ns more, and one
    // request for each other result.
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
    // Another process makes this request.
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
        let counted = event(10, 1, What::Counted { semaphore: 0, counts, is_all_reported: true });
        broken(&[&history[..], &[counted]].concat())
    };
    assert_eq!(with(right.clone()), NONE);
    let at_once =
        Counts { immediate: 1, waited: 0, wait_times: 0, wait_time: 0.0, ..right.clone() };
    assert_eq!(with(at_once), NONE);
    for wrong in [
        Counts { immediate: 1, ..right.clone() },
        Counts { wait_times: 0, ..right.clone() },
        Counts { adopted: 1, ..right.clone() },
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

/// The semaphore's tasks do not report everything.
#[test]
fn the_checker_detects_unbalanced_metrics() {
    let right = Counts {
        immediate: 1,
        waited: 2,
        adopted: 3,
        wait_times: 2,
        hold_times: 6,
        lost: 6,
        cancelled: 7,
        ..Counts::default()
    };
    let with = |counts: Counts| {
        broken(&[event(10, 1, What::Counted { semaphore: 0, counts, is_all_reported: false })])
    };
    assert_eq!(with(right.clone()), NONE);
    for wrong in [
        Counts { immediate: 0, ..right.clone() },
        Counts { adopted: 4, ..right.clone() },
        Counts { wait_times: 1, ..right.clone() },
        Counts { hold_times: 5, ..right.clone() },
        Counts { lost: 7, ..right.clone() },
        Counts { held: 1, ..right.clone() },
        Counts { waiting: 1, ..right.clone() },
    ] {
        assert_eq!(with(wrong.clone()), ["metrics"], "{wrong:?}");
    }
}
