//! Tests of bounded work with groups. No call does work for each group, or for each dead waiter.
//! The tests count commands.

use super::super::bounds::{many, members};
use super::{Timed, holders, start};

/// A call that serves no waiter runs at most this many commands.
const FEW: i64 = 30;
/// The number of commands for a permit that is released and granted to a waiter.
const HANDOFF: i64 = 12;
/// The number of waiters that a call may examine, and of requests in a call.
const BOUND: i64 = 1000;
const MANY: usize = 100_000;

/// Makes calls of 1,000 requests each, with numbers that continue from call to call.
fn acquire_many(semaphore: &mut Timed, limit: i64, count: usize, request: &str) {
    for thousand in 0..count / 1000 {
        semaphore.acquire(limit, &many(1000, &request.replace('%', &format!("{thousand}-%"))));
    }
}

/// Returns the reply, and the number of commands that the script ran.
fn counted(semaphore: &mut Timed, script: &str, arguments: &str) -> (Vec<i64>, i64) {
    let (reply, commands) = semaphore.commands_of(|semaphore| semaphore.ok(script, arguments));
    (reply, commands.in_scripts())
}

fn turn(semaphore: &mut Timed, group: &str) -> Option<f64> {
    let key = semaphore.key("turns");
    semaphore.command(&format!("ZSCORE {key} {group}"))
}

#[test]
fn no_call_visits_100000_groups_at_their_caps() {
    let (mut semaphore, limit) = (start(), 2 * MANY as i64);
    acquire_many(&mut semaphore, limit, MANY, "held%@g%,1,1 1 600000 try");
    acquire_many(&mut semaphore, limit, MANY, "waits%@g%,1,1 1 600000 wait");
    assert_eq!(members(&mut semaphore, "queue"), MANY as i64);
    let head = format!("declare_if_unset {limit} client poll 600000");
    for (script, arguments) in [
        ("acquire", format!("{head} one@other,1,0 1 600000 try")),
        ("acquire", format!("{head} two@other,1,0 1 600000 wait")),
        ("acquire", format!("{head} three 1 600000 wait")),
        ("acquire", format!("{head} more@g7-7,1,1 1 600000 wait")),
        ("refresh", "held5-5 600000".to_owned()),
        ("release", "return one two".to_owned()),
        ("release", "return held5-6".to_owned()),
        ("release", "return waits5-7".to_owned()),
        ("limit", format!("declare {}", limit + 1)),
        ("wake", String::new()),
    ] {
        let (_, commands) = counted(&mut semaphore, script, &arguments);
        assert!(commands <= FEW, "{script} {arguments}: {commands} commands");
    }
    // The released permit of a group is granted to the waiter of this group, and to no other.
    let all = MANY as i64;
    assert_eq!(members(&mut semaphore, "queue"), all - 1);
    assert!(holders(&mut semaphore).contains(&"waits5-6".to_owned()));
}

/// A canceled request leaves the end of its group's turn in `turns`. When the virtual time has
/// reached these ends, each further end of a turn removes two of them.
#[test]
fn the_turns_of_100000_canceled_groups_are_forgotten_two_at_a_time() {
    let mut semaphore = start();
    semaphore.acquire(1, "holder 1 600000 try");
    for thousand in 0..MANY / 1000 {
        let requests = many(1000, &format!("id{thousand}-%@g{thousand}-%,1,0 1 600000 wait"));
        semaphore.acquire(1, &requests);
        let canceled = many(1000, &format!("id{thousand}-%"));
        let (_, commands) = counted(&mut semaphore, "release", &format!("return {canceled}"));
        assert!(commands <= HANDOFF * BOUND, "{commands} commands");
    }
    let ended = MANY as i64 + 1; // and the member `*`
    assert_eq!((members(&mut semaphore, "turns"), members(&mut semaphore, "queue")), (ended, 0));
    semaphore.acquire(1, "first@busy,1,0 1 600000 wait second@busy,1,0 1 600000 wait");
    semaphore.ok("release", "return holder");
    semaphore.ok("release", "return first");
    let mut left = members(&mut semaphore, "turns");
    for number in 0..40 {
        let request = format!("id{number}@new{number},1,0 1 600000 wait");
        semaphore.acquire(1, &request);
        let (_, commands) = counted(&mut semaphore, "release", &format!("return id{number}"));
        assert!(commands <= FEW, "{commands} commands");
        // This group is remembered, and two others are forgotten.
        left -= 1;
        assert_eq!(members(&mut semaphore, "turns"), left);
    }
}

#[test]
fn two_thousand_dead_waiters_cost_their_group_no_share() {
    let mut semaphore = start();
    semaphore.acquire(1, "holder 1 600000 try");
    for thousand in 0..2 {
        let dead = many(1000, &format!("dead{thousand}-%@a,1,0 1 600000 wait"));
        semaphore.acquire_for(1, "dead poll 1000", &dead);
    }
    semaphore.acquire(1, &many(2, "a%@a,1,0 1 600000 wait"));
    semaphore.acquire(1, &many(2, "b%@b,1,0 1 600000 wait"));
    semaphore.pass(1001);
    let start_of_turn = turn(&mut semaphore, "a");
    let (reply, mut commands) = counted(&mut semaphore, "release", "return holder");
    assert_eq!((reply[1], members(&mut semaphore, "queue")), (0, 1004));
    assert_eq!(turn(&mut semaphore, "a"), start_of_turn);
    let mut calls = 0;
    while members(&mut semaphore, "queue") > 3 {
        assert!(commands <= HANDOFF * BOUND, "{commands} commands");
        (_, commands) = counted(&mut semaphore, "wake", "");
        calls += 1;
    }
    assert_eq!((calls, holders(&mut semaphore)), (2, vec!["a0".to_owned()]));
    for (held, next) in [("a0", "b0"), ("b0", "a1"), ("a1", "b1")] {
        semaphore.ok("release", &format!("return {held}"));
        assert_eq!(holders(&mut semaphore), [next]);
    }
}

#[test]
fn a_call_that_stops_at_its_bound_in_the_only_group_asks_for_a_wake() {
    let mut semaphore = start();
    semaphore.acquire(1, "holder 1 600000 try");
    for thousand in 0..2 {
        let dead = many(1000, &format!("dead{thousand}-%@a,1,0 1 600000 wait"));
        semaphore.acquire_for(1, "dead poll 1000", &dead);
    }
    semaphore.acquire(1, "live@a,1,0 1 600000 wait");
    semaphore.pass(1001);
    assert_eq!(semaphore.ok("release", "return holder")[1], 0);
    semaphore.ok("wake", "");
    semaphore.ok("wake", "");
    assert_eq!(holders(&mut semaphore), ["live"]);
}

#[test]
fn a_thousand_permits_of_as_many_groups_are_granted_to_waiters_of_500_groups() {
    let mut semaphore = start();
    semaphore.acquire(BOUND, &many(1000, "old%@g%,1,1 1 600000 try"));
    for number in 0..2 {
        let waiters = many(500, &format!("new{number}-%@w%,1,2 1 600000 wait"));
        semaphore.acquire(BOUND, &waiters);
    }
    let release = format!("return {}", many(1000, "old%"));
    let (reply, commands) = counted(&mut semaphore, "release", &release);
    assert!(reply[2..].iter().all(|entry| *entry == 1));
    assert!(commands <= HANDOFF * BOUND + FEW, "{commands} commands");
    assert_eq!((reply[1], members(&mut semaphore, "queue")), (-1, 0));
    let all = holders(&mut semaphore);
    assert!(all.len() == 1000 && all.iter().all(|name| name.starts_with("new")), "{all:?}");
}

/// Returns the number of commands of a handoff while two requests of each group wait.
fn handoff(groups: usize) -> i64 {
    let mut semaphore = start();
    semaphore.acquire(1, "holder@g0,1,0 1 600000 try");
    for number in 0..2 {
        for thousand in 0..groups.div_ceil(1000) {
            let request = format!("id{number}-{thousand}-%@g{thousand}-%,1,5 1 600000 wait");
            semaphore.acquire(1, &many(groups.min(1000), &request));
        }
    }
    let (reply, commands) = counted(&mut semaphore, "release", "return holder");
    assert_eq!((reply[1..].to_vec(), holders(&mut semaphore).len()), (vec![-1, 1], 1));
    assert_eq!(members(&mut semaphore, "queue"), 2 * groups as i64 - 1);
    commands
}

#[test]
fn a_handoff_costs_the_same_with_1_group_and_with_10000_groups() {
    let commands = [1, 100, 10_000].map(handoff);
    assert_eq!(commands, [commands[0]; 3]);
}
