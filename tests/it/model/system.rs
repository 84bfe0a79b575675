//! The real scripts on a real server, beside the model.

use std::collections::HashMap;
use std::time::Duration;

use redis::Connection;

use super::Step;
use super::invariants::Watch;
use super::semaphore::{Model, Place};
use crate::support::scripts::{Scripts, acquire_head};
use crate::support::server::Server;

const START_US: i64 = 1_800_000_000_000_000;

pub struct System {
    server: Server,
    pub scripts: Scripts,
    listeners: Vec<Connection>,
    pub model: Model,
    pub watch: Watch,
    tickets: HashMap<String, i64>,
}

impl System {
    pub fn start() -> Self {
        let server = Server::start();
        let scripts = Scripts::new(server.connect(), "model");
        let listeners = (0..3).map(|_| server.connect()).collect();
        let (model, watch, tickets) = Default::default();
        Self { server, scripts, listeners, model, watch, tickets }
    }

    pub fn begin_case(&mut self) {
        redis::cmd("FLUSHALL").exec(&mut self.scripts.connection).unwrap();
        self.model = Model { now_us: START_US, ..Model::default() };
        self.watch = Watch::default();
        self.tickets.clear();
        self.server.clock.freeze_at(START_US);
        for client in 0..3 {
            self.listen(client, true);
        }
    }

    pub fn apply(&mut self, step: &Step) -> Result<(), String> {
        let (script, arguments, expected) = match step {
            Step::Clock { us } => return self.move_clock(*us),
            Step::Listen { client, listens } => {
                self.listen(*client, *listens);
                return Ok(());
            }
            Step::LoseEverything => {
                redis::cmd("FLUSHALL").exec(&mut self.scripts.connection).unwrap();
                self.model.permits.clear();
                self.model.queue.clear();
                self.model.forget_state();
                self.watch.forget();
                return Ok(());
            }
            Step::Acquire { client, limit, requests } => {
                let mut arguments = acquire_head(*limit as u32, &format!("client{client}"));
                let mut requests = requests.clone();
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
                let expected = self.model.acquire(*client, *limit, &requests);
                let answers = expected.iter().flat_map(|reply| reply[2..].chunks(3));
                for (request, answer) in requests.iter().zip(answers) {
                    if answer[0] == 2 {
                        self.tickets.insert(request.id.clone(), answer[1]);
                    }
                }
                ("acquire", arguments, expected)
            }
            Step::Release { consume, ids } => {
                let how = if *consume { "consume" } else { "return" };
                let arguments = [&[how.to_owned()], ids.as_slice()].concat();
                self.watch.released(ids);
                ("release", arguments, Some(self.model.release(*consume, ids)))
            }
            Step::Refresh { requests } => {
                let pair = |(id, lease): &(String, i64)| [id.clone(), lease.to_string()];
                let arguments = requests.iter().flat_map(pair).collect();
                ("refresh", arguments, Some(self.model.refresh(requests)))
            }
            Step::Wake => ("wake", Vec::new(), Some(self.model.wake())),
            Step::Limit { action, number, id } => {
                let arguments = match *action {
                    "add" => vec![action.to_string(), number.to_string(), id.clone()],
                    "clear" => vec![action.to_string()],
                    _ => vec![action.to_string(), number.to_string()],
                };
                ("limit", arguments, Some(self.model.limit_action(action, *number, id)))
            }
        };
        self.compare(script, &arguments, expected)?;
        self.receive_messages()
    }

    fn compare(
        &mut self,
        script: &str,
        arguments: &[String],
        expected: Option<Vec<i64>>,
    ) -> Result<(), String> {
        // E1 is checked where the call must fail; elsewhere the model says what changes.
        let before = if expected.is_none() { self.scripts.dump() } else { Vec::new() };
        let keys = self.scripts.keys.clone();
        match (self.scripts.call_with(script, &keys, arguments), expected) {
            (Ok(reply), Some(expected)) => {
                let reply: Vec<i64> = redis::from_redis_value(reply).map_err(|e| e.to_string())?;
                if reply == expected {
                    return Ok(());
                }
                Err(format!("{script} {arguments:?}: {reply:?}, the model says {expected:?}"))
            }
            (Err(error), None) if error.to_string().contains("SEM_TOO_HEAVY") => {
                if self.scripts.dump() == before {
                    return Ok(());
                }
                Err(format!("E1: {script} {arguments:?} answers {error}, and changed something"))
            }
            (reply, expected) => {
                Err(format!("{script} {arguments:?}: {reply:?}, the model says {expected:?}"))
            }
        }
    }

    /// Every hand-off of the model has its message, in order and with the same content.
    fn receive_messages(&mut self) -> Result<(), String> {
        for (client, id, token, ends) in std::mem::take(&mut self.model.messages) {
            let listener = &mut self.listeners[client];
            listener.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let reply = listener.recv_response().map_err(|e| format!("message for {id}: {e}"))?;
            let (_, _, text): (String, String, String) = redis::from_redis_value(reply).unwrap();
            let expected = format!("model\n{id} {token} {ends}");
            if text != expected {
                return Err(format!("message {text:?}, the model says {expected:?}"));
            }
        }
        Ok(())
    }

    fn listen(&mut self, client: usize, listens: bool) {
        let command = if listens { "SUBSCRIBE" } else { "UNSUBSCRIBE" };
        let packed = redis::cmd(command).arg(format!("client{client}")).get_packed_command();
        // The answer comes before any later message: both travel on this connection.
        let reply = self.listeners[client].req_packed(&packed);
        let (kind, _, _): (String, String, i64) = redis::from_redis_value(reply).unwrap();
        assert_eq!(kind, command.to_lowercase());
        if listens {
            self.model.listening.insert(client);
        } else {
            self.model.listening.remove(&client);
        }
    }

    /// Time may take keys away, but only those in which nothing lives.
    fn move_clock(&mut self, us: i64) -> Result<(), String> {
        self.model.now_us += us;
        self.server.clock.freeze_at(self.model.now_us);
        let gone = |key: &str, scripts: &mut Scripts| {
            let exists = redis::cmd("EXISTS").arg(key).query::<i64>(&mut scripts.connection);
            exists.unwrap() == 0
        };
        let keys = self.scripts.keys.clone();
        let now = self.model.now();
        if gone(&keys[0], &mut self.scripts) {
            if self.model.held() > 0 {
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
            if self.model.held() > 0 || waits || self.model.runtime.is_some() {
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
        for client in 0..3 {
            self.listen(client, true);
        }
        Ok(())
    }
}

trait RequestPacked {
    fn req_packed(&mut self, packed: &[u8]) -> redis::Value;
}

impl RequestPacked for Connection {
    fn req_packed(&mut self, packed: &[u8]) -> redis::Value {
        self.send_packed_command(packed).unwrap();
        self.recv_response().unwrap()
    }
}
