//! Tests of processes that start and end while their semaphore is always busy. No data of these
//! processes accumulate.

use redis_semaphore::ScriptRegistry;

use super::Timed;
use super::bounds::{bounded, members, wake_while_asked};
use test_support::scripts::id;

/// Adds 1,000 waiting clients with numbered names. Either their requests are released immediately,
/// or the clients die after a second.
fn a_thousand_short_lived_clients(semaphore: &mut Timed, thousand: usize, is_released: bool) {
    let acquire = ScriptRegistry::embedded().script("acquire").unwrap();
    let keys = semaphore.keys.clone();
    let mut pipeline = redis::pipe();
    let mut release = vec!["return".to_owned()];
    for number in 0..1000 {
        let id = id("N", &format!("client-{thousand}-{number}"), 1, 1000, "id");
        let call = pipeline.cmd("EVALSHA").arg(acquire.sha1()).arg(keys.len()).arg(&keys);
        call.arg(&["declare_if_unset", "1", "1000", &id, "wait"]).ignore();
        release.push(id);
    }
    pipeline.exec(&mut semaphore.connection).unwrap();
    if is_released {
        let statuses = semaphore.raw.integers("release", &release);
        assert!(statuses[2..].iter().all(|status| *status == 2));
    }
}

#[test]
fn short_lived_clients_do_not_accumulate_on_a_semaphore_that_is_always_busy() {
    let mut semaphore = Timed::start();
    semaphore.acquire(1, "holder 1 600000 try");
    // In nine of ten rounds the requests leave the queue. In the other rounds their clients die.
    for thousand in 0..100 {
        a_thousand_short_lived_clients(&mut semaphore, thousand, thousand % 10 != 0);
        let clients = members(&mut semaphore, "clients");
        assert!(clients <= 2001, "{clients} after {thousand} thousand");
        semaphore.pass(1001);
        semaphore.ok("refresh", "holder 600000");
    }
    assert_eq!(members(&mut semaphore, "queue"), 10_000);
    // The clients of dead waiters have been removed. The waiters are removed when they reach the
    // head of the queue.
    let reply = bounded(&mut semaphore, "release", "return holder");
    wake_while_asked(&mut semaphore, reply[1]);
    assert_eq!(members(&mut semaphore, "queue"), 0);
    assert_eq!(semaphore.inspect().held, 0);
}

/// The entries of a burst of clients are removed by later clients.
#[test]
fn each_new_client_removes_the_entries_of_two_dead_clients() {
    let mut semaphore = Timed::start();
    semaphore.acquire(1, "holder 1 600000 try");
    for thousand in 0..10 {
        a_thousand_short_lived_clients(&mut semaphore, thousand, true);
    }
    assert_eq!(members(&mut semaphore, "clients"), 10_001);
    semaphore.pass(1001);
    for thousand in 10..15 {
        a_thousand_short_lived_clients(&mut semaphore, thousand, true);
    }
    assert_eq!(members(&mut semaphore, "clients"), 5001);
    // A client that sends a heartbeat is not new.
    semaphore.acquire_for(1, "client-14-0 poll 1000", "again 1 1000 wait");
    assert_eq!(members(&mut semaphore, "clients"), 5001);
}
