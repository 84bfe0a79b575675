//! The real scripts on a real server, beside the model.

use std::collections::HashMap;

use redis::{Connection, RedisError, Value};

use super::invariants::Watch;
use super::moving::{self, Moving};
use super::semaphore::{Model, NOTHING_ENDS, Next, Place, Request};
use super::{DAY, Step};
use crate::support::clock::CLOCK_LAG;
use crate::support::scripts::{Scripts, integers, part, weight};
use crate::support::server::Server;

const START_US: i64 = 1_800_000_000_000_000;

pub struct System {
    server: Server,
    pub moving: Option<Moving>,
    pub scripts: Scripts,
    /// Of those who listen.
    pub(super) listeners: Vec<Connection>,
    pub model: Model,
    pub watch: Watch,
    tickets: HashMap<String, i64>,
    /// Where the server's clock stands still.
    frozen_us: i64,
    /// What time it was in the last call, or since the clock was moved.
    pub now: i64,
    /// The last call.
    was_refused: bool,
}

/// A call of the model.
type Call<'a> = &'a dyn Fn(&mut Model) -> Option<Vec<i64>>;

impl System {
    pub fn start() -> Self {
        Self::with(Server::start(), None)
    }

    /// With the semaphore in a slot that begins to move during each call.
    pub fn start_moving() -> Self {
        let (server, moving) = moving::start("model");
        Self::with(server, Some(moving))
    }

    fn with(server: Server, moving: Option<Moving>) -> Self {
        let scripts = Scripts::new(server.connect(), "model");
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
        self.model = Model { now_us: START_US, ..Model::default() };
        self.watch = Watch::default();
        self.tickets.clear();
        self.freeze_at(START_US);
        for client in 0..2 {
            // A case that failed may have left messages behind, and that of a smaller one is
            // wanted.
            let _of_the_case_before = self.listen(client, true);
        }
    }

    pub fn apply(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Clock { us } => self.move_clock(*us),
            Step::Listen { client, listens } => self.listen(*client, *listens),
            Step::Lose(key) => {
                let key_name = &self.scripts.keys[*key];
                redis::cmd("DEL").arg(key_name).exec(&mut self.scripts.connection).unwrap();
                self.model.lose(*key);
                self.watch.lost(*key);
                return Ok(());
            }
            Step::Acquire { kind, limit, liveness, requests } => {
                self.acquire(kind, *limit, *liveness, requests)
            }
            Step::Release { consume, words } => {
                let how = if *consume { "consume" } else { "return" };
                let arguments = [&[how.to_owned()], words.as_slice()].concat();
                self.watch.released(words);
                self.compare("release", &arguments, &|model| Some(model.release(*consume, words)))
            }
            Step::Refresh { requests } => self.refresh(requests),
            Step::Wake => self.compare("wake", &[], &|model| Some(model.wake())),
            Step::Limit { kind, limit, change } => {
                let mut arguments = vec![kind.to_string(), limit.to_string()];
                match change {
                    Some(("clear", _, mark)) => arguments.extend(["clear".into(), mark.clone()]),
                    Some((change, n, mark)) => {
                        arguments.extend([change.to_string(), n.to_string(), mark.clone()]);
                    }
                    None => {}
                }
                let call = |model: &mut Model| Some(model.change_limit(kind, *limit, change));
                self.compare("limit", &arguments, &call)
            }
        }?;
        self.receive_messages()?;
        if matches!(step, Step::Clock { .. } | Step::Listen { .. }) {
            return Ok(());
        }
        self.inspect()?;
        if self.was_refused { Ok(()) } else { self.check_head() }
    }

    fn acquire(
        &mut self,
        kind: &str,
        limit: i64,
        liveness: i64,
        requests: &[Request],
    ) -> Result<(), String> {
        let mut arguments = vec![kind.to_owned(), limit.to_string(), liveness.to_string()];
        let mut requests = requests.to_vec();
        for request in &mut requests {
            if request.place == Place::Ticket(0) {
                let known = self.tickets.get(&request.word);
                request.place = known.map_or(Place::Wait, |ticket| Place::Ticket(*ticket));
            }
            let place = match request.place {
                Place::Try => "try".to_owned(),
                Place::Wait => "wait".to_owned(),
                Place::Ahead(ms) => format!("+{ms}"),
                Place::Ticket(ticket) => ticket.to_string(),
            };
            arguments.extend([request.word.clone(), place]);
        }
        let call = |model: &mut Model| model.acquire(kind, limit, liveness, &requests);
        self.compare("acquire", &arguments, &call)?;
        for (ticket, word) in &self.model.queue {
            self.tickets.insert(word.clone(), *ticket);
        }
        Ok(())
    }

    fn refresh(&mut self, requests: &[(String, Next)]) -> Result<(), String> {
        let mut arguments = Vec::new();
        for (word, next) in requests {
            let next = match next {
                Next::Lease(ms) => ms.to_string(),
                Next::Word(next) => {
                    if self.model.holds(word) {
                        self.watch.exchanged(word, next);
                    }
                    next.clone()
                }
            };
            arguments.extend([word.clone(), next]);
        }
        self.compare("refresh", &arguments, &|model| Some(model.refresh(requests)))
    }

    fn compare(&mut self, script: &str, arguments: &[String], call: Call) -> Result<(), String> {
        self.was_refused = false;
        let before = self.model.clone();
        let expected = call(&mut self.model);
        // E1 is checked where the call must fail; elsewhere the model says what changes.
        let dump = if expected.is_none() { self.scripts.dump() } else { Vec::new() };
        match (self.call(script, arguments), expected) {
            (Ok(reply), Some(expected)) => {
                let reply = integers(script, arguments, reply);
                self.now = reply[0];
                let last = self.last();
                let agrees = agree(script, &reply, &expected) && last == self.last_written();
                if agrees || self.agrees_a_little_later(script, &before, &reply, last, call) {
                    return Ok(());
                }
                let numbers = (last, self.last_written());
                Err(format!(
                    "{script} {arguments:?}: {reply:?}, the model says {expected:?}; last {numbers:?}"
                ))
            }
            (Err(error), None) if error.to_string().contains("SEM_TOO_HEAVY") => {
                self.was_refused = true;
                if self.scripts.dump() == dump {
                    return Ok(());
                }
                Err(format!("E1: {script} {arguments:?} answers {error}, and changed something"))
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
                .answer(&mut self.scripts, |scripts| scripts.call_with(script, &keys, arguments)),
            None => self.scripts.call_with(script, &keys, arguments),
        }
    }

    fn last_written(&self) -> i64 {
        if self.model.has_state { self.model.last } else { 0 }
    }

    fn last(&mut self) -> i64 {
        let mut get = redis::cmd("HGET");
        get.arg(&self.scripts.keys[3]).arg("last");
        get.query::<Option<i64>>(&mut self.scripts.connection).unwrap().unwrap_or(0)
    }

    /// Valkey looks at the clock once a millisecond, and lets it go on by itself in between. How
    /// far it had come in this call is seen in the reply and in the last.
    fn agrees_a_little_later(
        &mut self,
        script: &str,
        before: &Model,
        reply: &[i64],
        last: i64,
        call: Call,
    ) -> bool {
        let from_last = (-1..10).map(|given| last - given);
        for now_us in from_last.chain([reply[0] * 1000, reply[0] * 1000 + 999]) {
            let mut model = Model { now_us, ..before.clone() };
            let is_near = CLOCK_LAG.contains(&(now_us - self.frozen_us));
            let is_right = |expected: Vec<i64>| agree(script, reply, &expected);
            if is_near && call(&mut model).is_some_and(is_right) && model.last == last {
                self.model = Model { now_us: self.frozen_us, ..model };
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

    /// Time may take keys away, but only those in which nothing lives.
    fn move_clock(&mut self, us: i64) -> Result<(), String> {
        self.freeze_at(self.frozen_us + us);
        self.model.now_us = self.frozen_us;
        let gone = |key: &str, scripts: &mut Scripts| {
            let exists = redis::cmd("EXISTS").arg(key).query::<i64>(&mut scripts.connection);
            exists.unwrap() == 0
        };
        let keys = self.scripts.keys.clone();
        let now = self.model.now();
        if gone(&keys[0], &mut self.scripts) {
            if self.model.held_at(now) > 0 {
                return Err("permits expired while some are held".to_owned());
            }
            self.model.lose(0);
        }
        let is_heard = |word: &str| {
            let until = self.model.clients.get(part(word, 1));
            until.is_some_and(|until| *until >= now)
        };
        let waits = self.model.queue.iter().any(|(_, word)| is_heard(word));
        for key in [1, 2] {
            if gone(&keys[key], &mut self.scripts) {
                if waits {
                    return Err(format!("{} expired while somebody waits", keys[key]));
                }
                self.model.lose(key);
            }
        }
        if gone(&keys[3], &mut self.scripts) {
            let was_there = self.model.has_state;
            if was_there && (self.model.held_at(now) > 0 || waits || self.model.runtime.is_some()) {
                return Err("state expired while it was needed".to_owned());
            }
            if self.model.last > self.model.now_us {
                return Err("S4: state expired, the numbers would go back".to_owned());
            }
            self.model.lose(3);
        }
        if us < 0 && self.model.last == 0 {
            // Nobody was there for hours: only the clock says how far the numbers had come.
            self.watch.last = 0;
        }
        Ok(())
    }

    /// What it tells is what the model has.
    fn inspect(&mut self) -> Result<(), String> {
        let model = &self.model;
        let now = model.now();
        let live = || model.permits.iter().filter(|(_, ends)| **ends > now);
        let mut holders: Vec<_> = live().map(|(word, ends)| (*ends - now, word.clone())).collect();
        holders.sort();
        let holders: Vec<(String, i64)> = holders.into_iter().map(|(left, w)| (w, left)).collect();
        let waiter = |(ticket, word): &(i64, String)| {
            let until = model.clients.get(part(word, 1)).copied().unwrap_or(0);
            (word.clone(), (now - ticket / 1000).max(0), (until - now).max(-1))
        };
        let waiters: Vec<(String, i64, i64)> = model.queue.iter().map(waiter).collect();
        let none = |limit: Option<i64>| limit.unwrap_or(-1);
        let expected = (
            (now, none(model.runtime.or(model.declared)), none(model.declared)),
            (none(model.runtime), live().map(|(word, _)| weight(word)).sum(), holders.len() as i64),
            (
                model.queue.len() as i64,
                if model.has_state { model.last } else { model.last_ticket() },
            ),
            (holders, waiters),
        );
        type Reply = (i64, i64, i64, i64, i64, i64, i64, i64, Vec<(String, i64)>, Waiters);
        type Waiters = Vec<(String, i64, i64)>;
        let reply = self.scripts.call("inspect", "0 1000 0 1000").unwrap();
        let (a, b, c, d, e, f, g, h, holders, waiters): Reply =
            redis::from_redis_value(reply).unwrap();
        let told = ((a, b, c), (d, e, f), (g, h), (holders, waiters));
        // On Valkey the clock may be a little further.
        if told == expected || a > now {
            return Ok(());
        }
        Err(format!("inspect {told:?}, the model says {expected:?}"))
    }

    /// No message was sent that the model knows nothing of.
    pub fn end_case(&mut self) -> Result<(), String> {
        (0..2).try_for_each(|client| self.listen(client, true))?;
        self.check_that_all_goes()
    }

    /// L2
    fn check_that_all_goes(&mut self) -> Result<(), String> {
        self.freeze_at(self.frozen_us + 100 * DAY);
        let keys = self.scripts.keys.clone();
        let mut exists = redis::cmd("EXISTS");
        let left: usize = exists.arg(&keys).query(&mut self.scripts.connection).unwrap();
        let kept = usize::from(self.model.runtime.is_some());
        if left == kept { Ok(()) } else { Err(format!("L2: {left} keys are left, not {kept}")) }
    }
}

/// `wake_in` may be early: it comes from the first end of a lease that was known.
fn agree(script: &str, reply: &[i64], expected: &[i64]) -> bool {
    let is_early_enough = match expected[1] {
        -1 => reply[1] == -1,
        NOTHING_ENDS => reply[1] != 0,
        at_most => (1..=at_most).contains(&reply[1]),
    };
    assert!(reply.len() > 2, "{script} answers {reply:?}");
    is_early_enough && reply[0] == expected[0] && reply[2..] == expected[2..]
}
