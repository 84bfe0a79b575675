//! Calls the scripts as clients in other languages do: with EVALSHA, keys and arguments.

use redis::{Connection, RedisError, ToRedisArgs, Value};
use redis_semaphore::ScriptRegistry;

pub const KEYS: [&str; 6] = ["permits", "queue", "clients", "state", "order", "turns"];

pub fn keys_of(name: &str) -> Vec<String> {
    KEYS.iter().map(|key| format!("sem:{{{name}}}:{key}")).collect()
}

/// The number of keys that a call has without groups.
pub const WITHOUT_GROUPS: usize = 4;

/// One semaphore as the scripts see it.
pub struct Scripts {
    pub connection: Connection,
    /// The keys that calls name.
    pub keys: Vec<String>,
    pub all_keys: Vec<String>,
}

/// Returns an ID with a readable nonce.
pub fn id(how: &str, client: &str, weight: i64, lease: i64, name: &str) -> String {
    format!("{how}:{client}:{weight}:{lease}:{name:_<16}")
}

/// Returns the ID with a group, such as `a,1,0`: a name, a share and a cap.
pub fn in_group(id: &str, group: &str) -> String {
    let (start, nonce) = id.rsplit_once(':').unwrap();
    format!("{start}:{group}:{nonce}")
}

/// Returns a part of an ID: 0 is NOTIFY, 1 is CLIENT, 2 is WEIGHT, 3 is LEASE, and 4 is NONCE.
pub fn part(id: &str, index: usize) -> &str {
    id.split(':').nth(index).unwrap()
}

pub fn weight(id: &str) -> i64 {
    part(id, 2).parse().unwrap()
}

pub fn lease(id: &str) -> i64 {
    part(id, 3).parse().unwrap()
}

pub fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Returns the integers of a reply. The short form of a reply is expanded to one result for each
/// request.
pub fn integers(script: &str, arguments: &[String], reply: Value) -> Vec<i64> {
    let mut reply: Vec<i64> = redis::from_redis_value(reply).unwrap();
    let head = if script == "acquire" { 3 } else { 2 };
    let (count, responses) = match (script, &reply[head..]) {
        ("acquire", [3, token, end]) => {
            let count = (arguments.len() - 3) / 2;
            (count, (*token..).take(count).flat_map(|token| [1, token, *end]).collect())
        }
        ("release", [3]) => (arguments.len() - 1, vec![1; arguments.len() - 1]),
        _ => return reply,
    };
    assert!(count > 1, "{script} returns 3 to a single request");
    reply.splice(head.., responses);
    reply
}

impl Scripts {
    pub fn new(connection: Connection, name: &str) -> Self {
        let all_keys = keys_of(name);
        Self { connection, keys: all_keys[..WITHOUT_GROUPS].to_vec(), all_keys }
    }

    /// Names the keys for groups in each call.
    pub fn with_groups(self) -> Self {
        Self { keys: self.all_keys.clone(), ..self }
    }

    pub fn call_with<A: ToRedisArgs>(
        &mut self,
        script: &str,
        keys: &[String],
        arguments: &[A],
    ) -> Result<Value, RedisError> {
        let script = ScriptRegistry::embedded().script(script).unwrap();
        let mut by_sha1 = redis::cmd("EVALSHA");
        by_sha1.arg(script.sha1()).arg(keys.len()).arg(keys).arg(arguments);
        match by_sha1.query(&mut self.connection) {
            Err(error) if error.code() == Some("NOSCRIPT") => {
                let mut load = redis::cmd("SCRIPT");
                load.arg("LOAD").arg(script.source()).exec(&mut self.connection)?;
                by_sha1.query(&mut self.connection)
            }
            response => response,
        }
    }

    /// Calls a script with arguments separated by spaces.
    pub fn call(&mut self, script: &str, arguments: &str) -> Result<Value, RedisError> {
        self.call_with(script, &self.keys.clone(), &words(arguments))
    }

    /// Calls a script, which must succeed and return only integers.
    pub fn integers(&mut self, script: &str, arguments: &[String]) -> Vec<i64> {
        let reply = self.call_with(script, &self.keys.clone(), arguments);
        integers(script, arguments, reply.unwrap())
    }

    pub fn ok(&mut self, script: &str, arguments: &str) -> Vec<i64> {
        self.integers(script, &words(arguments))
    }

    /// Returns the exact contents of the keys, and whether each key expires.
    pub fn dump(&mut self) -> Vec<(Value, bool)> {
        let keys = self.keys.clone();
        keys.iter()
            .map(|key| {
                let dump = redis::cmd("DUMP").arg(key).query(&mut self.connection).unwrap();
                let ttl: i64 = redis::cmd("PTTL").arg(key).query(&mut self.connection).unwrap();
                (dump, ttl > 0)
            })
            .collect()
    }
}
