//! The scripts by themselves, called as a client in any language would call them: what they promise
//! in their head comments and in the protocol, what they refuse, and what they survive.

mod arguments;
mod bounds;
mod clock;
mod commands;
mod errors;
mod expiry;
mod head;
mod inspect;
mod limit;
mod loss;
mod order;
mod probe;
mod quick;
mod repeat;
mod replies;
mod source;
mod wakeups;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Debug;
use std::ops::{Deref, DerefMut};

use redis::{FromRedisValue, RedisError, ToRedisArgs, Value};
use redis_semaphore::ScriptRegistry;

use crate::support::listener::Listener;

use crate::support::scripts::{Scripts, words};
use crate::support::server::{Server, connect, shared_admin_url, unique_name};

/// Where the clocks that tests move begin, in µs: the first token is this number.
const START_US: i64 = 1_800_000_000_000_000;

fn script_names() -> Vec<&'static str> {
    ScriptRegistry::embedded().scripts().map(|script| script.name()).collect()
}

/// Those that are called on semaphores: `probe` is for keys that nobody has.
fn semaphore_scripts() -> impl Iterator<Item = &'static str> {
    script_names().into_iter().filter(|name| *name != "probe")
}

/// A semaphore that nobody has used, on the server that all tests share.
fn fresh() -> Scripts {
    Scripts::new(connect(&shared_admin_url()), &unique_name())
}

/// A semaphore in use, so that a call which should change nothing has much to spoil: of the limit 5
/// "heavy" holds 3 and "light" 1; "first" waits for 2, "second" for 1.
fn in_use() -> Scripts {
    let mut semaphore = fresh();
    fill(&mut semaphore);
    semaphore
}

fn fill(semaphore: &mut Scripts) {
    let head = "declared 5 client poll 600000";
    let holders = "heavy 3 600000 try light 1 600000 try";
    let waiters = "first 2 600000 wait second 1 600000 wait";
    semaphore.ok("acquire", &format!("{head} {holders} {waiters}"));
}

/// Arguments with which every script succeeds.
fn sound(script: &str) -> Vec<String> {
    words(match script {
        "acquire" => "declared 5 client poll 10000 new 1 60000 wait",
        "inspect" => "0 10 0 10",
        "limit" => "set 7",
        "probe" => "client poll",
        "refresh" => "heavy 60000",
        "release" => "return heavy",
        "wake" => "",
        _ => panic!("{script} is not known here"),
    })
}

/// What `acquire` answers for one request.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Outcome {
    Granted { token: i64, end: i64 },
    Queued { ticket: i64, position: i64 },
    Refused,
}

use Outcome::{Granted, Queued, Refused};

impl Outcome {
    fn token(self) -> i64 {
        let Granted { token, .. } = self else { panic!("{self:?} is not granted") };
        token
    }

    fn ticket(self) -> i64 {
        let Queued { ticket, .. } = self else { panic!("{self:?} is not queued") };
        ticket
    }

    fn position(self) -> i64 {
        let Queued { position, .. } = self else { panic!("{self:?} is not queued") };
        position
    }

    fn is_granted(self) -> bool {
        matches!(self, Granted { .. })
    }
}

fn outcomes(reply: &[i64]) -> Vec<Outcome> {
    let outcome = |integers: &[i64]| match *integers {
        [1, token, end] => Granted { token, end },
        [2, ticket, position] => Queued { ticket, position },
        [0, 0, 0] => Refused,
        _ => panic!("{integers:?} is no answer to a request"),
    };
    reply[2..].chunks(3).map(outcome).collect()
}

/// What `inspect` answers. Holders and waiters with their weights, and time left or waited.
#[derive(Debug, PartialEq)]
struct Inspection {
    now: i64,
    limit: i64,
    declared: i64,
    runtime: i64,
    held: i64,
    members: i64,
    queued: i64,
    sequence: i64,
    holders: Vec<(String, i64, i64)>,
    waiters: Vec<(String, i64, i64)>,
}

impl FromRedisValue for Inspection {
    fn from_redis_value(value: Value) -> Result<Self, redis::ParsingError> {
        type Entries = Vec<(String, i64, i64)>;
        type Reply = (i64, i64, i64, i64, i64, i64, i64, i64, Entries, Entries);
        let (now, limit, declared, runtime, held, members, queued, sequence, holders, waiters) =
            Reply::from_redis_value(value)?;
        Ok(Self {
            now,
            limit,
            declared,
            runtime,
            held,
            members,
            queued,
            sequence,
            holders,
            waiters,
        })
    }
}

impl Inspection {
    fn holder_ids(&self) -> BTreeSet<&str> {
        self.holders.iter().map(|(id, _, _)| id.as_str()).collect()
    }

    fn waiter_ids(&self) -> Vec<&str> {
        self.waiters.iter().map(|(id, _, _)| id.as_str()).collect()
    }
}

/// An error of a script: its name, and what it says.
#[derive(Debug)]
struct Refusal {
    code: String,
    detail: String,
}

impl From<RedisError> for Refusal {
    fn from(error: RedisError) -> Self {
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        Self { code: text(error.code()), detail: text(error.detail()) }
    }
}

impl Scripts {
    /// Acquires for a client that asks again now and then: it needs no listener.
    fn acquire(&mut self, limit: i64, requests: &str) -> Vec<Outcome> {
        self.acquire_for(limit, "client poll 600000", requests)
    }

    /// `client` stands for client, wake and liveness; `requests` for id, weight, lease and place.
    fn acquire_for(&mut self, limit: i64, client: &str, requests: &str) -> Vec<Outcome> {
        outcomes(&self.ok("acquire", &format!("declared {limit} {client} {requests}")))
    }

    fn acquire_one(&mut self, limit: i64, request: &str) -> Outcome {
        self.acquire(limit, request)[0]
    }

    fn inspect(&mut self) -> Inspection {
        redis::from_redis_value(self.call("inspect", "0 1000 0 1000").unwrap()).unwrap()
    }

    /// Runs any command on the semaphore's server.
    fn command<T: FromRedisValue>(&mut self, command: &str) -> T {
        let mut parts = words(command).into_iter();
        let mut command = redis::cmd(&parts.next().unwrap());
        command.arg(parts.collect::<Vec<_>>()).query(&mut self.connection).unwrap()
    }

    fn key(&self, name: &str) -> String {
        self.keys.iter().find(|key| key.ends_with(&format!(":{name}"))).unwrap().clone()
    }

    fn lose(&mut self, name: &str) {
        let key = self.key(name);
        let deleted: i64 = self.command(&format!("DEL {key}"));
        assert_eq!(deleted, 1, "{key} was not there to be lost");
    }

    /// Ms to live of each key, -1 where it lives for ever, -2 where there is none.
    fn expiries(&mut self) -> BTreeMap<String, i64> {
        let keys = self.keys.clone();
        let name = |key: &str| key.rsplit(':').next().unwrap().to_owned();
        keys.iter().map(|key| (name(key), self.command(&format!("PTTL {key}")))).collect()
    }

    fn state(&mut self) -> HashMap<String, String> {
        let key = self.key("state");
        self.command(&format!("HGETALL {key}"))
    }

    /// The error of a call that must fail, and must not have changed anything.
    fn refusal<A: ToRedisArgs + Debug>(
        &mut self,
        script: &str,
        keys: &[String],
        arguments: &[A],
    ) -> Refusal {
        let before = self.dump();
        let refusal = match self.call_with(script, keys, arguments) {
            Ok(reply) => panic!("{script} {arguments:?} should fail, but answers {reply:?}"),
            Err(error) => Refusal::from(error),
        };
        assert_eq!(self.dump(), before, "{script} {arguments:?} fails, but changes something");
        refusal
    }

    fn refuses(&mut self, script: &str, arguments: &str) -> Refusal {
        self.refusal(script, &self.keys.clone(), &words(arguments))
    }

    /// Each key lives at least as long as the leases and waits in it; none lives for ever, but for
    /// `state` while a limit is set at run time.
    fn assert_expiries(&mut self, now: i64) {
        let (permits, waiting) = (self.key("permits"), self.key("waiting"));
        let ends: Vec<(String, i64)> = self.command(&format!("ZRANGE {permits} -1 -1 WITHSCORES"));
        let ends = ends.first().map_or(0, |(_, end)| end - now);
        let records: Vec<String> = self.command(&format!("HVALS {waiting}"));
        let heard = |record: &String| record.split(' ').nth(2).unwrap().parse::<i64>().unwrap();
        let heard = records.iter().map(heard).max().map_or(0, |until| until - now);
        let is_kept = self.state().contains_key("runtime");
        for (key, ttl) in self.expiries() {
            let needed = match key.as_str() {
                "permits" => ends,
                "queue" | "waiting" => heard,
                _ => ends.max(heard),
            };
            match ttl {
                -2 => {}
                -1 => assert!(is_kept && key == "state", "{key} does not expire"),
                _ if is_kept && key == "state" => panic!("state expires, a limit was set"),
                _ => assert!(ttl >= needed, "{key} expires in {ttl} ms, needed for {needed} ms"),
            }
        }
    }

    /// Nobody's weight or mark stays in `state`, and the sums there are those of the permits.
    fn assert_weights_agree(&mut self) {
        let (permits, state) = (self.key("permits"), self.state());
        let permits: BTreeSet<String> = self.command(&format!("ZRANGE {permits} 0 -1"));
        let number = |field: &str| state.get(field).map_or(0, |n| n.parse::<i64>().unwrap());
        let mut extra = 0;
        for (field, weight) in &state {
            if let Some(id) = field.strip_prefix("w:") {
                assert!(permits.contains(id), "weight {weight} of {id}, which holds nothing");
                extra += weight.parse::<i64>().unwrap() - 1;
            }
        }
        assert_eq!(number("extra"), extra, "sum of the weights above 1");
        let marks = permits.iter().filter(|id| id.starts_with('+')).count() as i64;
        assert_eq!(number("marks"), marks, "number of marks");
    }
}

/// A semaphore on a server of its own, whose clock stands still until the test moves it.
struct Timed {
    server: Server,
    scripts: Scripts,
    now_us: i64,
}

impl Timed {
    fn start() -> Self {
        let server = Server::start();
        server.clock.freeze_at(START_US);
        let scripts = Scripts::new(server.connect(), "timed");
        Self { server, scripts, now_us: START_US }
    }

    fn now(&self) -> i64 {
        self.now_us / 1000
    }

    /// Lets time pass, or steps the clock back.
    fn pass(&mut self, ms: i64) {
        self.now_us += ms * 1000;
        self.server.clock.freeze_at(self.now_us);
    }

    fn listen(&self, channel: &str) -> Listener {
        Listener::subscribe(self.server.connect(), "SUBSCRIBE", channel)
    }

    /// How often each command ran during `call`.
    fn commands_of<T>(&mut self, call: impl FnOnce(&mut Self) -> T) -> (T, Commands) {
        self.command::<()>("CONFIG RESETSTAT");
        let result = call(self);
        let info: String = self.command("INFO commandstats");
        let calls = |line: &str| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name.to_owned(), rest.split(',').next()?.parse().unwrap()))
        };
        (result, Commands(info.lines().filter_map(calls).collect()))
    }
}

impl Deref for Timed {
    type Target = Scripts;

    fn deref(&self) -> &Scripts {
        &self.scripts
    }
}

impl DerefMut for Timed {
    fn deref_mut(&mut self) -> &mut Scripts {
        &mut self.scripts
    }
}

/// How often each command ran.
#[derive(Debug)]
struct Commands(BTreeMap<String, i64>);

impl Commands {
    fn count(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// How often it was asked whether anybody listens. Redis 6.2 does not count subcommands apart.
    fn lookups_of_listeners(&self) -> i64 {
        self.count("pubsub|numsub") + self.count("pubsub")
    }

    /// All that scripts called: neither the call itself, nor the client's own commands.
    fn in_scripts(&self) -> i64 {
        let own = ["evalsha", "script|load", "config|resetstat", "info", "config", "script"];
        self.0.iter().filter(|(name, _)| !own.contains(&name.as_str())).map(|(_, n)| n).sum()
    }
}

/// Redis has them from version 7 on.
fn has_sharded_channels(scripts: &mut Scripts) -> bool {
    let info: Vec<Value> = scripts.command("COMMAND INFO spublish");
    info.iter().any(|command| *command != Value::Nil)
}
