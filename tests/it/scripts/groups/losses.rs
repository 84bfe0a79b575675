//! Random histories in which keys are lost at any time. Clients repeat their requests with their
//! tickets, so every request is granted in the end. The server's limit and caps always hold.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::super::outcomes;
use super::{Timed, start};
use crate::scripts::Outcome::{Granted, Queued};
use test_support::scripts::{KEYS, id, in_group};

const LEASE: i64 = 300;
const HEARTBEAT_TIMEOUT: &str = "3000";
/// The names, shares and caps of the groups, and requests without a group.
const GROUPS: [&str; 4] = ["a,1,1", "b,3,2", "c,1,0", ""];

/// A client that polls. It holds each permit for a short time.
struct Client {
    semaphore: Timed,
    random: Rng,
    limit: i64,
    /// ID -> ticket
    waiting: BTreeMap<String, i64>,
    /// ID -> the time at which it is released
    holding: BTreeMap<String, i64>,
    asked: usize,
}

impl Client {
    fn start(limit: i64) -> Self {
        let (random, waiting, holding) = Default::default();
        Self { semaphore: start(), random, limit, waiting, holding, asked: 0 }
    }

    fn ask(&mut self) {
        self.asked += 1;
        let id = id("N", "client", 1, LEASE, &self.asked.to_string());
        let id = match GROUPS[self.random.usize(..GROUPS.len())] {
            "" => id,
            group => in_group(&id, group),
        };
        self.acquire(&[(id, "wait".to_owned())]);
    }

    /// Asks again for all waiting requests, with their tickets.
    fn send_heartbeat(&mut self) {
        let again = self.waiting.iter().map(|(id, ticket)| (id.clone(), ticket.to_string()));
        let again: Vec<_> = again.collect();
        if !again.is_empty() {
            self.acquire(&again);
        }
    }

    /// Forgets a waiting request. Its permit is not released.
    fn abandon_one(&mut self) {
        let abandoned = self.random.choice(self.waiting.keys().cloned());
        abandoned.map(|id| self.waiting.remove(&id));
    }

    fn acquire(&mut self, requests: &[(String, String)]) {
        let mut arguments =
            ["declare", &self.limit.to_string(), HEARTBEAT_TIMEOUT].map(str::to_owned).to_vec();
        arguments.extend(requests.iter().flat_map(|(id, place)| [id.clone(), place.clone()]));
        let reply = self.semaphore.integers("acquire", &arguments);
        for ((id, _), outcome) in requests.iter().zip(outcomes(&reply)) {
            match outcome {
                Queued { ticket, .. } => _ = self.waiting.insert(id.clone(), ticket),
                Granted { .. } => self.begin(id),
                refused => panic!("{id}: {refused:?}"),
            }
        }
    }

    fn begin(&mut self, id: &str) {
        self.waiting.remove(id);
        let until = self.semaphore.now() + self.random.i64(1..60);
        self.holding.insert(id.to_owned(), until);
    }

    /// Finds new permits, checks the limit and the caps, and releases some permits.
    fn work(&mut self) {
        self.semaphore.pass(5);
        let now = self.semaphore.now();
        let permits = self.semaphore.scores("permits");
        let live = permits.into_iter().filter(|(_, end)| *end > now);
        let live: Vec<_> = live.map(|(id, _)| id).collect();
        assert!(live.len() as i64 <= self.limit, "{live:?}");
        for (group, cap) in [(":a,", 1), (":b,", 2)] {
            let held = live.iter().filter(|id| id.contains(group)).count();
            assert!(held <= cap, "{group} holds {held}");
        }
        let new: Vec<_> = live.iter().filter(|id| self.waiting.contains_key(*id)).collect();
        new.into_iter().for_each(|id| self.begin(id));
        let over = self.holding.iter().filter(|(_, until)| **until <= now);
        for id in over.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            self.holding.remove(&id);
            self.semaphore.integers("release", &["return".to_owned(), id]);
        }
    }

    fn lose(&mut self, key: &str) {
        let key = self.semaphore.key(key);
        self.semaphore.command::<()>(&format!("DEL {key}"));
    }

    /// After the last loss, every request is granted, and nothing remains.
    fn finish(&mut self, what: &str) {
        for step in 0.. {
            if self.waiting.is_empty() && self.holding.is_empty() {
                break;
            }
            assert!(step < 2000, "{what}: {:?} wait", self.waiting);
            if step % 10 == 0 {
                self.send_heartbeat();
            }
            self.work();
        }
        // Abandoned requests are granted, too: in a group at its cap, one after another.
        for _ in 0..=self.asked {
            self.semaphore.pass(LEASE);
            self.semaphore.ok("wake", "");
            if self.left().is_empty() {
                return;
            }
        }
        panic!("{what}: {:?} are left", self.left());
    }

    /// Returns the members of `permits`, without a member "*" that counts nothing.
    fn left(&mut self) -> Vec<(String, i64)> {
        let permits = self.semaphore.key("permits");
        let mut left: Vec<(String, i64)> =
            self.semaphore.command(&format!("ZRANGE {permits} 0 -1 WITHSCORES"));
        left.retain(|(id, score)| id != "*" || *score != 0);
        left
    }
}

/// Plays a history in which up to three of the keys are lost at about each twentieth step.
fn play(keys: &[&str], seed: u64) {
    let mut client = Client::start(1 + seed as i64 % 4);
    client.random = Rng::with_seed(seed);
    for step in 0..200 {
        if client.waiting.len() < 30 && client.random.u8(..3) > 0 {
            client.ask();
        }
        if client.random.u8(..20) == 0 {
            let count = client.random.usize(1..=3);
            let lost = client.random.choose_multiple(keys, count);
            lost.into_iter().for_each(|key| client.lose(key));
        }
        if client.random.u8(..20) == 0 {
            client.abandon_one();
        }
        if step % 10 == 0 {
            client.send_heartbeat();
        }
        client.work();
    }
    client.finish(&format!("{keys:?}, seed {seed}"));
}

#[test]
fn all_requests_are_granted_after_the_loss_of_any_one_key() {
    // At the end, two abandoned requests share a cap of 1.
    play(&["turns"], 2956941814);
    for key in KEYS {
        let seed = fastrand::u64(..1 << 32);
        (seed..seed + 4).for_each(|seed| play(&[key], seed));
    }
}

#[test]
fn all_requests_are_granted_after_losses_of_all_keys() {
    let seed = fastrand::u64(..1 << 32);
    (seed..seed + 8).for_each(|seed| play(&KEYS, seed));
}

/// The client of the lost request is alive, so only the queue shows that the request is gone.
#[test]
fn a_request_that_the_queue_has_lost_is_not_granted_at_its_turn() {
    let mut semaphore = start();
    semaphore.acquire(1, "held@a,1,0 1 60000 try");
    semaphore.acquire(1, "lost@b,1,0 1 60000 wait");
    let queue = semaphore.key("queue");
    semaphore.command::<()>(&format!("DEL {queue}"));
    semaphore.acquire(1, "next@c,1,0 1 60000 wait");
    semaphore.ok("release", "return held");
    let held = semaphore.scores("permits").into_iter().map(|(id, _)| id);
    let held: Vec<_> = held.filter(|id| !id.starts_with('*')).collect();
    assert!(matches!(&held[..], [id] if id.contains("next")), "{held:?}");
}

#[test]
fn a_paused_group_continues_at_its_next_heartbeat_after_the_runtime_cap_is_lost() {
    let mut client = Client::start(1);
    let mark = id("N", "operator", 0, LEASE, "pause");
    client.semaphore.ok("limit", &format!("declare 1 cap 0 a {mark}"));
    let paused = in_group(&id("N", "client", 1, LEASE, "paused"), GROUPS[0]);
    client.acquire(&[(paused, "wait".to_owned())]);
    client.send_heartbeat();
    assert_eq!(client.waiting.len(), 1);
    client.lose("state");
    client.send_heartbeat();
    client.work();
    assert!(client.waiting.is_empty(), "{:?}", client.waiting);
}
