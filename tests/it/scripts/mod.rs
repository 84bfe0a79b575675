//! Tests of the scripts without the library. The tests call the scripts as a client in any language
//! does. The tests cover the behavior that the head comments and the protocol describe, the errors,
//! and failures that the scripts survive.

mod abandoned;
mod arguments;
mod bounds;
mod clock;
mod commands;
mod crowd;
mod errors;
mod expiry;
mod foreign;
mod groups;
mod head;
mod head_starts;
mod inspect;
mod limit;
mod loss;
mod lost_state;
mod order;
mod probe;
mod repeat;
mod replies;
mod responses;
mod short_lived;
mod source;
mod timed;
mod too_heavy;
mod values;
mod wakeups;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::ops::{Deref, DerefMut};

use redis::{FromRedisValue, RedisError, ToRedisArgs, Value};
use redis_semaphore::ScriptRegistry;

use responses::Outcome::{self, Granted, Queued};
use responses::{Inspection, Refusal, outcomes};
use timed::{Commands, Timed};

use test_support::listener::Listener;
use test_support::scripts::{self, id, in_group, words};
use test_support::server::{connect, shared_admin_url, unique_name};

/// The tests' clocks start at this time in µs, so this number is the first token.
const START_US: i64 = 1_800_000_000_000_000;

fn script_names() -> Vec<&'static str> {
    ScriptRegistry::embedded().scripts().map(|script| script.name()).collect()
}

/// Returns the scripts that are called on semaphores. `probe` uses keys that no semaphore has.
fn semaphore_scripts() -> impl Iterator<Item = &'static str> {
    script_names().into_iter().filter(|name| *name != "probe")
}

/// A semaphore whose IDs have readable names, such as "heavy". Arguments contain these names.
/// `acquire` takes "LIMIT_MODE LIMIT CLIENT NOTIFY HEARTBEAT_TIMEOUT" and, for each request, "NAME
/// WEIGHT LEASE WAIT_MODE". A name may be followed by a group: "NAME@GROUP,SHARE,CAP". NOTIFY is
/// `publish`, `spublish` or `poll`. `limit` takes only the change, with or without the name of an
/// idempotency key.
struct Scripts {
    raw: scripts::Scripts,
    ids: HashMap<String, String>,
    marks: u32,
}

impl Deref for Scripts {
    type Target = scripts::Scripts;

    fn deref(&self) -> &scripts::Scripts {
        &self.raw
    }
}

impl DerefMut for Scripts {
    fn deref_mut(&mut self) -> &mut scripts::Scripts {
        &mut self.raw
    }
}

fn name_of(id: &str) -> &str {
    id.rsplit(':').next().unwrap().trim_end_matches('_')
}

/// Returns the next message to a client, with names instead of IDs.
fn reported(listener: &mut Listener) -> String {
    let text = listener.message();
    let mut lines = text.lines();
    let name = lines.next().unwrap().to_owned();
    lines.fold(name, |reported, line| {
        let (id, rest) = line.split_once(' ').unwrap();
        format!("{reported}\n{} {rest}", name_of(id))
    })
}

/// Returns an unused semaphore on the server that all tests share.
fn fresh() -> Scripts {
    Scripts::new(connect(&shared_admin_url()), &unique_name())
}

/// Returns a semaphore in use, so that an unexpected change is visible. The limit is 5; "heavy"
/// holds 3 and "light" 1. "first" waits for 2, and "second" for 1.
fn in_use() -> Scripts {
    let mut semaphore = fresh();
    fill(&mut semaphore);
    semaphore
}

fn fill(semaphore: &mut Scripts) {
    let head = "declare_if_unset 5 client poll 600000";
    let holders = "heavy 3 600000 try light 1 600000 try";
    let waiters = "first 2 600000 wait second 1 600000 wait";
    semaphore.ok("acquire", &format!("{head} {holders} {waiters}"));
}

/// Returns arguments with which the script succeeds.
fn sound(script: &str) -> Vec<String> {
    words(match script {
        "acquire" => "declare_if_unset 5 10000 N:client:1:60000:new_____________ wait",
        "inspect" => "0 10 0 10",
        "limit" => "existing 0 set 7 N:client:0:60000:mark____________",
        "probe" => "N client",
        "refresh" => "N:client:3:600000:heavy___________ 60000",
        "release" => "return N:client:3:600000:heavy___________",
        "wake" => "",
        _ => panic!("{script} is not known here"),
    })
}

impl Scripts {
    fn new(connection: redis::Connection, name: &str) -> Self {
        let raw = scripts::Scripts::new(connection, name);
        Self { raw, ids: HashMap::new(), marks: 0 }
    }

    /// Returns the ID of this name, or an unused ID.
    fn id(&self, name: &str) -> String {
        let unknown = || id("N", "nobody", 1, 60_000, name);
        self.ids.get(name).cloned().unwrap_or_else(unknown)
    }

    fn mark(&mut self, name: Option<&String>) -> String {
        self.marks += 1;
        let made_up = format!("mark-{}", self.marks);
        id("N", "client", 0, 60_000, name.unwrap_or(&made_up))
    }

    /// Returns the arguments with IDs instead of names.
    fn arguments(&mut self, script: &str, text: &str) -> Vec<String> {
        let text = words(text);
        match script {
            "acquire" => self.acquire_arguments(&text),
            "release" => {
                let ids = text.iter().skip(1).map(|name| self.id(name));
                text.iter().take(1).cloned().chain(ids).collect()
            }
            "refresh" => {
                text.chunks(2).flat_map(|pair| [self.id(&pair[0]), pair[1].clone()]).collect()
            }
            "limit" => {
                let known = words("existing 0");
                match text[0].as_str() {
                    "set" | "add" => [&known, &text[..2], &[self.mark(text.get(2))]].concat(),
                    "clear" => [&known, &text[..1], &[self.mark(text.get(1))]].concat(),
                    _ => text,
                }
            }
            _ => text,
        }
    }

    fn acquire_arguments(&mut self, text: &[String]) -> Vec<String> {
        let [kind, limit, client, how, heartbeat_timeout] = &text[..5] else { unreachable!() };
        let how = match how.as_str() {
            "publish" => "P",
            "spublish" => "S",
            "poll" => "N",
            other => other,
        };
        let mut arguments = vec![kind.clone(), limit.clone(), heartbeat_timeout.clone()];
        for request in text[5..].chunks(4) {
            let [name, weight, lease, place] = request else { panic!("{request:?}") };
            let (name, group) = name.split_once('@').unwrap_or((name, ""));
            let mut id = id(how, client, weight.parse().unwrap(), lease.parse().unwrap(), name);
            if !group.is_empty() {
                id = in_group(&id, group);
            }
            self.ids.insert(name.to_owned(), id.clone());
            arguments.extend([id, place.clone()]);
        }
        arguments
    }

    fn call(&mut self, script: &str, arguments: &str) -> Result<Value, RedisError> {
        let arguments = self.arguments(script, arguments);
        self.raw.call_with(script, &self.raw.keys.clone(), &arguments)
    }

    fn ok(&mut self, script: &str, arguments: &str) -> Vec<i64> {
        let arguments = self.arguments(script, arguments);
        self.raw.integers(script, &arguments)
    }

    /// Acquires for a client that polls and needs no subscription.
    fn acquire(&mut self, limit: i64, requests: &str) -> Vec<Outcome> {
        self.acquire_for(limit, "client poll 600000", requests)
    }

    /// Acquires. `client` contains client, notify mode and heartbeat timeout; `requests` contains
    /// name, weight, lease and wait mode.
    fn acquire_for(&mut self, limit: i64, client: &str, requests: &str) -> Vec<Outcome> {
        outcomes(&self.ok("acquire", &format!("declare_if_unset {limit} {client} {requests}")))
    }

    fn acquire_one(&mut self, limit: i64, request: &str) -> Outcome {
        self.acquire(limit, request)[0]
    }

    fn inspect(&mut self) -> Inspection {
        redis::from_redis_value(self.call("inspect", "0 1000 0 1000").unwrap()).unwrap()
    }

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

    /// Returns the remaining time of each key in ms. The value -1 means that the key has no expiry,
    /// and -2 means that the key does not exist.
    fn expiries(&mut self) -> BTreeMap<String, i64> {
        let keys = self.keys.clone();
        let name = |key: &str| key.rsplit(':').next().unwrap().to_owned();
        keys.iter().map(|key| (name(key), self.command(&format!("PTTL {key}")))).collect()
    }

    fn state(&mut self) -> HashMap<String, String> {
        let key = self.key("state");
        self.command(&format!("HGETALL {key}"))
    }

    /// Returns the error of a call that must fail without changing anything.
    fn refusal<A: ToRedisArgs + Debug>(
        &mut self,
        script: &str,
        keys: &[String],
        arguments: &[A],
    ) -> Refusal {
        let before = self.dump();
        let refusal = match self.call_with(script, keys, arguments) {
            Ok(reply) => panic!("{script} {arguments:?} should fail, but returns {reply:?}"),
            Err(error) => Refusal::from(error),
        };
        assert_eq!(self.dump(), before, "{script} {arguments:?} fails, but changes something");
        refusal
    }

    fn refuses(&mut self, script: &str, arguments: &str) -> Refusal {
        let arguments = self.arguments(script, arguments);
        self.refusal(script, &self.keys.clone(), &arguments)
    }

    /// Returns the members and scores of a sorted set, without `*` and the groups in `permits`.
    fn scores(&mut self, key: &str) -> Vec<(String, i64)> {
        let key = self.key(key);
        let members: Vec<(String, i64)> = self.command(&format!("ZRANGE {key} 0 -1 WITHSCORES"));
        members.into_iter().filter(|(member, _)| !member.starts_with('*')).collect()
    }

    /// Checks that each key lives at least as long as the leases and waits in it, and that each key
    /// has an expiry. Only `state` has none while a runtime limit is set.
    fn assert_expiries(&mut self, now: i64) {
        let latest = |scores: Vec<(String, i64)>| {
            // The score of an idempotency key is negative.
            scores.iter().map(|(_, until)| until.abs() - now).max().unwrap_or(0)
        };
        let (ends, received) = (latest(self.scores("permits")), latest(self.scores("clients")));
        let is_kept = self.state().contains_key("runtime");
        for (key, ttl) in self.expiries() {
            let needed = match key.as_str() {
                "permits" => ends,
                "queue" | "clients" => received,
                _ => ends.max(received),
            };
            match ttl {
                -2 => {}
                -1 => assert!(is_kept && key == "state", "{key} does not expire"),
                _ if is_kept && key == "state" => panic!("state expires, a limit was set"),
                _ => assert!(ttl >= needed, "{key} expires in {ttl} ms, needed for {needed} ms"),
            }
        }
    }

    /// Checks that `*` contains the sum of the weights above 1.
    fn assert_weights_agree(&mut self) {
        let permits = self.scores("permits");
        let key = self.key("permits");
        let kept: Option<i64> = self.command(&format!("ZSCORE {key} *"));
        let extra: i64 = permits.iter().map(|(id, _)| scripts::weight(id) - 1).sum();
        assert_eq!(kept.map_or(0, |score| -score), extra);
    }
}

/// Returns whether the server has sharded channels, which Redis has from version 7 on.
fn has_sharded_channels(scripts: &mut Scripts) -> bool {
    let info: Vec<Value> = scripts.command("COMMAND INFO spublish");
    info.iter().any(|command| *command != Value::Nil)
}
