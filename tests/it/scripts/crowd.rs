//! If many clients wait, the scripts ask only some of these clients to call `wake` at the next
//! expiry. Live waiters pass the dead waiters in the queue. The holder's lease expires after ten
//! minutes.

use super::START_US;
use super::bounds::many;
use super::responses::outcomes;
use super::timed::Timed;

/// The value of CALLERS in lua/lib/queue.lua.
const CALLERS: usize = 16;
const HEARTBEAT_TIMEOUT: i64 = 15_000;

fn one_holds() -> Timed {
    let mut semaphore = Timed::start();
    semaphore.acquire(1, "holder 1 600000 try");
    semaphore
}

/// Queues a request of this client, or sends a heartbeat. Returns `wake_in` and the position.
fn ask(semaphore: &mut Timed, client: &str, how: &str, place: i64) -> (i64, i64) {
    let place = if place == 0 { "wait".to_owned() } else { place.to_string() };
    let arguments =
        format!("declare_if_unset 1 {client} {how} {HEARTBEAT_TIMEOUT} {client} 1 60000 {place}");
    let reply = semaphore.ok("acquire", &arguments);
    (reply[1], outcomes(&reply)[0].position())
}

/// Returns the clients that are asked to call `wake`. Each client sends a heartbeat with its
/// ticket.
fn named(semaphore: &mut Timed, clients: std::ops::Range<usize>) -> Vec<usize> {
    let ticket = semaphore.now() * 1000;
    let is_named = |client: &usize| ask(semaphore, &format!("c{client}"), "poll", ticket).0 > 0;
    clients.filter(is_named).collect()
}

#[test]
fn all_waiting_clients_are_asked_to_call_wake_if_only_a_few_wait() {
    let mut semaphore = one_holds();
    // Only the number of clients matters, not the number of requests.
    semaphore.acquire_for(1, "many poll 15000", &many(500, "id% 1 60000 wait"));
    for client in 1..CALLERS {
        assert_eq!(ask(&mut semaphore, &format!("c{client}"), "poll", 0).0, 600_000, "{client}");
    }
}

#[test]
fn only_some_clients_at_a_time_are_asked_to_call_wake_if_many_wait() {
    let mut semaphore = one_holds();
    for client in 0..800 {
        ask(&mut semaphore, &format!("c{client}"), "poll", 0);
    }
    let mut seen = Vec::new();
    for _ in 0..10 {
        semaphore.pass(HEARTBEAT_TIMEOUT);
        // The script knows that all clients are alive only after each client has sent one
        // heartbeat.
        named(&mut semaphore, 0..800);
        let now = named(&mut semaphore, 0..800);
        assert!((4..=40).contains(&now.len()), "{now:?}");
        assert!(now.contains(&0), "the client at the head");
        assert_eq!(named(&mut semaphore, 0..800), now, "the same clients in repeated calls");
        seen.push(now);
    }
    let all: std::collections::BTreeSet<usize> = seen.iter().flatten().copied().collect();
    assert!(all.len() > 80, "always the same clients: {all:?}");
}

#[test]
fn the_client_at_the_head_of_the_queue_is_always_asked_to_call_wake() {
    let mut semaphore = one_holds();
    ask(&mut semaphore, "head", "poll", 0);
    for client in 0..200 {
        ask(&mut semaphore, &format!("c{client}"), "poll", 0);
    }
    for turn in 0..30 {
        let more =
            format!("declare_if_unset 1 head poll {HEARTBEAT_TIMEOUT} more{turn} 1 60000 wait");
        assert!(semaphore.ok("acquire", &more)[1] > 0, "{turn}");
        semaphore.pass(1000);
        ask(&mut semaphore, "head", "poll", 1);
    }
}

/// The dead waiters belong to many clients. As long as the clients of the dead waiters may still be
/// alive, only some of the clients behind the dead waiters are asked to call `wake`.
#[test]
fn clients_without_recent_heartbeats_do_not_count_as_a_crowd() {
    let mut semaphore = one_holds();
    for client in 0..300 {
        ask(&mut semaphore, &format!("dead{client}"), "poll", 0);
    }
    let crowded = (0..40).filter(|n| ask(&mut semaphore, &format!("c{n}"), "poll", 0).0 > 0);
    assert!(crowded.count() < 20);
    semaphore.pass(HEARTBEAT_TIMEOUT * 2 / 5 + 1);
    let (wake_in, position) = ask(&mut semaphore, "c7", "poll", 1);
    assert_eq!(
        (wake_in, position),
        (600_000 - HEARTBEAT_TIMEOUT * 2 / 5 - 1, 308),
        "still queued behind the dead waiters"
    );
}

#[test]
fn a_heartbeat_in_a_crowd_removes_dead_waiters_at_the_head_of_the_queue() {
    let mut semaphore = one_holds();
    let mut listeners: Vec<_> = (0..3).map(|n| semaphore.listen(&format!("live{n}"))).collect();
    for client in 0..300 {
        ask(&mut semaphore, &format!("dead{client}"), "publish", 0);
    }
    for client in 0..3 {
        let (_, position) = ask(&mut semaphore, &format!("live{client}"), "publish", 0);
        assert_eq!(position, 301 + client, "a new request removes no dead requests");
    }
    semaphore.pass(1000);
    let (_, position) = ask(&mut semaphore, "live2", "publish", 1);
    assert_eq!(position, 3);
    let (wake_in, position) = ask(&mut semaphore, "live0", "publish", 1);
    assert_eq!((wake_in, position), (599_000, 1), "at the head, so it must call `wake`");
    for listener in &mut listeners {
        listener.expect_silence(&mut semaphore.scripts.raw);
    }
    // A waiter that was not dead returns to its position.
    let _back = semaphore.listen("dead0");
    assert_eq!(ask(&mut semaphore, "dead0", "publish", START_US + 1).1, 1);
    assert_eq!(semaphore.inspect().queued, 4);
}

#[test]
fn a_heartbeat_removes_dead_waiters_also_if_a_call_begins_with_another_request() {
    let mut semaphore = one_holds();
    for client in 0..30 {
        ask(&mut semaphore, &format!("dead{client}"), "publish", 0);
    }
    let _listener = semaphore.listen("live");
    ask(&mut semaphore, "live", "publish", 0);
    semaphore.pass(1000);
    let arguments = format!(
        "declare_if_unset 1 live publish {HEARTBEAT_TIMEOUT} other 1 60000 try live 1 60000 1"
    );
    let reply = semaphore.ok("acquire", &arguments);
    assert_eq!((reply[1], outcomes(&reply)[1].position()), (599_000, 1));
}

/// Requests that do not fit and requests that are too heavy stay in the queue, because no permit is
/// free.
#[test]
fn a_heartbeat_in_a_crowd_removes_no_live_waiter_from_the_queue() {
    let mut semaphore = one_holds();
    semaphore.ok("limit", "declare 5");
    semaphore.acquire(5, "rest 4 600000 try");
    semaphore.acquire_for(5, "heavy poll 15000", "heavy 5 60000 wait");
    for client in 0..30 {
        let request = format!("light{client} 1 60000 wait");
        semaphore.acquire_for(5, &format!("c{client} poll 15000"), &request);
    }
    semaphore.ok("limit", "declare 2");
    semaphore.pass(1);
    semaphore.acquire_for(2, "c3 poll 15000", "light3 1 60000 1");
    assert_eq!(semaphore.inspect().queued, 31);
}
