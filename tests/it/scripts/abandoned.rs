//! Tests of waits that were abandoned without a release. The client of such a wait still sends
//! heartbeats for another ID.

use super::{Granted, Timed};

const LEASE: i64 = 30_000;

/// Queues the abandoned ID first, and "other" behind it. From then on, the client sends heartbeats
/// for "other" only.
fn abandoned(how: &str) -> (Timed, String) {
    let client = format!("client {how} 60000");
    let mut semaphore = Timed::start();
    semaphore.acquire(1, "holder 1 600000 try");
    semaphore.acquire_for(1, &client, &format!("abandoned 1 {LEASE} wait"));
    semaphore.acquire_for(1, &client, &format!("other 1 {LEASE} wait"));
    semaphore.pass(59_000);
    assert_eq!(ask(&mut semaphore, &client), 2);
    semaphore.pass(59_000);
    (semaphore, client)
}

/// Sends a heartbeat, and returns the position of "other".
fn ask(semaphore: &mut Timed, client: &str) -> i64 {
    semaphore.acquire_for(1, client, &format!("other 1 {LEASE} wait"))[0].position()
}

/// Checks that the abandoned request is granted, because its client is alive, and that its permit
/// stays taken for one lease.
fn blocks_for_one_lease(mut semaphore: Timed, client: &str) {
    semaphore.ok("release", "return holder");
    let end = semaphore.now() + LEASE;
    assert_eq!(semaphore.inspect().holders, [("abandoned".to_owned(), 1, LEASE)]);
    let waiting =
        semaphore.ok("acquire", &format!("declare_if_unset 1 {client} other 1 {LEASE} wait"));
    assert_eq!(waiting[1], LEASE, "when the client should call `wake`");
    semaphore.pass(LEASE - 1);
    assert_eq!(semaphore.ok("wake", "")[1..], [1, 1]);
    assert_eq!(ask(&mut semaphore, client), 1);
    semaphore.pass(1);
    assert_eq!(semaphore.now(), end);
    assert_eq!(semaphore.ok("wake", "")[1..], [-1, 0]);
    let other = semaphore.acquire_for(1, client, &format!("other 1 {LEASE} wait"))[0];
    assert!(matches!(other, Granted { end: of_other, .. } if of_other == end + LEASE));
    assert_eq!(semaphore.inspect().holder_ids(), ["other"].into());
    semaphore.assert_weights_agree();
}

#[test]
fn an_abandoned_wait_of_a_polling_client_blocks_a_permit_for_one_lease() {
    let (semaphore, client) = abandoned("poll");
    blocks_for_one_lease(semaphore, &client);
}

/// The client is subscribed, but reads nothing, so the grant message is lost.
#[test]
fn an_abandoned_wait_with_a_lost_grant_message_blocks_a_permit_for_one_lease() {
    let (semaphore, client) = abandoned("publish");
    let _deaf = semaphore.listen("client");
    blocks_for_one_lease(semaphore, &client);
}
