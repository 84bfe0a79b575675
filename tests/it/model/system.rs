//! Compares the real scripts on a real server with the model.

use std::collections::HashMap;

use redis::{Connection, RedisError, Value};
use redis_semaphore::local::{Inspected, InspectedGroups, Refusal, Reply};

use super::invariants::Watch;
use super::losses::{lose, recover};
use super::moving::{self, Moving};
use super::request::{Next, Place, Request};
use super::{DAY, Step};
use test_support::clock::CLOCK_LEAD;
use test_support::scripts::{Scripts, id, integers, part};
use test_support::server::Server;

pub use redis_semaphore::local::Semaphore as Model;

const START_US: i64 = 1_800_000_000_000_000;

pub struct System {
    server: Server,
    pub moving: Option<Moving>,
    pub scripts: Scripts,
    pub(super) listeners: Vec<Connection>,
    pub model: Model,
    pub watch: Watch,
    tickets: HashMap<String, i64>,
    /// The time at which the server's clock is frozen.
    frozen_us: i64,
    /// The time of the last call, or of the last move of the clock.
    pub now: i64,
    was_refused: bool,
}

impl System {
    pub fn start() -> Self {
        Self::with(Server::start(), None)
    }

    /// Starts with the semaphore in a slot that begins to move during each call.
    pub fn start_moving() -> Self {
        let (server, moving) = moving::start("model");
        Self::with(server, Some(moving))
    }

    fn with(server: Server, moving: Option<Moving>) -> Self {
        let scripts = Scripts::new(server.connect(), "model").with_groups();
        let listeners = (0..2).map(|_| server.connect()).collect();
        let (model, watch, tickets, frozen_us, now, was_refused) = Default::default();
        Self {
            server,
            moving,
            scripts,
            listeners,
            model,
            watch,
            tickets,
            frozen_us,
            now,
            was_refused,
        }
    }

    pub fn begin_case(&mut self) {
        redis::cmd("FLUSHALL").exec(&mut self.scripts.connection).unwrap();
        self.model = Model::default();
        self.model.now_us = START_US;
        self.watch = Watch::default();
        self.tickets.clear();
        self.freeze_at(START_US);
        for client in 0..2 {
            // A failed case may leave messages behind. These messages must not affect the next,
            // smaller case.
            let _of_the_case_before = self.listen(client, true);
        }
    }

    pub fn apply(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Clock { us } => self.move_clock(*us),
            Step::Listen { client, listens } => self.listen(*client, *listens),
            Step::Lose(key) => {
                self.watch.loses(*key, &self.model);
                self.lose(*key);
                return Ok(());
            }
            Step::Acquire { kind, limit, heartbeat_timeout, requests } => {
                self.acquire(kind, *limit, *heartbeat_timeout, requests)
            }
            Step::Crowd => (0..20).try_for_each(|number| {
                let how = if number % 2 == 0 { "P" } else { "N" };
                let id = id(how, &format!("crowd{number}"), 1, 30_000, "crowd");
                let arguments = ["declare_if_unset", "2", "10000", &id, "wait"].map(str::to_owned);
                self.compare("acquire", &arguments)
            }),
            Step::Release { consume, ids } => {
                let how = if *consume { "forget" } else { "return" };
                self.watch.released(ids);
                self.compare("release", &[&[how.to_owned()], ids.as_slice()].concat())
            }
            Step::Refresh { requests } => self.refresh(requests),
            Step::Wake => self.compare("wake", &[]),
            Step::Limit { kind, limit, change } => {
                let mut arguments = vec![kind.to_string(), limit.to_string()];
                if let Some((change, n, mark)) = change {
                    let n = n.to_string();
                    let words = match change.split_once(' ') {
                        Some(("cap", group)) => vec!["cap", &n, group],
                        Some((_, group)) => vec!["cap", "none", group],
                        None if *change == "clear" => vec!["clear"],
                        None => vec![*change, &n],
                    };
                    arguments.extend([words, vec![mark]].concat().iter().map(|it| it.to_string()));
                }
                self.compare("limit", &arguments)
            }
        }?;
        self.receive_messages()?;
        if matches!(step, Step::Clock { .. } | Step::Listen { .. }) {
            return Ok(());
        }
        self.inspect(["0", "1000", "0", "1000", "0", "100"])?;
        self.inspect(["1", "2", "1", "1", "0", "0"])?;
        if self.was_refused { Ok(()) } else { self.check_head() }
    }

    fn acquire(
        &mut self,
        kind: &str,
        limit: i64,
        heartbeat_timeout: i64,
        requests: &[Request],
    ) -> Result<(), String> {
        let mut arguments = vec![kind.to_owned(), limit.to_string(), heartbeat_timeout.to_string()];
        for Request { id, place } in requests {
            let place = match (place, self.tickets.get(id)) {
                (Place::Ticket(0), None) => &Place::Wait,
                (Place::Ticket(0), Some(ticket)) => &Place::Ticket(*ticket),
                (place, _) => place,
            };
            arguments.extend([id.clone(), place.argument()]);
        }
        self.compare("acquire", &arguments)?;
        for (ticket, id) in self.model.queue.iter() {
            self.tickets.insert(id.clone(), *ticket);
        }
        Ok(())
    }

    fn refresh(&mut self, requests: &[(String, Next)]) -> Result<(), String> {
        let mut arguments = Vec::new();
        for (id, next) in requests {
            if let Next::Id(next) = next
                && self.model.holds(id)
            {
                self.watch.exchanged(id, next);
            }
            arguments.extend([id.clone(), next.argument()]);
        }
        self.compare("refresh", &arguments)
    }

    fn compare(&mut self, script: &str, arguments: &[String]) -> Result<(), String> {
        let before = self.model.clone();
        let expected = ask(&mut self.model, script, arguments);
        self.was_refused = expected.is_err();
        // If the call must fail, E1 is checked: the call changes nothing. Otherwise, the model
        // determines the changes.
        let dump = if self.was_refused { self.scripts.dump() } else { Vec::new() };
        match (self.call(script, arguments), expected) {
            (Ok(reply), Ok(expected)) => {
                let reply = integers(script, arguments, reply);
                self.now = reply[0];
                let last = self.last();
                let agrees = agree(script, &reply, &expected) && last == self.model.last;
                let call = (script, arguments);
                if agrees || self.agrees_a_little_later(call, &before, &reply, last) {
                    return Ok(());
                }
                let numbers = (last, self.model.last);
                Err(format!(
                    "{script} {arguments:?}: {reply:?}, the model says {expected:?}; last \
                     {numbers:?}"
                ))
            }
            (Err(error), Err(expected)) if is_same(&error, &expected) => {
                self.model = before;
                if self.scripts.dump() == dump {
                    return Ok(());
                }
                Err(format!("E1: {script} {arguments:?} returns {error}, and changed something"))
            }
            (reply, expected) => {
                Err(format!("{script} {arguments:?}: {reply:?}, the model says {expected:?}"))
            }
        }
    }

    fn call(&mut self, script: &str, arguments: &[String]) -> Result<Value, RedisError> {
        let keys = self.scripts.keys.clone();
        match &mut self.moving {
            Some(moving) => moving
                .response(&mut self.scripts, |scripts| scripts.call_with(script, &keys, arguments)),
            None => self.scripts.call_with(script, &keys, arguments),
        }
    }

    fn last(&mut self) -> i64 {
        let mut get = redis::cmd("HGET");
        get.arg(&self.scripts.keys[3]).arg("last_number");
        get.query::<Option<i64>>(&mut self.scripts.connection).unwrap().unwrap_or(0)
    }

    /// Checks the reply for a slightly later time. Valkey reads the system's clock once per
    /// millisecond, and its own time continues until the next reading. The reply and the last
    /// number show the time of this call.
    fn agrees_a_little_later(
        &mut self,
        (script, arguments): (&str, &[String]),
        before: &Model,
        reply: &[i64],
        last: i64,
    ) -> bool {
        let from_last = (-1..10).map(|given| last - given);
        for now_us in from_last.chain([reply[0] * 1000, reply[0] * 1000 + 999]) {
            let mut model = before.clone();
            model.now_us = now_us;
            let is_near = CLOCK_LEAD.contains(&(now_us - self.frozen_us));
            let is_right = |expected: Vec<i64>| agree(script, reply, &expected);
            if is_near
                && ask(&mut model, script, arguments).is_ok_and(is_right)
                && model.last == last
            {
                model.now_us = self.frozen_us;
                self.model = model;
                return true;
            }
        }
        false
    }

    fn freeze_at(&mut self, us: i64) {
        self.frozen_us = us;
        self.now = us / 1000;
        self.server.clock.freeze_seen_at(us, &mut self.scripts.connection);
    }

    /// Moves the server's clock. Keys may expire, but only if they contain no valid lease or
    /// request.
    fn move_clock(&mut self, us: i64) -> Result<(), String> {
        self.freeze_at(self.frozen_us + us);
        self.model.now_us = self.frozen_us;
        // The server's clock is not exactly at the given time. A key that is about to expire is
        // removed now, so leases that expire before `soon` may have expired.
        let soon = self.model.now() + CLOCK_LEAD.end / 1000;
        let gone = |key: usize, scripts: &mut Scripts| {
            let mut ttl = redis::cmd("PTTL");
            let lives: i64 = ttl.arg(&scripts.keys[key]).query(&mut scripts.connection).unwrap();
            lives == -2 || (0..CLOCK_LEAD.end / 1000).contains(&lives)
        };
        if gone(0, &mut self.scripts) {
            if self.model.held_at(soon) > 0 {
                return Err("permits expired while some are held".to_owned());
            }
            self.watch.loses(0, &self.model);
            self.lose(0);
        }
        let is_received = |id: &str| {
            let until = self.model.clients.get(part(id, 1));
            until.is_some_and(|until| *until >= soon)
        };
        let waits = self.model.queue.iter().any(|(_, id)| is_received(id));
        for key in [1, 2, 5] {
            let was_there = key != 5 || !self.model.turns.starts.is_empty();
            if gone(key, &mut self.scripts) && was_there {
                if waits {
                    return Err(format!(
                        "{} expired while a request waits",
                        self.scripts.keys[key]
                    ));
                }
                self.watch.loses(key, &self.model);
                self.lose(key);
            }
        }
        if gone(3, &mut self.scripts) {
            let was_there = self.model.is_used();
            let is_kept = self.model.runtime.is_some() || !self.model.caps.is_empty();
            if was_there && (self.model.held_at(soon) > 0 || waits || is_kept) {
                return Err("state expired while it was needed".to_owned());
            }
            if self.model.last > self.model.now_us {
                return Err("S4: state expired, the numbers would go back".to_owned());
            }
            self.lose(3);
        }
        if us < 0 && self.model.last == 0 {
            // The semaphore was unused for hours, so the clock is the only lower bound for the
            // numbers.
            self.watch.last = 0;
        }
        Ok(())
    }

    /// Removes a key.
    fn lose(&mut self, key: usize) {
        let mut delete = redis::cmd("DEL");
        delete.arg(&self.scripts.keys[key]);
        if key == 1 {
            delete.arg(&self.scripts.keys[4]); // the model has no separate index of the queue
        }
        delete.exec(&mut self.scripts.connection).unwrap();
        lose(&mut self.model, key);
    }

    /// Checks that `inspect` changes nothing and returns the model's state.
    fn inspect(&mut self, pages: [&str; 6]) -> Result<(), String> {
        let mut model = self.model.clone();
        recover(&mut model);
        let reply = self.call("inspect", &pages.map(str::to_owned)).unwrap();
        let reported = read_inspected(reply);
        // On Valkey, the server's clock may be slightly ahead of the model's clock.
        let later = reported.numbers[0] * 1000;
        if later > model.now_us && CLOCK_LEAD.contains(&(later - model.now_us)) {
            model.now_us = later;
        }
        let Ok(Reply::Inspected(expected)) = model.call("inspect", &pages) else {
            return Err("the model does not inspect".to_owned());
        };
        if reported == expected {
            return Ok(());
        }
        Err(format!("inspect {reported:?}, the model says {expected:?}"))
    }

    /// Checks that the model expects every message that was sent.
    pub fn end_case(&mut self) -> Result<(), String> {
        (0..2).try_for_each(|client| self.listen(client, true))?;
        self.check_that_all_goes()
    }

    /// Checks L2: all keys expire.
    fn check_that_all_goes(&mut self) -> Result<(), String> {
        self.freeze_at(self.frozen_us + 100 * DAY);
        let keys = self.scripts.keys.clone();
        let mut exists = redis::cmd("EXISTS");
        let left: usize = exists.arg(&keys).query(&mut self.scripts.connection).unwrap();
        let kept = usize::from(self.model.runtime.is_some() || !self.model.caps.is_empty());
        if left == kept { Ok(()) } else { Err(format!("L2: {left} keys are left, not {kept}")) }
    }
}

fn ask(model: &mut Model, script: &str, arguments: &[String]) -> Result<Vec<i64>, Refusal> {
    recover(model);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match model.call(script, &arguments)? {
        Reply::Numbers(numbers) => Ok(numbers),
        Reply::Inspected(inspected) => panic!("{script} returns {inspected:?}"),
    }
}

fn is_same(error: &RedisError, expected: &Refusal) -> bool {
    error.code() == Some(expected.code) && error.detail() == Some(&expected.detail)
}

fn read_inspected(reply: Value) -> Inspected {
    type Reply =
        (i64, i64, i64, i64, i64, i64, i64, i64, Vec<(String, i64)>, Waiters, InspectedGroups);
    type Waiters = Vec<(String, i64, i64)>;
    let (a, b, c, d, e, f, g, h, holders, waiters, groups): Reply =
        redis::from_redis_value(reply).unwrap();
    Inspected { numbers: [a, b, c, d, e, f, g, h], holders, waiters, groups }
}

/// Compares the replies. `wake_in` may be too small, because it is computed from the earliest known
/// expiry.
fn agree(script: &str, reply: &[i64], expected: &[i64]) -> bool {
    assert!(reply.len() > 2, "{script} returns {reply:?}");
    let waits = match script {
        "acquire" => expected[3..].chunks(3).any(|response| response[0] == 2),
        "wake" => expected[2] > 0,
        _ => false,
    };
    let is_early_enough = match expected[1] {
        // No lease expires.
        -1 if waits => reply[1] != 0,
        -1 => reply[1] == -1,
        at_most => (1..=at_most).contains(&reply[1]),
    };
    is_early_enough && reply[0] == expected[0] && reply[2..] == expected[2..]
}
