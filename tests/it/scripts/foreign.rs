//! Tests of members that no client wrote, for example manual entries. Such members of a key must
//! cause no problems.

use super::{START_US, Timed};

/// Returns a semaphore with "rubbish" at the head of the queue and among the expired leases. 3 of 4
/// permits are held.
fn with_rubbish() -> Timed {
    let mut semaphore = Timed::start();
    semaphore.acquire(4, "heavy 3 600000 try waiting 4 60000 wait");
    let (permits, queue) = (semaphore.key("permits"), semaphore.key("queue"));
    semaphore.pass(10);
    let ended = START_US / 1000 + 1;
    for rubbish in ["rubbish", "rubbish:N:client:3:60000:like-a-word_____"] {
        semaphore.command::<i64>(&format!("ZADD {permits} {ended} {rubbish}"));
    }
    semaphore.command::<i64>(&format!("ZADD {queue} 1 rubbish 2 X:client:1:60000:rubbish"));
    // The loss of the state makes the scripts examine the leases.
    semaphore.lose("state");
    semaphore
}

#[test]
fn no_script_fails_on_foreign_members() {
    for (script, arguments) in [
        ("acquire", "declare_if_unset 4 client poll 600000 new 1 60000 wait"),
        ("release", "return heavy"),
        ("refresh", "heavy 60000"),
        ("limit", "declare 9"),
        ("wake", ""),
        ("inspect", "0 100 0 100"),
    ] {
        let mut semaphore = with_rubbish();
        semaphore.call(script, arguments).unwrap();
        if script != "inspect" {
            semaphore.assert_weights_agree();
        }
    }
}

#[test]
fn a_waiter_behind_foreign_members_is_granted() {
    let mut semaphore = with_rubbish();
    semaphore.ok("limit", "declare 4");
    semaphore.ok("release", "return heavy");
    let inspection = semaphore.inspect();
    assert_eq!((inspection.held, inspection.queued), (4, 0));
    assert_eq!(inspection.holder_ids(), ["waiting"].into());
}

#[test]
fn a_member_that_only_ends_like_an_id_is_granted_no_permit() {
    let mut semaphore = Timed::start();
    semaphore.acquire(4, "holder 4 600000 try waiting 1 60000 wait");
    let queue = semaphore.key("queue");
    let rubbish = "rubbishN:client:3:60000:like-a-word_____";
    semaphore.command::<i64>(&format!("ZADD {queue} 1 {rubbish}"));
    semaphore.ok("release", "return holder");
    let inspection = semaphore.inspect();
    assert_eq!((inspection.held, inspection.queued), (1, 0));
    assert_eq!(inspection.holder_ids(), ["waiting"].into());
}

/// `inspect` omits expired leases, and an ID that no client wrote has weight 1.
#[test]
fn inspect_does_not_count_an_expired_foreign_member() {
    for stranger in ["rubbish", "rubbish:N:client:3:60000:like-a-word_____"] {
        let mut semaphore = Timed::start();
        semaphore.acquire(4, "heavy 3 600000 try");
        let permits = semaphore.key("permits");
        let ended = START_US / 1000 + 1;
        semaphore.command::<i64>(&format!("ZADD {permits} {ended} {stranger}"));
        semaphore.pass(10);
        assert_eq!(semaphore.inspect().held, 3, "{stranger}");
    }
}

/// A key that another application has created gets an expiry, too.
#[test]
fn a_permits_key_that_no_script_created_gets_an_expiry() {
    let mut semaphore = Timed::start();
    semaphore.acquire(4, "a 1 1000 try");
    semaphore.ok("release", "return a");
    semaphore.lose("permits");
    let (permits, end) = (semaphore.key("permits"), semaphore.now() + 60_000);
    semaphore.command::<i64>(&format!("ZADD {permits} {end} rubbish"));
    semaphore.ok("wake", "");
    assert!(semaphore.expiries()["permits"] > 0);
}
