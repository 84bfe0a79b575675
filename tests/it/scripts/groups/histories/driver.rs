//! Calls the scripts at random, and reports to the ledger what happened.

use fastrand::Rng;

use super::super::{Timed, start};
use super::ledger::{Group, Ledger};
use crate::scripts::{Outcome, outcomes};
use test_support::listener::Listener;

const LEASE: i64 = 60_000;
const HEARTBEAT_TIMEOUT: &str = "600000";

/// One client, which is subscribed to its grant messages.
pub struct Driver {
    semaphore: Timed,
    listener: Listener,
    random: Rng,
    pub ledger: Ledger,
    requests: Vec<Request>,
    /// Requests that were canceled while they waited, with their tickets.
    canceled: Vec<(u64, i64)>,
    /// For each group, how many requests should wait.
    wanted: Vec<usize>,
    /// Whether the requests of the first "group" have no group.
    has_no_group: bool,
}

struct Request {
    id: String,
    group: usize,
    weight: i64,
}

/// A grant in a reply or in a message. The order of the tokens is the order of the grants.
struct Grant {
    token: i64,
    number: u64,
    end: i64,
}

impl Driver {
    /// Prepares a history with this seed.
    pub fn start(seed: u64) -> Self {
        let semaphore = start();
        let listener = semaphore.listen("client");
        let mut random = Rng::with_seed(seed);
        let (limit, has_no_group) = (random.i64(1..=16), random.bool());
        let heaviest = limit.min(random.i64(1..=3));
        let count = random.usize(2..=9);
        let mut groups = Vec::new();
        for index in 0..count {
            let heaviest = random.i64(1..=heaviest);
            let cap = if random.bool() { 0 } else { heaviest + random.i64(0..=3) };
            let share = random.i64(1..=13);
            let is_plain = has_no_group && index == 0;
            let (share, cap) = if is_plain { (1, 0) } else { (share, cap) };
            groups.push(Group::new(share, cap, heaviest));
        }
        let ledger = Ledger::new(limit, groups);
        let (requests, canceled, wanted) = (Vec::new(), Vec::new(), vec![2; count]);
        Self { semaphore, listener, random, ledger, requests, canceled, wanted, has_no_group }
    }

    pub fn step(&mut self) {
        let group = self.random.usize(..self.wanted.len());
        if self.random.u8(..20) == 0 {
            self.wanted[group] = [0, 1, 2, 20][self.random.usize(..4)];
        }
        match self.random.u8(..100) {
            0..45 => self.ask(),
            45..50 => self.try_once(group),
            50..88 => self.release(),
            88..94 => self.come_back(),
            94..97 => self.change_the_limit(),
            97 => self.semaphore.pass(30_100),
            _ => self.call("wake", &[], |_, _| Vec::new()),
        }
    }

    /// Asks for requests of groups in which too few requests wait.
    fn ask(&mut self) {
        let mut asked = Vec::new();
        for group in 0..self.wanted.len() {
            let waiting = self.ledger.groups[group].waiting.len();
            if asked.len() < 4 && waiting < self.wanted[group] && self.random.bool() {
                asked.push(group);
                asked.extend(self.random.bool().then_some(group));
            }
        }
        self.random.shuffle(&mut asked);
        let asked: Vec<_> = asked.into_iter().map(|group| self.new_request(group)).collect();
        if !asked.is_empty() {
            self.acquire(&asked, "wait");
        }
    }

    fn new_request(&mut self, group: usize) -> u64 {
        let Group { share, cap, heaviest, .. } = self.ledger.groups[group];
        let (weight, number) = (self.random.i64(1..=heaviest), self.requests.len());
        let is_plain = self.has_no_group && group == 0;
        let part = if is_plain { String::new() } else { format!("g{group},{share},{cap}:") };
        // The names sort in another order than the numbers.
        let name = format!("{:03}_____________{number}", number * 619 % 1000);
        let id = format!("P:client:{weight}:{LEASE}:{part}{name}");
        self.requests.push(Request { id, group, weight });
        number as u64
    }

    /// A `try` is granted exactly if it fits, and no other request may be granted before.
    fn try_once(&mut self, group: usize) {
        let number = self.new_request(group);
        let weight = self.requests[number as usize].weight;
        self.call("wake", &[], |_, _| Vec::new());
        let of_group = &self.ledger.groups[group];
        let fits = self.ledger.held() + weight <= self.ledger.limit && of_group.fits_cap(weight);
        let is_next = of_group.waiting.is_empty() && !self.ledger.anybody_may_be_granted();
        let may_be_granted = fits && is_next;
        self.acquire(&[number], "try");
        let is_granted = self.ledger.permits.contains_key(&number);
        assert_eq!(is_granted, may_be_granted, "{number} of {group}: {:#?}", self.ledger);
    }

    /// Asks again, with its ticket, for a request that was canceled.
    fn come_back(&mut self) {
        if !self.canceled.is_empty() {
            let at = self.random.usize(..self.canceled.len());
            let (number, ticket) = self.canceled.swap_remove(at);
            self.acquire(&[number], &ticket.to_string());
        }
    }

    fn acquire(&mut self, numbers: &[u64], place: &str) {
        let mut arguments = vec!["declare".to_owned(), self.ledger.limit.to_string()];
        arguments.push(HEARTBEAT_TIMEOUT.to_owned());
        for number in numbers {
            arguments.extend([self.requests[*number as usize].id.clone(), place.to_owned()]);
        }
        self.call("acquire", &arguments, |driver, reply| {
            let somebody_waited = driver.ledger.anybody_waits();
            for number in numbers.iter().filter(|_| place != "try") {
                let Request { group, weight, .. } = driver.requests[*number as usize];
                driver.ledger.waits(*number, group, weight);
            }
            // If no request waited, free permits are granted in the order of the arguments.
            if somebody_waited {
                driver.ledger.begin_intervals();
            }
            let grants = numbers.iter().zip(outcomes(reply)).filter_map(|(number, outcome)| {
                let Outcome::Granted { token, end } = outcome else { return None };
                Some(Grant { token, number: *number, end })
            });
            grants.collect()
        });
    }

    /// Releases some permits, and cancels some requests.
    fn release(&mut self) {
        let (random, ledger) = (&mut self.random, &self.ledger);
        let held = random.choose_multiple(ledger.permits.keys().copied(), 3);
        let waiting = ledger.groups.iter().flat_map(|group| group.waiting.keys().copied());
        let waiting = random.choose_multiple(waiting, 2);
        let canceled = if random.u8(..4) == 0 { waiting } else { Vec::new() };
        let mut numbers = [&held[..held.len().min(random.usize(1..=3))], &canceled].concat();
        random.shuffle(&mut numbers);
        if numbers.is_empty() {
            return;
        }
        let ids = numbers.iter().map(|number| self.requests[*number as usize].id.clone());
        let arguments: Vec<_> = std::iter::once("return".to_owned()).chain(ids).collect();
        let tickets = canceled.iter().map(|number| (*number, self.ticket(*number)));
        let canceled: Vec<_> = tickets.collect();
        self.canceled.extend(canceled);
        self.call("release", &arguments, |driver, reply| {
            for (number, entry) in numbers.iter().zip(&reply[2..]) {
                let group = driver.requests[*number as usize].group;
                match entry {
                    1 => assert!(driver.ledger.ends(*number), "{number} held nothing"),
                    2 => assert!(driver.ledger.leaves(*number, group), "{number} did not wait"),
                    _ => assert!(!driver.ledger.permits.contains_key(number), "{number} held"),
                }
            }
            driver.ledger.begin_intervals();
            Vec::new()
        });
    }

    /// Returns the ticket of a waiting request.
    fn ticket(&mut self, number: u64) -> i64 {
        let id = &self.requests[number as usize].id;
        let key = self.semaphore.key("queue");
        self.semaphore.command::<i64>(&format!("ZSCORE {key} {id}")).abs()
    }

    fn change_the_limit(&mut self) {
        let heaviest = self.ledger.groups.iter().map(|group| group.heaviest).max().unwrap();
        self.ledger.limit = self.random.i64(heaviest..=16);
        let arguments = ["declare".to_owned(), self.ledger.limit.to_string()];
        self.call("limit", &arguments, |_, _| Vec::new());
    }

    /// Calls a script. `note` reports to the ledger what the call itself changes, and returns the
    /// grants in the reply. Then, all grants are noted in their order.
    fn call(
        &mut self,
        script: &str,
        arguments: &[String],
        note: impl FnOnce(&mut Self, &[i64]) -> Vec<Grant>,
    ) {
        let reply = self.semaphore.integers(script, arguments);
        self.ledger.expire(reply[0]);
        if self.ledger.anybody_waits() {
            self.ledger.begin_intervals();
        }
        let mut grants = note(self, &reply);
        grants.extend(self.grants_in_messages());
        grants.sort_by_key(|grant| grant.token);
        for Grant { number, end, .. } in grants {
            let Request { group, weight, .. } = self.requests[number as usize];
            if self.ledger.groups[group].waiting.contains_key(&number) {
                self.ledger.granted(number, group, end);
            } else {
                self.ledger.begins(number, group, weight, end);
            }
        }
        self.ledger.begin_intervals();
        let next = self.next_group();
        self.ledger.check_that_nobody_waits_in_vain(next);
    }

    fn grants_in_messages(&mut self) -> Vec<Grant> {
        const END: &str = "end";
        self.semaphore.command::<()>(&format!("PUBLISH {} {END}", self.listener.channel));
        let mut grants = Vec::new();
        loop {
            let message = self.listener.message();
            if message == END {
                return grants;
            }
            grants.extend(message.lines().skip(1).map(|line| {
                let parts: Vec<&str> = line.split(' ').collect();
                let number = parts[0].rsplit('_').next().unwrap().parse().unwrap();
                Grant { token: parts[1].parse().unwrap(), number, end: parts[2].parse().unwrap() }
            }));
        }
    }

    /// Returns the group whose turn starts first. Until a request has a group, there are no turns.
    fn next_group(&mut self) -> Option<usize> {
        let key = self.semaphore.key("turns");
        if self.semaphore.command::<i64>(&format!("EXISTS {key}")) == 0 {
            return Some(0);
        }
        let command = format!("ZRANGEBYSCORE {key} (0 (inf LIMIT 0 1");
        let first: Vec<String> = self.semaphore.command(&command);
        first.first().map(|name| name.strip_prefix('g').map_or(0, |name| name.parse().unwrap()))
    }
}
