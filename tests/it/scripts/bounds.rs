//! Tests of bounded work. Even with thousands of expired leases or dead waiters, no call fails or
//! takes long. The tests count commands and members, not time.

use std::ops::Range;

use super::{Commands, Granted, Timed};

const MANY: usize = 12_000;
/// The number of expired leases that a call may remove: 1,000, and the lease of the ID in the
/// arguments.
const MOST_PURGED: i64 = 1001;
/// The number of waiters that a call may examine.
const MOST_LOOKED_AT: i64 = 1000;
/// The number of commands that a call may run: two for each waiter or request that the call
/// examines, and a few for each chunk of members.
const MOST_COMMANDS: i64 = 2 * MOST_LOOKED_AT + 60;
/// The number of commands that a call may run if it examines no waiter.
const MOST_COMMANDS_OF_A_PURGE: i64 = 30;

/// Returns the requests of a call: copies of `request`, with a number in place of each %.
pub(super) fn many(count: usize, request: &str) -> String {
    numbered(0..count, request)
}

fn numbered(numbers: Range<usize>, request: &str) -> String {
    let with = |number: usize| request.replace('%', &number.to_string());
    numbers.map(with).collect::<Vec<_>>().join(" ")
}

/// Makes calls of 1,000 requests each, with numbers that continue from call to call.
fn in_calls_of_1000(request: &str, mut call: impl FnMut(&str)) {
    for thousand in 0..MANY / 1000 {
        call(&many(1000, &request.replace('%', &format!("{thousand}-%"))));
    }
}

/// Returns a semaphore with 12,000 permits of `weight` whose leases have expired.
fn all_ended(weight: i64) -> Timed {
    let mut semaphore = Timed::start();
    let limit = MANY as i64 * weight;
    in_calls_of_1000(&format!("id% {weight} 1000 try"), |requests| {
        let outcomes = semaphore.acquire(limit, requests);
        assert!(outcomes.iter().all(|outcome| outcome.is_granted()));
    });
    semaphore.pass(1000);
    semaphore
}

pub(super) fn members(semaphore: &mut Timed, key: &str) -> i64 {
    let name = semaphore.key(key);
    semaphore.command(&format!("ZCARD {name}"))
}

/// Makes a call that must keep the bounds, and returns the call's reply.
pub(super) fn bounded(semaphore: &mut Timed, script: &str, arguments: &str) -> Vec<i64> {
    let before = (members(semaphore, "permits"), members(semaphore, "queue"));
    let (reply, commands) = semaphore.commands_of(|semaphore| semaphore.ok(script, arguments));
    let after = (members(semaphore, "permits"), members(semaphore, "queue"));
    assert!(commands.in_scripts() <= MOST_COMMANDS, "{script}: {commands:?}");
    assert_purges(&commands, script);
    assert!(before.0 - after.0 <= MOST_PURGED, "{script}: {before:?} to {after:?}");
    assert!(before.1 - after.1 <= MOST_LOOKED_AT, "{script}: {before:?} to {after:?}");
    reply
}

/// Checks that a call does not repeat its searches for expired leases, for leases that expire too
/// late, and for dead clients.
fn assert_purges(commands: &Commands, script: &str) {
    assert!(commands.count("zrangebyscore") <= 5, "{script}: {commands:?}");
}

/// Calls `wake` until `wake_in` is no longer 0. Returns the number of calls.
pub(super) fn wake_while_asked(semaphore: &mut Timed, mut wake_in: i64) -> usize {
    let mut calls = 0;
    while wake_in == 0 {
        wake_in = bounded(semaphore, "wake", "")[1];
        calls += 1;
        assert!(calls <= MANY, "`wake_in` stays 0");
    }
    calls
}

#[test]
fn each_call_handles_12000_expired_leases_with_bounded_commands() {
    for weight in [1, 3] {
        let again = format!("declare_if_unset 1 client poll 600000 id0-0 {weight} 1000 wait");
        for (script, arguments) in [
            ("acquire", "declare_if_unset 1 client poll 600000 new 1 60000 try"),
            ("acquire", &again),
            ("refresh", "id0-0 1000"),
            ("release", "forget id0-0"),
            ("limit", "add 1 more"),
            ("limit", "declare 5"),
            ("wake", ""),
        ] {
            let mut semaphore = all_ended(weight);
            let (reply, commands) =
                semaphore.commands_of(|semaphore| semaphore.ok(script, arguments));
            assert!(commands.in_scripts() <= MOST_COMMANDS_OF_A_PURGE, "{script}: {commands:?}");
            if script == "acquire" {
                assert_eq!(reply[3], 1, "{arguments}: a permit is free behind expired leases");
            }
            semaphore.assert_weights_agree();
            wake_while_asked(&mut semaphore, 0);
            semaphore.assert_weights_agree();
            let left = semaphore.inspect().holders.len();
            assert_eq!(left, usize::from(script == "acquire"), "{script} {arguments}");
        }
    }
}

#[test]
fn expired_leases_are_removed_in_few_calls_after_the_limit_is_lowered() {
    for weight in [1, 3] {
        let mut semaphore = all_ended(weight);
        bounded(&mut semaphore, "limit", "declare 5");
        let head = "declare_if_unset 5 client poll 600000";
        let reply = bounded(&mut semaphore, "acquire", &format!("{head} new 5 60000 wait"));
        assert_eq!((reply[1], reply[3]), (0, 2), "queued, and `wake_in` is 0");
        let calls = wake_while_asked(&mut semaphore, reply[1]);
        assert!((10..13).contains(&calls), "{calls}");
        let inspection = semaphore.inspect();
        assert_eq!((inspection.held, inspection.members, inspection.queued), (5, 1, 0));
        semaphore.assert_weights_agree();
        semaphore.ok("release", "return new");
        let outcomes = semaphore.acquire(5, &many(6, "free% 1 60000 try"));
        let granted = outcomes.iter().filter(|outcome| outcome.is_granted()).count();
        assert_eq!(granted, 5);
    }
}

#[test]
fn a_repeated_try_is_granted_while_expired_leases_are_removed() {
    let mut semaphore = all_ended(1);
    bounded(&mut semaphore, "limit", "declare 5");
    let mut calls = 0;
    loop {
        let arguments = format!("declare_if_unset 5 client poll 600000 try{calls} 1 60000 try");
        let reply = bounded(&mut semaphore, "acquire", &arguments);
        calls += 1;
        if reply[3] == 1 {
            break;
        }
        assert_eq!(reply[1], 0, "not granted although a permit is free: `wake_in` must be 0");
        assert!(calls < 13);
    }
    assert_eq!(semaphore.inspect().held, 1);
}

#[test]
fn a_try_for_the_whole_limit_is_granted_after_wake_removed_expired_leases() {
    for weight in [1, 3] {
        let mut semaphore = all_ended(weight);
        let all = MANY as i64 * weight;
        let request = format!("declare_if_unset {all} client poll 600000 all {all} 60000 try");
        let reply = bounded(&mut semaphore, "acquire", &request);
        assert_eq!(reply[1..4], [0, all, 0], "not granted, and `wake_in` is 0");
        wake_while_asked(&mut semaphore, reply[1]);
        assert_eq!(bounded(&mut semaphore, "acquire", &request)[3], 1);
        assert_eq!(semaphore.inspect().held, all);
    }
}

#[test]
fn a_thousand_requests_are_granted_in_place_of_expired_leases() {
    let mut semaphore = all_ended(2);
    let limit = MANY as i64 * 2;
    let outcomes = semaphore.acquire(limit, &many(1000, "new% 2 60000 try"));
    assert!(outcomes.iter().all(|outcome| outcome.is_granted()));
    semaphore.assert_weights_agree();
    // The leases of these IDs have expired.
    let outcomes = semaphore.acquire(limit, &many(1000, "id9-% 2 1000 try"));
    assert!(outcomes.iter().all(|outcome| outcome.is_granted()));
    semaphore.assert_weights_agree();
    wake_while_asked(&mut semaphore, 0);
    assert_eq!(semaphore.inspect().held, 4000);
    semaphore.assert_weights_agree();
}

/// Returns a semaphore with one holder. 12,000 `dead` requests wait before "live".
fn long_queue(dead: &str, dead_client: impl Fn(usize) -> String) -> Timed {
    let mut semaphore = Timed::start();
    semaphore.acquire(1, "holder 1 600000 try");
    let mut calls = 0;
    in_calls_of_1000(dead, |requests| {
        let outcomes = semaphore.acquire_for(1, &dead_client(calls), requests);
        assert_eq!(outcomes[0].position(), calls as i64 * 1000 + 1);
        calls += 1;
    });
    let last = semaphore.acquire_for(1, "live publish 600000", "live 1 60000 wait")[0];
    assert_eq!(last.position(), MANY as i64 + 1);
    semaphore
}

fn reach_the_live_one(mut semaphore: Timed) {
    let mut listener = semaphore.listen("live");
    let reply = bounded(&mut semaphore, "release", "return holder");
    assert_eq!(reply[1], 0, "the call stopped at its bound");
    assert_eq!(members(&mut semaphore, "queue"), MANY as i64 + 1 - 1000);
    wake_while_asked(&mut semaphore, reply[1]);
    let live = semaphore.id("live");
    assert!(listener.message().starts_with(&format!("timed\n{live} ")));
    assert_eq!(members(&mut semaphore, "queue"), 0);
    assert_eq!(semaphore.inspect().holder_ids(), ["live"].into());
}

#[test]
fn twelve_thousand_waiters_without_recent_heartbeats_are_skipped() {
    let mut semaphore = long_queue("id% 1 60000 wait", |_| "client poll 1000".to_owned());
    semaphore.pass(1001);
    reach_the_live_one(semaphore);
}

#[test]
fn twelve_thousand_waiters_without_a_subscriber_are_skipped() {
    let client = |number| format!("dead{number} publish 600000");
    reach_the_live_one(long_queue("id% 1 60000 wait", client));
}

#[test]
fn twelve_thousand_waiters_whose_client_was_lost_are_skipped() {
    let mut semaphore = long_queue("id% 1 60000 wait", |_| "client poll 600000".to_owned());
    semaphore.lose("clients");
    semaphore.acquire_for(1, "live publish 600000", "live 1 60000 wait");
    reach_the_live_one(semaphore);
}

/// Each dead request has its own client, so the script must check each client.
#[test]
fn a_call_looks_up_at_most_1000_clients() {
    let mut semaphore = Timed::start();
    semaphore.acquire(1, "holder 1 600000 try");
    for number in 0..1500 {
        let client = format!("dead{number} publish 600000");
        semaphore.acquire_for(1, &client, &format!("id{number} 1 60000 wait"));
    }
    let (reply, commands) =
        semaphore.commands_of(|semaphore| semaphore.ok("release", "return holder"));
    assert!(commands.lookups_of_listeners() <= MOST_LOOKED_AT, "{commands:?}");
    assert_eq!(commands.count("publish"), 0);
    assert!(commands.in_scripts() <= MOST_COMMANDS, "{commands:?}");
    assert_eq!(reply[1], 0);
    assert_eq!(semaphore.ok("wake", "")[1..], [-1, 0]);
}

#[test]
fn a_thousand_permits_released_in_a_call_are_granted_to_a_thousand_waiters() {
    let mut semaphore = Timed::start();
    let mut listener = semaphore.listen("channel");
    semaphore.acquire(1000, &many(1000, "old% 1 60000 try"));
    let waiters = many(1000, "new% 1 60000 wait");
    semaphore.acquire_for(1000, "channel publish 600000", &waiters);
    let release = format!("return {}", many(1000, "old%"));
    let (reply, commands) = semaphore.commands_of(|semaphore| semaphore.ok("release", &release));
    assert_eq!(reply[1], -1);
    assert!(reply[2..].iter().all(|status| *status == 1));
    // All waiters belong to one client. The script looks up this client once, and notifies the
    // client once.
    assert_eq!((commands.lookups_of_listeners(), commands.count("publish")), (1, 1));
    assert!(commands.in_scripts() <= MOST_COMMANDS, "{commands:?}");
    let text = listener.message();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("timed"));
    for number in 0..1000 {
        let line = lines.next().unwrap();
        let id = semaphore.id(&format!("new{number}"));
        assert!(line.starts_with(&format!("{id} ")), "{line} as number {number}");
    }
    assert_eq!(lines.next(), None);
    let inspection = semaphore.inspect();
    assert_eq!((inspection.held, inspection.queued), (1000, 0));
    let again = semaphore.acquire_for(1000, "channel publish 600000", &waiters);
    assert!(again.iter().all(|outcome| matches!(outcome, Granted { .. })));
}

#[test]
fn wake_grants_the_permits_beyond_the_bound_of_one_call() {
    let mut semaphore = Timed::start();
    semaphore.ok("limit", "set 0");
    in_calls_of_1000("id% 1 60000 wait", |requests| {
        semaphore.acquire(1, requests);
    });
    let reply = bounded(&mut semaphore, "limit", "set 100000");
    assert_eq!(reply[1], 0);
    let calls = wake_while_asked(&mut semaphore, reply[1]);
    assert!((11..13).contains(&calls), "{calls}");
    assert_eq!(semaphore.inspect().held, MANY as i64);
}

#[test]
fn after_a_step_back_twelve_thousand_leases_are_shortened_in_chunks() {
    let mut semaphore = all_ended(1);
    semaphore.pass(-3_600_000);
    let reply =
        bounded(&mut semaphore, "acquire", "declare_if_unset 1 c poll 600000 new 1 60000 wait");
    assert_eq!(reply[3], 2);
    semaphore.pass(1000);
    let mut wake_in = 0;
    for _ in 0..100 {
        wake_in = bounded(&mut semaphore, "wake", "")[1];
        if wake_in == -1 {
            break;
        }
        semaphore.pass(wake_in);
    }
    assert_eq!(wake_in, -1, "the waiter should hold by now");
    assert_eq!(semaphore.inspect().queued, 0);
}

#[test]
fn after_a_step_back_twelve_thousand_permits_are_free_after_the_longest_lease() {
    let mut semaphore = all_ended(1);
    semaphore.pass(-3_600_000);
    let all = format!("declare_if_unset 1 c poll 600000 all {MANY} 60000 wait");
    let reply = bounded(&mut semaphore, "acquire", &all);
    wake_while_asked(&mut semaphore, reply[1]);
    semaphore.pass(1000);
    let reply = bounded(&mut semaphore, "wake", "");
    wake_while_asked(&mut semaphore, reply[1]);
    let inspection = semaphore.inspect();
    assert_eq!((inspection.members, inspection.queued), (1, 0));
    assert_eq!(inspection.held, MANY as i64);
}

/// Without a correction, all these clients would count as alive for too long.
#[test]
fn after_a_step_back_the_alive_times_of_1500_clients_are_shortened() {
    let mut semaphore = Timed::start();
    semaphore.acquire(1, "holder 1 600000 try");
    for number in 0..1500 {
        let client = format!("client{number} poll 30000");
        semaphore.acquire_for(1, &client, &format!("waiter{number} 1 60000 wait"));
    }
    semaphore.pass(-3_600_000);
    wake_while_asked(&mut semaphore, 0);
    let latest = semaphore.scores("clients").into_iter().map(|(_, until)| until).max();
    assert_eq!(latest, Some(semaphore.now() + 30_000));
}

/// A reported loss is final, even if the call did not remove the lease because of its bound.
#[test]
fn permits_reported_lost_among_thousands_stay_lost_after_a_step_back() {
    let mut semaphore = all_ended(1);
    let next = semaphore.id("id9-998");
    assert_eq!(semaphore.ok("refresh", "id9-997 1000")[2..], [0]);
    assert_eq!(semaphore.ok("refresh", &format!("id9-999 {next}"))[2..], [0]);
    semaphore.pass(-1);
    let reply = semaphore.ok("refresh", "id9-997 1000 id9-998 1000 id9-999 1000");
    assert_eq!(reply[2..], [0, 0, 0]);
    semaphore.assert_weights_agree();
}

/// One call removes at most 1,000 expired leases, so the lease of the released ID still exists.
#[test]
fn a_release_of_an_expired_lease_among_thousands_returns_unknown() {
    for how in ["return", "forget"] {
        let mut semaphore = Timed::start();
        for thousand in 0..3 {
            let requests = numbered(1000 * thousand..1000 * (thousand + 1), "id% 1 1000 try");
            semaphore.acquire(5000, &requests);
        }
        // All leases expire now.
        semaphore.pass(1000);
        for last in ["id2998", "id2999"] {
            let reply = semaphore.ok("release", &format!("{how} {last}"));
            assert_eq!(reply[1..], [0, 0], "{how}");
        }
        assert_eq!(semaphore.inspect().limit, 5000, "{how}");
        semaphore.assert_weights_agree();
    }
}

/// The granted request is the last request in the queue. The numbers of dead waiters are near the
/// maximum number of requests that a call examines.
#[test]
fn a_grant_behind_a_thousand_dead_waiters_leaves_an_empty_queue() {
    for dead in [998, 999, 1000, 1001, 1026, 1027, 1028] {
        let mut semaphore = Timed::start();
        semaphore.acquire(1, "holder 1 600000 try");
        semaphore.acquire_for(1, "dead poll 1000", &many(dead.min(1000), "dead% 1 60000 wait"));
        if dead > 1000 {
            semaphore.acquire_for(1, "dead poll 1000", &numbered(1000..dead, "dead% 1 60000 wait"));
        }
        semaphore.acquire_for(1, "live poll 600000", "live 1 60000 wait");
        semaphore.pass(1001);
        let mut wake_in = semaphore.ok("release", "return holder")[1];
        while wake_in == 0 {
            wake_in = semaphore.ok("wake", "")[1];
        }
        let inspection = semaphore.inspect();
        assert_eq!(inspection.holder_ids(), ["live"].into(), "{dead} dead");
        assert_eq!(inspection.queued, 0, "{dead} dead: {:?}", inspection.waiters);
    }
}
