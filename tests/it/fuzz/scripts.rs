//! Calls the scripts with arbitrary arguments.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use redis::{Connection, RedisError, Value};

use super::Plan;
use super::arguments::pick;
use super::calls::{Call, LISTENED, NAME};
use super::members::forged_member;
use super::replies;
use super::rules::{Rules, check_message, ensure};
use super::shown;
use test_support::contents::Contents;
use test_support::scripts::{Scripts, keys_of};
use test_support::server::Server;

const START_US: i64 = 1_800_000_000_000_000;
/// If a call takes longer, the server has stalled.
const PATIENCE: Duration = Duration::from_secs(20);
/// The steps of the clock, in ms. In rare cases, the clock moves back.
const STEPS: [i64; 8] = [1, 499, 501, 5_003, 30_011, 70_017, 3_600_023, 86_400_029];

#[test]
fn scripts_return_valid_replies_or_clear_errors_for_arbitrary_arguments() {
    let plan = Plan::read(4_000);
    let mut field = Field::start();
    for number in 0.. {
        if field.tally.calls >= plan.cases {
            break;
        }
        let seed = plan.seed.wrapping_add(number);
        if let Err(problem) = field.play(&mut Rng::with_seed(seed)) {
            let calls = field.history.join("\n  ");
            panic!("{problem}\nThe calls were:\n  {calls}\nAgain: FUZZ_SEED={seed} FUZZ_CASES=1");
        }
    }
    println!("{}", field.tally);
}

struct Field {
    server: Server,
    scripts: Scripts,
    listener: Connection,
    now_us: i64,
    rules: Rules,
    /// Whether keys were lost or overwritten. If so, their contents no longer follow any rules.
    is_wounded: bool,
    /// Whether `order` or `turns` have forged members.
    is_forged: bool,
    tickets: Vec<i64>,
    history: Vec<String>,
    tally: Tally,
}

#[derive(Default)]
struct Tally {
    sequences: u64,
    calls: u64,
    answered: BTreeMap<&'static str, u64>,
    refused: BTreeMap<String, u64>,
    messages: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sequences, calls, answered, refused, messages } = self;
        write!(
            f,
            "{calls} calls in {sequences} sequences; answered: {answered:?}; refused: {refused:?}; \
             {messages} messages"
        )
    }
}

/// The contents of a key. The dump of a hash or a sorted set depends on its encoding, and a
/// temporary member may change the encoding. So the test compares the pairs of such a key, not its
/// dump.
#[derive(PartialEq)]
enum Holds {
    Nothing,
    Pairs(BTreeMap<Vec<u8>, Vec<u8>>),
    Other(Value),
}

fn holds(responses: &[Result<Value, RedisError>]) -> (Holds, bool) {
    let [hash, sorted, dump, ttl] = responses else { panic!("{responses:?}") };
    let held = match (dump, hash, sorted) {
        (Ok(Value::Nil), ..) => Holds::Nothing,
        (_, Ok(pairs), _) | (_, _, Ok(pairs)) => {
            Holds::Pairs(redis::from_redis_value(pairs.clone()).unwrap())
        }
        (dump, ..) => Holds::Other(dump.clone().unwrap()),
    };
    (held, matches!(ttl, Ok(Value::Int(0..))))
}

impl Field {
    fn start() -> Self {
        let server = Server::start();
        let scripts = Scripts::new(server.connect(), NAME);
        scripts.connection.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut listener = server.connect();
        listener.set_read_timeout(Some(PATIENCE)).unwrap();
        let subscribe = redis::cmd("SUBSCRIBE").arg(&LISTENED).get_packed_command();
        listener.send_packed_command(&subscribe).unwrap();
        for _ in LISTENED {
            listener.recv_response().unwrap();
        }
        let (rules, is_wounded, is_forged, tickets, history, tally) = Default::default();
        Self {
            server,
            scripts,
            listener,
            now_us: START_US,
            rules,
            is_wounded,
            is_forged,
            tickets,
            history,
            tally,
        }
    }

    /// Runs one sequence of calls on a semaphore.
    fn play(&mut self, random: &mut Rng) -> Result<(), String> {
        redis::cmd("FLUSHALL").exec(&mut self.scripts.connection).unwrap();
        self.set_clock(START_US);
        self.rules = Rules::default();
        (self.is_wounded, self.is_forged) = (false, false);
        self.tickets.clear();
        self.history.clear();
        let (may_be_wounded, may_be_forged) = (random.u8(..4) == 0, random.u8(..4) == 0);
        for _ in 0..random.u8(5..40) {
            match random.u8(..100) {
                0..12 => self.pass(random),
                12..16 if may_be_wounded => self.wound(random),
                16..24 if may_be_forged && !self.is_wounded => self.forge(random),
                _ => {
                    let call = Call::random(random, &self.tickets);
                    self.history.push(call.to_string());
                    self.call(&call).map_err(|problem| format!("{problem}\nin {call}"))?;
                }
            }
        }
        self.tally.sequences += 1;
        self.receive_messages()
    }

    fn call(&mut self, call: &Call) -> Result<(), String> {
        self.tally.calls += 1;
        let mut keys = [keys_of(NAME), call.keys.clone()].concat();
        keys.sort();
        keys.dedup();
        let before = self.dump(&keys);
        match self.scripts.call_with(call.script, &call.keys, &call.arguments) {
            Ok(reply) => self.answered(call, &reply),
            Err(error) => {
                self.refused(&error)?;
                ensure(self.dump(&keys) == before, || format!("E1: it changed something: {error}"))
            }
        }
    }

    fn answered(&mut self, call: &Call, reply: &Value) -> Result<(), String> {
        *self.tally.answered.entry(call.script).or_default() += 1;
        let response = replies::read(call, reply).map_err(|e| format!("reply {reply:?}: {e}"))?;
        // A call that does not use exactly the semaphore's keys in their order may change other
        // keys, or exchange the contents of the semaphore's keys.
        self.is_wounded |= !call.has_its_keys();
        if self.is_wounded {
            return Ok(());
        }
        if call.script == "probe" {
            let left = self.dump(&call.keys);
            return ensure(left.iter().all(|(left, _)| *left == Holds::Nothing), || {
                "probe leaves something behind".to_owned()
            });
        }
        let after = Contents::read(&mut self.scripts);
        if self.is_forged {
            self.rules.check_permits(call, &response, &after)?;
        } else {
            self.rules.check(call, &response, &after, &keys_of(NAME))?;
        }
        self.rules.before = after;
        self.tickets.extend(response.tickets);
        Ok(())
    }

    fn refused(&mut self, error: &RedisError) -> Result<(), String> {
        let code = error.code().unwrap_or_default().to_owned();
        ensure(code.starts_with("SEM_"), || format!("a raw error: {error}"))?;
        let detail = error.detail().unwrap_or_default();
        let is_readable = detail.len() < 400 && detail.bytes().all(|b| (b' '..=b'~').contains(&b));
        ensure(is_readable, || format!("unreadable: {error}"))?;
        *self.tally.refused.entry(code).or_default() += 1;
        Ok(())
    }

    /// Returns the contents of these keys, and whether they expire.
    fn dump(&mut self, keys: &[String]) -> Vec<(Holds, bool)> {
        let mut pipeline = redis::pipe();
        pipeline.ignore_errors();
        for key in keys {
            pipeline.hgetall(key).zrange_withscores(key, 0, -1).cmd("DUMP").arg(key).pttl(key);
        }
        let responses: Vec<Result<Value, RedisError>> =
            pipeline.query(&mut self.scripts.connection).unwrap();
        responses.chunks(4).map(holds).collect()
    }

    fn set_clock(&mut self, us: i64) {
        self.now_us = us;
        self.server.clock.freeze_seen_at(us, &mut self.scripts.connection);
    }

    fn pass(&mut self, random: &mut Rng) {
        let mut ms = pick(random, &STEPS);
        if random.u8(..15) == 0 {
            ms = -ms;
        }
        self.history.push(format!("the clock moves by {ms} ms"));
        self.set_clock(self.now_us + ms * 1000);
        // Keys may expire without a call, so the comparison uses the keys that remain.
        if !self.is_wounded {
            self.rules.before = Contents::read(&mut self.scripts);
        }
    }

    fn wound(&mut self, random: &mut Rng) {
        let key = pick(random, &[0, 1, 2, 3, 4, 5]);
        let key = &self.scripts.all_keys[key];
        let writes: &[&str] =
            &["", "SET KEY text", "RPUSH KEY item", "SADD KEY item", "HSET KEY version 1"];
        let write = pick(random, writes).replace("KEY", key);
        self.history.push(format!("DEL {key}, then {write}"));
        self.is_wounded = true;
        let mut pipeline = redis::pipe();
        pipeline.del(key);
        let mut ids = write.split(' ');
        if let Some(command) = ids.next().filter(|command| !command.is_empty()) {
            pipeline.cmd(command).arg(ids.collect::<Vec<_>>());
        }
        pipeline.exec(&mut self.scripts.connection).unwrap();
    }

    /// Adds a member to `order` or `turns` that no script adds.
    fn forge(&mut self, random: &mut Rng) {
        let contents = Contents::read(&mut self.scripts);
        let waiting = contents.queue.iter().nth(random.usize(..3));
        let (key, member, score) = forged_member(random, waiting);
        self.history.push(format!("ZADD {key} {score} {}", shown(&member)));
        self.is_forged = true;
        let mut add = redis::cmd("ZADD");
        add.arg(&keys_of(NAME)[key]).arg(score).arg(member);
        add.exec(&mut self.scripts.connection).unwrap();
    }

    /// Checks the messages that were published in this sequence.
    fn receive_messages(&mut self) -> Result<(), String> {
        const END: &[u8] = b"end of sequence";
        redis::cmd("PUBLISH").arg(LISTENED[0]).arg(END).exec(&mut self.scripts.connection).unwrap();
        loop {
            let message = self.listener.recv_response().map_err(|e| e.to_string())?;
            let (_, channel, text): (String, String, Vec<u8>) =
                redis::from_redis_value(message).map_err(|e| e.to_string())?;
            if text == END {
                return Ok(());
            }
            self.tally.messages += 1;
            if !self.is_wounded {
                check_message(&channel, &text, NAME).map_err(|e| format!("a message {e}"))?;
            }
        }
    }
}
