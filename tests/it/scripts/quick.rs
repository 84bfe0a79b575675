//! The quick ways of `acquire` and `release` answer and leave behind what the long ways would.

use super::{Queued, Timed, fresh};
use crate::support::scripts::Scripts;

#[test]
fn a_release_hands_on_when_the_server_is_out_of_memory() {
    // With one waiter the queue becomes empty, with two it does not; the same for the permits.
    for (limit, others) in [(1, ""), (1, "c 1 60000 wait"), (2, "x 1 60000 try")] {
        let mut semaphore = Timed::start();
        semaphore.acquire(limit, &format!("a 1 60000 try {others}"));
        assert!(matches!(semaphore.acquire_one(limit, "b 1 60000 wait"), Queued { .. }));
        semaphore.command::<()>("CONFIG SET maxmemory 1");
        assert_eq!(semaphore.ok("release", "return a")[2..], [1], "{others}");
        let head = if others.starts_with('c') { "c" } else { "b" };
        assert!(semaphore.inspect().holder_ids().contains(head), "{others}");
    }
}

/// A holder with a long lease passes on to one with a short lease, who crashes; then the clock steps
/// back. Whoever waits is served after the lease that is in use.
#[test]
fn the_longest_lease_is_that_of_those_who_were_passed_on_to() {
    const HOUR: i64 = 3_600_000;
    let mut semaphore = Timed::start();
    semaphore.acquire(1, "long 1 604800000 try");
    semaphore.acquire(1, "short 1 30000 wait last 1 30000 wait");
    assert_eq!(semaphore.ok("release", "return long")[2..], [1]);
    assert_eq!(semaphore.state()["longest"], "30000");
    semaphore.pass(-HOUR);
    semaphore.ok("wake", "");
    semaphore.pass(30_000);
    semaphore.ok("wake", "");
    assert_eq!(semaphore.inspect().holder_ids(), ["last"].into());
}

/// One of two requests holds already, and the queue is a key of something else.
#[test]
fn a_batch_with_an_id_that_holds_is_granted_or_changes_nothing() {
    let mut semaphore = fresh();
    semaphore.acquire(9, "a 1 60000 try");
    let queue = semaphore.key("queue");
    semaphore.command::<()>(&format!("SET {queue} foreign"));
    let requests = "declared 9 client poll 600000 b 1 60000 try a 1 60000 try";
    let before = semaphore.dump();
    match semaphore.call("acquire", requests) {
        Ok(_) => assert_eq!(semaphore.ok("release", "return a b")[2..], [1, 1]),
        Err(_) => assert_eq!(semaphore.dump(), before),
    }
}

#[test]
fn an_id_that_holds_is_granted_anew_in_a_batch_of_new_ones() {
    let mut semaphore = Timed::start();
    semaphore.acquire(9, "a 1 60000 try ended 1 1000 try");
    semaphore.pass(2000);
    semaphore.acquire(9, "b 1 60000 try");
    let outcomes = semaphore.acquire(9, "new 1 60000 try a 1 60000 try ended 1 60000 try");
    let tokens: Vec<_> = outcomes.iter().map(|outcome| outcome.token()).collect();
    assert!(tokens.is_sorted() && tokens[0] > tokens[2] - 3, "{tokens:?}");
    assert_eq!(semaphore.inspect().held, 4);
}

/// Nobody holds any more, so no lease is in use but the new one.
#[test]
fn the_longest_lease_is_that_of_an_id_whose_lease_had_ended() {
    let mut semaphore = Timed::start();
    semaphore.acquire(2, "long 1 600000 try ended 1 1 try");
    semaphore.pass(1);
    assert_eq!(semaphore.ok("release", "return long")[2..], [1]);
    semaphore.acquire(2, "ended 1 500 try");
    assert_eq!(semaphore.state()["longest"], "500");
}

/// After the loss of `state` nobody knows of the mark that an "add" left.
#[test]
fn a_mark_is_no_id_whatever_was_lost() {
    let mut semaphore = fresh();
    semaphore.acquire(3, "a 1 60000 try");
    semaphore.ok("limit", "add 1 mark");
    semaphore.lose("state");
    semaphore.acquire(9, "b 1 60000 try");
    assert_eq!(semaphore.refuses("release", "return +mark").code, "SEM_ARG");
}

/// Somebody holds, and somebody queues, as `state` says from then on.
fn contended() -> Scripts {
    let mut semaphore = fresh();
    semaphore.acquire_for(1, "client poll 1000", "held 1 60000 try first 1 60000 wait");
    semaphore
}

/// The keys that a waiter needs may be lost behind the back of `state`.
#[test]
fn whoever_queues_where_keys_were_lost_leaves_none_that_stay_for_ever() {
    for lost in [vec!["queue", "waiting"], vec!["queue"], vec!["waiting"]] {
        let mut semaphore = contended();
        lost.iter().for_each(|key| semaphore.lose(key));
        semaphore.acquire_for(1, "client poll 1000", "second 1 60000 wait");
        let expire: Vec<bool> = semaphore.dump().into_iter().map(|(_, expires)| expires).collect();
        assert_eq!(expire, [true; 4], "{lost:?} lost");
    }
}

#[test]
fn whoever_queues_behind_others_keeps_the_keys_for_as_long_as_it_may_be_silent() {
    let mut semaphore = contended();
    semaphore.acquire_for(1, "client poll 600000", "second 1 60000 wait");
    for key in ["permits", "queue", "waiting", "state"] {
        let key = semaphore.key(key);
        let left: i64 = semaphore.command(&format!("PTTL {key}"));
        assert!(left > 600_000, "{key} goes in {left} ms");
    }
}

#[test]
fn whoever_queues_behind_others_is_told_its_place_and_when_the_next_lease_ends() {
    let mut semaphore = Timed::start();
    semaphore.acquire_for(2, "client poll 60000", "a 1 5000 try b 1 9000 try c 1 7000 wait");
    semaphore.pass(1000);
    let head = "declared 2 client poll 60000";
    let reply = semaphore.ok("acquire", &format!("{head} d 1 7000 wait e 1 7000 wait"));
    let ticket = semaphore.now() * 1000;
    assert_eq!(reply, [semaphore.now(), 4000, 2, ticket, 2, 2, ticket + 1, 3]);
    assert_eq!(semaphore.inspect().waiters.len(), 3);
}
