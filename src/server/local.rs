//! A server in memory for users' tests. It uses Tokio's clock, which tests may pause and advance.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use redis::{Arg, Cmd, FromRedisValue, RedisError, Value};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use super::call_error::CallError;
use crate::local::{Inspected, Refusal, Reply, Semaphore};
use crate::lock::Lock;
use crate::releases::GivenUpBefore;

/// The published grant messages.
pub(crate) type Messages = UnboundedReceiver<String>;

/// All calls use the same connection.
const CONNECTION: u64 = 1;

pub(crate) struct Local {
    began: Instant,
    /// The time when this server began, in ms since 1970. Tokens contain the time, as on a real
    /// server.
    began_ms: i64,
    content: Lock<Content>,
}

#[derive(Default)]
struct Content {
    /// The semaphores, by prefix and name.
    semaphores: BTreeMap<(String, String), Semaphore>,
    /// The receivers of messages, by client.
    listeners: HashMap<String, UnboundedSender<String>>,
}

impl Local {
    pub(crate) fn new() -> Arc<Self> {
        let began_ms = UNIX_EPOCH.elapsed().unwrap_or_default().as_millis() as i64;
        Arc::new(Self { began: Instant::now(), began_ms, content: Lock::default() })
    }

    /// Subscribes a client until the result is dropped.
    pub(crate) fn listen(&self, client: &str) -> Messages {
        let (sender, messages) = unbounded_channel();
        self.content.lock().listeners.insert(client.to_owned(), sender);
        messages
    }

    /// The names of all semaphores that were used under this prefix.
    pub(crate) fn names(&self, prefix: &str) -> Vec<String> {
        let content = self.content.lock();
        let used = content.semaphores.iter().filter(|(_, semaphore)| semaphore.is_used());
        let names = used.map(|(name, _)| name).filter(|(of, _)| of == prefix);
        names.map(|(_, name)| name.clone()).collect()
    }

    pub(super) async fn attempt<T: FromRedisValue>(
        &self,
        earlier: &GivenUpBefore<'_>,
        script: &str,
        write: impl Fn(&mut Cmd),
    ) -> Result<T, CallError> {
        for mut call in earlier.unwritten(CONNECTION) {
            let response = self.response(call.script(), |cmd| call.write(cmd));
            call.confirm(response);
        }
        let response = self.response(script, write).map_err(CallError::from);
        // The reply of a real server takes time. During this time, other tasks run and add
        // requests.
        tokio::task::yield_now().await;
        response
    }

    fn response<T: FromRedisValue>(
        &self,
        script: &str,
        write: impl Fn(&mut Cmd),
    ) -> Result<T, RedisError> {
        let mut call = Cmd::new();
        write(&mut call);
        let arguments: Vec<&str> = call.args_iter().map(text).collect();
        let [count, permits, ..] = &arguments[..] else {
            unreachable!("each call begins with the number of keys and the keys");
        };
        let arguments = &arguments[1 + count.parse().unwrap_or(0)..];
        let now_us = self.began_ms * 1000 + self.began.elapsed().as_micros() as i64;
        let reply = self.content.lock().call(now_us, name_in(permits), script, arguments)?;
        Ok(redis::from_redis_value(value(reply))?)
    }
}

impl Content {
    fn call(
        &mut self,
        now_us: i64,
        (prefix, name): (&str, &str),
        script: &str,
        arguments: &[&str],
    ) -> Result<Reply, RedisError> {
        self.listeners.retain(|_, listener| !listener.is_closed());
        let key = (prefix.to_owned(), name.to_owned());
        let semaphore = self.semaphores.entry(key).or_default();
        semaphore.now_us = now_us;
        semaphore.listening = self.listeners.keys().cloned().collect::<BTreeSet<_>>();
        let reply = semaphore.call(script, arguments);
        for (client, lines) in semaphore.take_messages() {
            // The client may have ended. Its message is then lost, as with a real server.
            if let Some(listener) = self.listeners.get(&client) {
                let _ = listener.send(format!("{name}\n{}", lines.join("\n")));
            }
        }
        reply.map_err(|Refusal { code, detail }| {
            redis::make_extension_error(code.to_owned(), Some(detail))
        })
    }
}

fn text(argument: Arg<&[u8]>) -> &str {
    let Arg::Simple(text) = argument else { unreachable!("scripts take no cursor") };
    str::from_utf8(text).expect("IDs, names and numbers are UTF-8")
}

/// Returns the prefix and the name that the key `permits` contains.
fn name_in(permits: &str) -> (&str, &str) {
    let name = permits.strip_suffix("}:permits").and_then(|stem| stem.split_once(":{"));
    name.expect("the key consists of prefix and name")
}

fn value(reply: Reply) -> Value {
    let numbers = |numbers: &[i64]| numbers.iter().copied().map(Value::Int).collect::<Vec<_>>();
    let text = |id: String| Value::BulkString(id.into_bytes());
    match reply {
        Reply::Numbers(all) => Value::Array(numbers(&all)),
        Reply::Inspected(Inspected { numbers: all, holders, waiters, groups }) => {
            let holders = holders.into_iter().flat_map(|(id, left)| [text(id), Value::Int(left)]);
            let waiters = waiters.into_iter().flat_map(|(id, waited, present)| {
                [text(id), Value::Int(waited), Value::Int(present)]
            });
            let (grouped, total, groups) = groups;
            let groups = groups.into_iter().flat_map(|(name, held, queued, waited, id, cap)| {
                [
                    text(name),
                    Value::Int(held),
                    Value::Int(queued),
                    Value::Int(waited),
                    text(id),
                    Value::Int(cap),
                ]
            });
            let groups =
                vec![Value::Int(grouped), Value::Int(total), Value::Array(groups.collect())];
            let lists = [holders.collect(), waiters.collect(), groups].map(Value::Array);
            Value::Array(numbers(&all).into_iter().chain(lists).collect())
        }
    }
}
