//! The real scripts on a real server, beside the model.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use redis::{Connection, RedisError, Value};

use super::Step;
use super::invariants::Watch;
use super::moving::{self, Moving};
use super::semaphore::{Model, Place, Request};
use crate::support::clock::CLOCK_LAG;
use crate::support::scripts::{Scripts, acquire_head, integers};
use crate::support::server::Server;

const START_US: i64 = 1_800_000_000_000_000;

pub struct System {
    server: Server,
    pub moving: Option<Moving>,
    pub scripts: Scripts,
    listeners: Vec<Connection>,
    pub model: Model,
    pub watch: Watch,
    tickets: HashMap<String, i64>,
    /// Where the server's clock stands still.
    frozen_us: i64,
    /// What time it was in the last call, or since the clock was moved.
    pub now: i64,
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
        let listeners = (0..3).map(|_| server.connect()).collect();
        let (model, watch, tickets, frozen_us, now) = Default::default();
        Self { server, moving, scripts, listeners, model, watch, tickets, frozen_us, now }
    }

    pub fn begin_case(&mut self) {
        redis::cmd("FLUSHALL").exec(&mut self.scripts.connection).unwrap();
        self.model = Model { now_us: START_US, ..Model::default() };
        self.watch = Watch::default();
        self.tickets.clear();
        self.freeze_at(START_US);
        for client in 0..3 {
            // A case that failed may have left messages behind, and that of a smaller one is wanted.
            let _of_the_case_before = self.listen(client, true);
        }
    }

    pub fn apply(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Clock { us } => self.move_clock(*us),
            Step::Listen { client, listens } => self.listen(*client, *listens),
            Step::LoseEverything => {
                redis::cmd("FLUSHALL").exec(&mut self.scripts.connection).unwrap();
                self.model.permits.clear();
                self.model.queue.clear();
                self.model.forget_state();
                self.watch.forget();
                Ok(())
            }
            Step::Acquire { client, limit, requests } => self.acquire(*client, *limit, requests),
            Step::Release { consume, ids } => {
                let how = if *consume { "consume" } else { "return" };
                let arguments = [&[how.to_owned()], ids.as_slice()].concat();
                self.watch.released(ids);
                self.compare("release", &arguments, &|model| Some(model.release(*consume, ids)))
            }
            Step::Refresh { requests } => {
                let pair = |(id, lease): &(String, i64)| [id.clone(), lease.to_string()];
                let arguments: Vec<_> = requests.iter().flat_map(pair).collect();
                self.compare("refresh", &arguments, &|model| Some(model.refresh(requests)))
            }
            Step::Wake => self.compare("wake", &[], &|model| Some(model.wake())),
            Step::Limit { action, number, id } => {
                let arguments = match *action {
                    "add" => vec![action.to_string(), number.to_string(), id.clone()],
                    "clear" => vec![action.to_string()],
                    _ => vec![action.to_string(), number.to_string()],
                };
                let call = |model: &mut Model| Some(model.limit_action(action, *number, id));
                self.compare("limit", &arguments, &call)
            }
        }?;
        self.receive_messages()
    }

    fn acquire(&mut self, client: usize, limit: i64, requests: &[Request]) -> Result<(), String> {
        let mut arguments = acquire_head(limit as u32, &format!("client{client}"));
        let mut requests = requests.to_vec();
        for request in &mut requests {
            if request.place == Place::Ticket(0) {
                let known = self.tickets.get(&request.id);
                request.place = known.map_or(Place::Wait, |ticket| Place::Ticket(*ticket));
            }
            let place = match request.place {
                Place::Try => "try".to_owned(),
                Place::Wait => "wait".to_owned(),
                Place::Ticket(ticket) => ticket.to_string(),
            };
            let (weight, lease) = (request.weight.to_string(), request.lease.to_string());
            arguments.extend([request.id.clone(), weight, lease, place]);
        }
        self.compare("acquire", &arguments, &|model| model.acquire(client, limit, &requests))?;
        for (ticket, id) in self.model.queue.keys() {
            self.tickets.insert(id.clone(), *ticket);
        }
        Ok(())
    }

    fn compare(&mut self, script: &str, arguments: &[String], call: Call) -> Result<(), String> {
        let before = self.model.clone();
        let expected = call(&mut self.model);
        // E1 is checked where the call must fail; elsewhere the model says what changes.
        let dump = if expected.is_none() { self.scripts.dump() } else { Vec::new() };
        match (self.call(script, arguments), expected) {
            (Ok(reply), Some(expected)) => {
                let reply = integers(script, arguments, reply);
                self.now = reply[0];
                let sequence = self.sequence();
                let agrees = reply == expected && sequence == self.model.sequence;
                if agrees || self.agrees_a_little_later(&before, &reply, sequence, call) {
                    return Ok(());
                }
                Err(format!("{script} {arguments:?}: {reply:?}, the model says {expected:?}"))
            }
            (Err(error), None) if error.to_string().contains("SEM_TOO_HEAVY") => {
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

    fn sequence(&mut self) -> i64 {
        let mut get = redis::cmd("HGET");
        get.arg(&self.scripts.keys[3]).arg("sequence");
        get.query::<Option<i64>>(&mut self.scripts.connection).unwrap().unwrap_or(0)
    }

    /// Valkey looks at the clock once a millisecond, and lets it go on by itself in between. How far
    /// it had come in this call is seen in the reply and in the sequence.
    fn agrees_a_little_later(
        &mut self,
        before: &Model,
        reply: &[i64],
        sequence: i64,
        call: Call,
    ) -> bool {
        let from_sequence = (-1..10).map(|issued| sequence - issued);
        for now_us in from_sequence.chain([reply[0] * 1000, reply[0] * 1000 + 999]) {
            let mut model = Model { now_us, ..before.clone() };
            let is_near = CLOCK_LAG.contains(&(now_us - self.frozen_us));
            if is_near && call(&mut model).as_deref() == Some(reply) && model.sequence == sequence {
                self.model = Model { now_us: self.frozen_us, ..model };
                return true;
            }
        }
        false
    }

    /// Every hand-off of the model is in a message, one for each client, in order and with the same
    /// content.
    fn receive_messages(&mut self) -> Result<(), String> {
        let mut expected: BTreeMap<usize, String> = BTreeMap::new();
        for (client, id, token, ends) in std::mem::take(&mut self.model.messages) {
            let message = expected.entry(client).or_insert_with(|| "model".to_owned());
            message.push_str(&format!("\n{id} {token} {ends}"));
        }
        for (client, expected) in expected {
            let listener = &mut self.listeners[client];
            listener.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let reply =
                listener.recv_response().map_err(|e| format!("message {expected:?}: {e}"))?;
            let (_, _, text): (String, String, String) = redis::from_redis_value(reply).unwrap();
            if text != expected {
                return Err(format!("message {text:?}, the model says {expected:?}"));
            }
        }
        Ok(())
    }

    /// Fails when there is a message that the model knows nothing of.
    fn listen(&mut self, client: usize, listens: bool) -> Result<(), String> {
        let command = if listens { "SUBSCRIBE" } else { "UNSUBSCRIBE" };
        let packed = redis::cmd(command).arg(format!("client{client}")).get_packed_command();
        // The answer comes before any later message: both travel on this connection.
        let listener = &mut self.listeners[client];
        listener.send_packed_command(&packed).unwrap();
        let mut unexpected = Vec::new();
        loop {
            let reply = listener.recv_response().unwrap();
            let (kind, _, rest): (String, String, redis::Value) =
                redis::from_redis_value(reply).unwrap();
            if kind == command.to_lowercase() {
                break;
            }
            unexpected.push(rest);
        }
        if listens {
            self.model.listening.insert(client);
        } else {
            self.model.listening.remove(&client);
        }
        if unexpected.is_empty() {
            return Ok(());
        }
        Err(format!("messages {unexpected:?} to client {client}, the model says none"))
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
            self.model.permits.clear();
        }
        let waits = self.model.queue.values().any(|waiter| waiter.heard_until >= now);
        if gone(&keys[1], &mut self.scripts) || gone(&keys[2], &mut self.scripts) {
            if waits {
                return Err("queue expired while somebody waits".to_owned());
            }
            self.model.queue.clear();
        }
        if gone(&keys[3], &mut self.scripts) {
            if self.model.held_at(now) > 0 || waits || self.model.runtime.is_some() {
                return Err("state expired while it was needed".to_owned());
            }
            if self.model.sequence > self.model.now_us {
                return Err("S4: state expired, the sequence would go back".to_owned());
            }
            self.model.forget_state();
            if us < 0 {
                // Nobody was there for hours: only the clock says how far the tokens had come.
                self.watch.sequence = 0;
            }
        }
        Ok(())
    }

    /// No message was sent that the model knows nothing of.
    pub fn end_case(&mut self) -> Result<(), String> {
        (0..3).try_for_each(|client| self.listen(client, true))
    }
}
