use super::*;

#[test]
fn the_checker_detects_a_loss_that_is_reported_late_or_never() {
    let held = [asks(1, 1, 1), holds(2, 1, 1, 10, 50)];
    let then = |event: Event| broken(&[&held[..], &[event]].concat());
    assert_eq!(then(event(60, 1, What::Lost { turn: 1 })), NONE);
    assert_eq!(then(event(61, 1, What::Lost { turn: 1 })), ["losses"]);
    assert_eq!(then(event(100, 2, What::Killed)), ["losses"], "the loss is never reported");
    assert_eq!(then(event(40, 1, What::Killed)), NONE);
    let stopped = [event(45, 1, What::Stopped), event(90, 1, What::Continued)];
    let reported = [event(91, 1, What::Lost { turn: 1 })];
    assert_eq!(broken(&[&held[..], &stopped, &reported].concat()), NONE);
}

#[test]
fn the_checker_detects_a_process_that_dies_without_reporting_a_loss() {
    let held = [asks(1, 1, 1), holds(2, 1, 1, 10, 50)];
    let dies = |at| broken(&[&held[..], &[event(at, 1, What::Killed)]].concat());
    assert_eq!(dies(60), NONE);
    assert_eq!(dies(61), ["losses"]);
    // Only the time in which a process is stopped is excused.
    let stopped = [event(45, 1, What::Stopped), event(55, 1, What::Continued)];
    let reported = |at| {
        let reported = event(at, 1, What::Lost { turn: 1 });
        broken(&[&held[..], &stopped, &[reported]].concat())
    };
    assert_eq!(reported(65), NONE);
    assert_eq!(reported(66), ["losses"]);
}

#[test]
fn the_checker_detects_a_permit_that_is_lost_without_a_reason() {
    let held = [asks(1, 1, 1), holds(2, 1, 1, 10, 50)];
    let lost = event(20, 1, What::Lost { turn: 1 });
    let with = |events: &[Event]| broken(&[&held[..], events].concat());
    assert_eq!(with(std::slice::from_ref(&lost)), ["taken away"]);
    assert_eq!(with(&[unsettled(9, 10, 10), lost.clone()]), NONE);
    // The permit was granted after the loss of data, was reported lost too late, or was refreshed
    // after the loss of data.
    assert_eq!(with(&[unsettled(9, 10, 9), lost.clone()]), ["taken away"]);
    assert_eq!(with(&[unsettled(3, 4, 10), lost.clone()]), ["taken away"]);
    let refreshed = event(15, 1, What::Refreshed { turn: 1, until: 41, by_hand: false });
    assert_eq!(with(&[unsettled(9, 10, 10), refreshed, lost]), ["taken away"]);

    let answered =
        |at, held| with(&[releases(20, 1, 1), event(at, 1, What::Released { turn: 1, held })]);
    assert_eq!(answered(22, true), NONE);
    assert_eq!(answered(22, false), ["taken away"]);
    // The lease may have expired before the reply arrived.
    assert_eq!(answered(50, false), NONE);
}
