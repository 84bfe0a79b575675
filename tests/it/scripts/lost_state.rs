//! Tests in which the state is lost while thousands of holders exist. Each script recovers in one
//! bounded call.

use super::bounds::{bounded, many};
use super::{Outcome, Timed};

const HOLDERS: usize = 100_000;

/// Returns a semaphore with permits of weights 1 to 5 that use the whole limit.
fn full() -> (Timed, i64) {
    let mut semaphore = Timed::start();
    let limit = HOLDERS as i64 * 3;
    for thousand in 0..HOLDERS / 1000 {
        let weights: Vec<_> = (1..=5)
            .map(|weight| many(200, &format!("id{thousand}-{weight}-% {weight} 600000 try")))
            .collect();
        let outcomes = semaphore.acquire(limit, &weights.join(" "));
        assert!(outcomes.iter().all(|outcome| outcome.is_granted()));
    }
    semaphore.acquire_for(limit, "poller poll 600000", "waiter 2 600000 wait");
    (semaphore, limit)
}

#[test]
fn each_script_recovers_from_a_lost_state_with_100000_holders() {
    let (mut semaphore, limit) = full();
    // `returned` is the weight that the call itself releases. The waiters get that weight as soon
    // as a limit is known.
    for (script, arguments, returned) in [
        ("acquire", "declare_if_unset LIMIT client poll 600000 tried 1 60000 try", 0),
        ("acquire", "declare_if_unset LIMIT client poll 600000 new 1 60000 wait", 0),
        ("acquire", "declare_if_unset LIMIT client poll 600000 id7-5-7 5 600000 try", 0),
        ("refresh", "id9-4-9 600000 nobody 1", 0),
        ("wake", "", 0),
        ("limit", "declare LIMIT", 0),
        ("limit", "initial LIMIT", 0),
        ("release", "return nobody", 0),
        ("release", "return id50-2-100", 2),
        ("release", "forget id99-3-199", 3),
    ] {
        let held = semaphore.inspect().held;
        semaphore.lose("state");
        bounded(&mut semaphore, script, &arguments.replace("LIMIT", &limit.to_string()));
        assert_eq!(semaphore.inspect().held, held - returned, "{script} {arguments}");
        semaphore.assert_weights_agree();
    }
    // Only the released weight is granted.
    let reply = bounded(&mut semaphore, "limit", &format!("declare {limit}"));
    assert_eq!(reply[1], -1);
    let inspection = semaphore.inspect();
    assert_eq!((inspection.held, inspection.queued), (limit - 2, 0));
    let tries = semaphore.acquire(limit, &many(10, "more% 1 60000 try"));
    let granted = tries.iter().filter(|outcome| outcome.is_granted()).count();
    assert_eq!(granted, 2);
    assert_eq!(tries[2], Outcome::Refused);
    assert_eq!(semaphore.inspect().held, limit);
    semaphore.assert_weights_agree();
}

#[test]
fn nothing_is_granted_until_a_limit_is_known_again() {
    let mut semaphore = Timed::start();
    semaphore.acquire(1, "held 1 600000 try");
    semaphore.acquire(1, "waiting 1 600000 wait");
    semaphore.lose("state");
    for (script, arguments) in [("release", "return held"), ("wake", "")] {
        semaphore.ok(script, arguments);
        let inspection = semaphore.inspect();
        assert_eq!((inspection.held, inspection.queued), (0, 1), "{script}");
    }
    semaphore.ok("limit", "declare 1");
    assert_eq!(semaphore.inspect().held, 1);
}
