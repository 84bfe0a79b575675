//! Tests of grant messages. Some clients are notified, and other clients are skipped.

use std::time::{Duration, Instant};

use super::{Listener, Timed, has_sharded_channels};
use test_support::server::Server;

/// Returns a semaphore with one holder, "a". Waiters join with `queue`.
fn with_one_holder() -> Timed {
    let mut semaphore = Timed::start();
    semaphore.acquire(1, "a 1 60000 try");
    semaphore
}

fn queue(semaphore: &mut Timed, client: &str, id: &str) -> i64 {
    semaphore.acquire_for(1, client, &format!("{id} 1 60000 wait"))[0].ticket()
}

/// Returns the message for a grant at this moment.
fn message(semaphore: &mut Timed, id: &str) -> String {
    let (token, end) = (semaphore.inspect().last, semaphore.now() + 60_000);
    format!("timed\n{} {token} {end}", semaphore.id(id))
}

/// Drops the subscription, and waits until the server has removed it.
fn leave(semaphore: &mut Timed, listener: Listener) {
    let count = format!("PUBSUB NUMSUB {}", listener.channel);
    drop(listener);
    let deadline = Instant::now() + Duration::from_secs(10);
    while semaphore.command::<(String, i64)>(&count).1 > 0 {
        assert!(Instant::now() < deadline, "the server still counts a listener that has left");
        std::thread::yield_now();
    }
}

#[test]
fn a_release_notifies_only_the_head_of_the_queue() {
    let mut semaphore = with_one_holder();
    let mut first = semaphore.listen("first");
    let mut second = semaphore.listen("second");
    queue(&mut semaphore, "first publish 600000", "b");
    queue(&mut semaphore, "second publish 600000", "c");
    semaphore.ok("release", "return a");
    assert_eq!(first.message(), message(&mut semaphore, "b"));
    first.expect_silence(&mut semaphore);
    second.expect_silence(&mut semaphore);
    semaphore.ok("release", "return b");
    assert_eq!(second.message(), message(&mut semaphore, "c"));
    first.expect_silence(&mut semaphore);
    second.expect_silence(&mut semaphore);
}

#[test]
fn a_grant_message_contains_the_actual_token_and_expiry() {
    let mut semaphore = with_one_holder();
    let mut listener = semaphore.listen("channel");
    queue(&mut semaphore, "channel publish 600000", "b");
    semaphore.pass(1000);
    semaphore.ok("release", "return a");
    let text = listener.message();
    let (name, rest) = text.split_once('\n').unwrap();
    let [id, token, end] = rest.split(' ').collect::<Vec<_>>().try_into().unwrap();
    assert_eq!((name, id), ("timed", semaphore.id("b").as_str()));
    let permits = semaphore.key("permits");
    assert_eq!(semaphore.command::<String>(&format!("ZSCORE {permits} {id}")), end);
    let again = semaphore.acquire_for(1, "channel publish 600000", "b 1 60000 wait");
    let later = again[0].token();
    assert_eq!(later, token.parse::<i64>().unwrap() + 1);
}

#[test]
fn every_script_that_finds_a_free_permit_notifies_the_head_of_the_queue() {
    // The leases of both holders, "a" and "c", expire after a minute.
    let calls = [
        (0, "release", "return a"),
        (0, "release", "return c"),
        (0, "limit", "set 3"),
        (0, "limit", "add 1 more"),
        (0, "limit", "declare 3"),
        (60_000, "wake", ""),
        (60_000, "release", "return nobody"),
        (60_000, "refresh", "nobody 60000"),
        (60_000, "acquire", "declare_if_unset 2 other poll 600000 d 1 60000 try"),
        (60_000, "limit", "declare 2"),
        (60_000, "limit", "clear"),
    ];
    for (pass, script, arguments) in calls {
        let mut semaphore = Timed::start();
        let mut listener = semaphore.listen("channel");
        semaphore.acquire(2, "a 1 60000 try c 1 60000 try");
        queue(&mut semaphore, "channel publish 600000", "b");
        semaphore.pass(pass);
        semaphore.ok(script, arguments);
        let text = listener.message();
        let reported = format!("timed\n{} ", semaphore.id("b"));
        assert!(text.starts_with(&reported), "{script} {arguments}: {text}");
        listener.expect_silence(&mut semaphore);
    }
}

#[test]
fn a_waiter_without_a_subscriber_is_removed_and_the_next_waiter_is_granted() {
    let mut semaphore = with_one_holder();
    let mut present = semaphore.listen("present");
    queue(&mut semaphore, "absent publish 600000", "b");
    queue(&mut semaphore, "absent publish 600000", "c");
    queue(&mut semaphore, "present publish 600000", "d");
    let ((), commands) = semaphore.commands_of(|semaphore| {
        semaphore.ok("release", "return a");
    });
    // One lookup is enough to find that a client is not subscribed.
    assert_eq!(commands.lookups_of_listeners(), 2, "{commands:?}");
    assert_eq!(commands.count("publish"), 1, "{commands:?}");
    assert_eq!(present.message(), message(&mut semaphore, "d"));
    let inspection = semaphore.inspect();
    assert_eq!((inspection.holder_ids(), inspection.queued), (["d"].into(), 0));
}

#[test]
fn a_skipped_waiter_returns_to_its_old_position() {
    let mut semaphore = with_one_holder();
    let listener = semaphore.listen("away");
    let mut present = semaphore.listen("present");
    let ticket = queue(&mut semaphore, "away publish 600000", "b");
    queue(&mut semaphore, "present publish 600000", "c");
    queue(&mut semaphore, "present publish 600000", "d");
    leave(&mut semaphore, listener);
    semaphore.ok("release", "return a");
    assert_eq!(present.message(), message(&mut semaphore, "c"));

    let mut listener = semaphore.listen("away");
    let request = format!("b 1 60000 {ticket}");
    let back = semaphore.acquire_for(1, "away publish 600000", &request)[0];
    assert_eq!((back.ticket(), back.position()), (ticket, 1));
    semaphore.ok("release", "return c");
    assert_eq!(listener.message(), message(&mut semaphore, "b"));
    present.expect_silence(&mut semaphore);
}

#[test]
fn a_waiter_that_polls_is_granted_without_a_message() {
    let mut semaphore = with_one_holder();
    let mut listener = semaphore.listen("client");
    queue(&mut semaphore, "client poll 600000", "b");
    semaphore.ok("release", "return a");
    listener.expect_silence(&mut semaphore);
    assert_eq!(semaphore.inspect().holder_ids(), ["b"].into());
}

#[test]
fn waiters_of_a_client_without_a_recent_heartbeat_are_skipped() {
    let mut semaphore = with_one_holder();
    let mut late = semaphore.listen("late");
    let mut received = semaphore.listen("heard");
    queue(&mut semaphore, "late publish 5000", "b");
    queue(&mut semaphore, "nobody poll 5000", "c");
    queue(&mut semaphore, "heard publish 5000", "d");
    queue(&mut semaphore, "heard publish 5000", "e");
    semaphore.pass(3000);
    // A heartbeat applies to all requests of a client.
    queue(&mut semaphore, "heard publish 5000", "e");
    semaphore.pass(2001);
    semaphore.ok("release", "return a");
    assert_eq!(received.message(), message(&mut semaphore, "d"));
    late.expect_silence(&mut semaphore);
    semaphore.ok("release", "return d");
    semaphore.ok("release", "return e");
    let inspection = semaphore.inspect();
    assert_eq!((inspection.held, inspection.queued), (0, 0));
}

#[test]
fn a_waiter_counts_as_alive_until_the_end_of_its_heartbeat_timeout() {
    let mut semaphore = with_one_holder();
    queue(&mut semaphore, "client poll 5000", "b");
    semaphore.pass(5000);
    semaphore.ok("release", "return a");
    assert_eq!(semaphore.inspect().holder_ids(), ["b"].into());
}

#[test]
fn a_late_heartbeat_is_accepted_and_its_reply_contains_the_grant() {
    let mut semaphore = with_one_holder();
    let ticket = queue(&mut semaphore, "absent publish 5000", "b");
    queue(&mut semaphore, "other poll 600000", "c");
    semaphore.pass(60_000);
    // The client counts as dead and is not subscribed, but it makes a call.
    let outcomes = semaphore.acquire_for(1, "absent publish 5000", "b 1 60000 wait");
    assert!(outcomes[0].token() > ticket);
    assert_eq!(semaphore.inspect().waiter_ids(), ["c"]);
}

#[test]
fn a_grant_in_the_reply_is_not_sent_as_a_message() {
    let mut semaphore = with_one_holder();
    let mut listener = semaphore.listen("channel");
    queue(&mut semaphore, "channel publish 600000", "b");
    semaphore.pass(60_000);
    let outcomes = semaphore.acquire_for(1, "channel publish 600000", "b 1 60000 wait");
    assert!(outcomes[0].is_granted());
    listener.expect_silence(&mut semaphore);
}

/// The waiter gets the permit, and finds out when it sends a heartbeat.
#[test]
fn a_permit_is_granted_even_if_pubsub_or_publish_is_not_allowed() {
    for lacking in ["pubsub", "publish"] {
        let mut semaphore = with_one_holder();
        let mut listener = semaphore.listen("channel");
        queue(&mut semaphore, "channel publish 600000", "b");
        let rules = format!("reset on nopass ~* &* +@all -{lacking}");
        semaphore.command::<()>(&format!("ACL SETUSER limited {rules}"));
        semaphore.command::<()>("AUTH limited any");
        assert_eq!(semaphore.ok("release", "return a")[2..], [1], "without {lacking}");
        assert_eq!(semaphore.inspect().holder_ids(), ["b"].into(), "without {lacking}");
        semaphore.command::<()>("AUTH default any");
        if lacking == "publish" {
            listener.expect_silence(&mut semaphore);
        }
    }
}

/// Both waiters have the same client name. A plain subscription to the name of the client's sharded
/// channel does not count as a subscription to that channel.
#[test]
fn a_plain_subscription_does_not_count_for_the_sharded_channel() {
    let mut semaphore = with_one_holder();
    if !has_sharded_channels(&mut semaphore) {
        return;
    }
    let mut plain = semaphore.listen("client");
    let connection = Server::connect(&semaphore.server);
    let _misled = Listener::subscribe(connection, "SUBSCRIBE", "sem:{timed}:wake:client");
    queue(&mut semaphore, "client spublish 600000", "sharded");
    queue(&mut semaphore, "client publish 600000", "plain");
    semaphore.ok("release", "return a");
    assert_eq!(plain.message(), message(&mut semaphore, "plain"));
}

#[test]
fn spublish_uses_the_sharded_channel() {
    let mut semaphore = with_one_holder();
    queue(&mut semaphore, "channel spublish 600000", "b");
    if has_sharded_channels(&mut semaphore) {
        let connection = Server::connect(&semaphore.server);
        let mut sharded = Listener::subscribe(connection, "SSUBSCRIBE", "sem:{timed}:wake:channel");
        let mut plain = semaphore.listen("channel");
        semaphore.ok("release", "return a");
        assert_eq!(sharded.message(), message(&mut semaphore, "b"));
        plain.expect_silence(&mut semaphore);
        queue(&mut semaphore, "absent spublish 600000", "c");
        semaphore.ok("release", "return b");
        assert_eq!(semaphore.inspect().held, 0);
    } else {
        // The server cannot look up subscribers: the waiter gets the permit, and finds out with its
        // next call.
        semaphore.ok("release", "return a");
        assert_eq!(semaphore.inspect().holder_ids(), ["b"].into());
    }
}
