//! Tries every command that a client needs. The keys and the channel of these commands are used by
//! no client.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use futures_util::future::{OptionFuture, join_all};
use redis::aio::MultiplexedConnection as Connection;
use redis::{Cmd, FromRedisValue, RedisError, Value};
use tokio::join;
use uuid::Uuid;

use crate::diagnosis::inquiry::{error_of_text, inquire};
use crate::diagnosis::{permission, unknown};
use crate::error::ConnectErrorKind as Kind;
use crate::error::{Error, is_full, is_unknown_command, lacks_right};
use crate::protocol::{Keys, keys};
use crate::scripts::{CallBy, ScriptRegistry, UNUSABLE};
use crate::server::{Address, Cluster, Link, slot_of};
use crate::wakeup::{self, Wakeups, process_name, sharded_name};

const REPLACE: &str = "load that file with FUNCTION LOAD REPLACE (if the functions are in a library of another \
                       name, delete that library first), or do not use functions";

const SENTINEL: &str = "the server is a sentinel: connect with its sentinels, or use the address of \
                        a Redis server";

/// The rejected commands, each with the server's error.
type Refused = Vec<(String, String)>;

pub(crate) struct Probe {
    pub(crate) link: Arc<Link>,
    /// The cluster and the node, if the server is part of a cluster.
    pub(crate) node: Option<(Arc<Cluster>, Address)>,
    prefix: String,
    /// The server's version, as its reply to HELLO reports it.
    version: OnceLock<String>,
    /// A name that no semaphore and no client has.
    name: String,
}

impl Probe {
    pub(crate) fn single(link: &Arc<Link>, prefix: &str) -> Self {
        let (link, prefix) = (link.clone(), prefix.to_owned());
        Self { link, node: None, prefix, version: OnceLock::new(), name: probe_name() }
    }

    /// Returns a probe of the same server, with its own connection.
    pub(crate) fn separate(self) -> Self {
        Self { link: Arc::new(self.link.separate()), ..self }
    }

    /// Returns a probe whose keys are on this node, or `None` if the node has lost its slots.
    pub(crate) fn at_node(cluster: &Arc<Cluster>, node: &Address, prefix: &str) -> Option<Self> {
        const MAX_NAMES: usize = 1_000_000;
        let is_there = |name: &String| cluster.node_of(slot_of(name)).as_ref() == Some(node);
        let name = (0..MAX_NAMES).map(|_| probe_name()).find(is_there)?;
        let (link, prefix) = (cluster.link(node), prefix.to_owned());
        let node = Some((cluster.clone(), node.clone()));
        Some(Self { link, node, prefix, version: OnceLock::new(), name })
    }

    /// Loads the scripts, and makes the server try every command that they use. Returns an error
    /// for each rejected command.
    pub(crate) async fn refused_commands(&self) -> Result<Vec<Error>, Error> {
        let connected = self.link.connection().await.map_err(|error| self.explain(error))?;
        let connection = &connected.dialed.connection();
        let (greeted, refused) = match self.link.call_by() {
            // HELLO and the scripts are sent together. The replies are read in order, so that the
            // first error is returned: a server that requires a password rejects the first
            // commands, and closes the connection after a long command.
            CallBy::Sha1 => join!(biased; self.greet(connection), self.try_scripts(connection)),
            // Functions stay on the server, so an unsuitable server must not get them.
            CallBy::Function => {
                (Ok(self.greet(connection).await?), self.try_functions(connection).await)
            }
        };
        greeted?;
        let explain = |(command, reason): (String, String)| {
            self.explain_as(&command, error_of_text(reason.trim_end()))
        };
        Ok(refused?.into_iter().map(explain).collect())
    }

    /// Tries all commands that read, and no command that writes.
    pub(crate) async fn try_looks(&self) -> Result<(), Error> {
        let connected = self.link.connection().await.map_err(|error| self.explain(error))?;
        let connection = &connected.dialed.connection();
        self.greet(connection).await?;
        let keys = keys(&self.prefix, &self.name);
        self.try_reads(connection, &keys).await?;
        let (registry, mut connection) = (ScriptRegistry::embedded(), connection.clone());
        if matches!(self.link.call_by(), CallBy::Sha1) {
            // If the scripts are loaded, the first call of each script needs no second round trip.
            let loaded = registry.load(&mut connection).await;
            loaded.map_err(|error| self.explain_script(error))?;
        }
        let write = |cmd: &mut Cmd| {
            cmd.arg(keys.len()).arg(&keys).arg(&["0", "1", "0", "1"]);
        };
        let inspect = registry.run_with(&mut connection, self.link.call_by(), "inspect", write);
        inspect.await.map(|_: Value| ()).map_err(|error| self.explain_script(error))
    }

    /// Calls the commands of `inspect` outside a script, so that the server names a rejected
    /// command.
    async fn try_reads(&self, connection: &Connection, keys: &Keys) -> Result<(), Error> {
        let [permits, queue, _, state, _, turns] = keys;
        let mut commands = vec![
            vec!["TIME"],
            vec!["HMGET", state, "version"],
            vec!["ZCARD", permits],
            vec!["ZMSCORE", permits, "*"],
            vec!["ZCOUNT", permits, "0", "0"],
            vec!["ZRANGE", queue, "0", "0"],
            vec!["ZRANGEBYSCORE", turns, "0", "0"],
            vec!["ZRANK", permits, "*"],
            vec!["ZSCORE", permits, "*"],
        ];
        if matches!(self.link.call_by(), CallBy::Sha1) {
            commands.push(vec!["EVAL", "return 1", "1", state]);
        }
        for words in commands {
            let mut command = redis::cmd(words[0]);
            command.arg(&words[1..]);
            let asked = ask::<Value>(connection, command).await;
            asked.map_err(|error| self.explain_call(&words[0].to_lowercase(), error))?;
        }
        Ok(())
    }

    /// Checks that the server is of the expected kind, and notes its version.
    async fn greet(&self, connection: &Connection) -> Result<(), Error> {
        let ping = ask::<Value>(connection, redis::cmd("PING"));
        let asking = self.node.as_ref().map(|_| ask::<()>(connection, redis::cmd("ASKING")));
        let asking = OptionFuture::from(asking);
        let (pong, server, asked) = join!(biased; ping, hello(connection), asking);
        if let Some(version) = server.get("version") {
            // The version may be set already.
            let _ = self.version.set(version.clone());
        }
        match pong {
            Ok(Value::SimpleString(pong)) if pong == "PONG" => {}
            Ok(other) => return Err(self.not_redis(&other)),
            // A server that cannot save rejects even PING, but it can be read.
            Err(error) if is_full(&error) => {}
            Err(error) => return Err(self.explain(error)),
        }
        asked.transpose().map_err(|error| self.explain(error))?;
        if server.get("mode").is_some_and(|mode| mode == "sentinel") {
            return Err(self.refused(Kind::NotRedis, SENTINEL));
        }
        if self.node.is_none() && server.get("mode").is_some_and(|mode| mode == "cluster") {
            let reason = "the server is a cluster node: connect to it as a cluster";
            return Err(self.refused(Kind::Cluster, reason));
        }
        Ok(())
    }

    async fn try_scripts(&self, connection: &Connection) -> Result<Refused, Error> {
        // EVAL is needed only if the server loses a script, but a missing permission must be found
        // now.
        let mut eval = redis::cmd("EVAL");
        eval.arg("return 1").arg(1).arg(&keys(&self.prefix, &self.name)[0]);
        let (eval, mut loading) = (ask::<()>(connection, eval), connection.clone());
        let load = ScriptRegistry::embedded().load(&mut loading);
        let (evaluated, loaded, refused) = join!(biased; eval, load, self.try_out(connection));
        evaluated.map_err(|error| self.explain(error))?;
        loaded.map_err(|error| self.explain_script(error))?;
        refused
    }

    async fn try_functions(&self, connection: &Connection) -> Result<Refused, Error> {
        let mut scripts = ScriptRegistry::embedded().scripts();
        // If the functions are missing, the first call loads them.
        if let Some(script) = scripts.next() {
            self.find_function(connection, script.name()).await?;
        }
        let found = scripts.map(|script| self.find_function(connection, script.name()));
        join_all(found).await.into_iter().collect::<Result<(), _>>()?;
        self.try_out(connection).await
    }

    /// Checks that a function is on the server and is this crate's function. This crate's functions
    /// reject a call without keys and arguments. A server whose memory is full may reject the call
    /// itself.
    async fn find_function(&self, connection: &Connection, name: &str) -> Result<(), Error> {
        let no_keys = |cmd: &mut Cmd| {
            cmd.arg(0);
        };
        let (registry, mut connection) = (ScriptRegistry::embedded(), connection.clone());
        let call_by = self.link.call_by();
        let response = registry.run_with(&mut connection, call_by, name, no_keys).await;
        let foreign = || {
            let found = format!("its function for \"{name}\" differs from lua/functions.lua");
            Err(self.refused(Kind::Functions, format!("{found}: {REPLACE}")))
        };
        match response.map(|_: Value| ()) {
            Ok(()) => foreign(),
            Err(Error::Redis(error)) => match error.code() {
                Some("SEM_KEYS" | "SEM_ARG" | "OOM") => Ok(()),
                _ if is_unknown_command(&error.to_string()) => Err(self.unknown("FCALL")),
                Some("ERR") => foreign(),
                _ => Err(self.explain_script(error.into())),
            },
            Err(error) => Err(self.explain_script(error)),
        }
    }

    async fn try_out(&self, connection: &Connection) -> Result<Refused, Error> {
        let keys = keys(&self.prefix, &self.name);
        let how = match self.node {
            None => Wakeups::PUBLISH,
            Some(_) => Wakeups::SHARDED_PUBLISH,
        };
        let write = |cmd: &mut Cmd| {
            cmd.arg(keys.len()).arg(&keys).arg(how.to_string()).arg(&self.name);
        };
        let (registry, mut connection) = (ScriptRegistry::embedded(), connection.clone());
        let refused = registry.run_with(&mut connection, self.link.call_by(), "probe", write).await;
        refused.map_err(|error| self.explain_script(error))
    }

    fn explain_script(&self, error: Error) -> Error {
        match error {
            Error::Redis(error) if error.kind() == UNUSABLE => {
                let found = error.detail().unwrap_or("other functions already use these names");
                self.refused(Kind::Functions, format!("{found}: {REPLACE}"))
            }
            Error::Redis(error) => self.explain(error),
            other => other,
        }
    }

    /// Returns the server's name and version, or an empty text if the server does not return them.
    pub(crate) async fn version(&self) -> Result<String, Error> {
        let explain = |error| self.explain(error);
        let connection = self.link.connection().await.map_err(explain)?.dialed.connection();
        let server = hello(&connection).await;
        let reported = ["server", "version"].map(|field| server.get(field).map(String::as_str));
        Ok(reported.into_iter().flatten().collect::<Vec<_>>().join(" "))
    }

    /// Fails if the user may not subscribe to grant messages. If the server can report the
    /// permission, no command is sent that the server would reject.
    pub(crate) async fn ask_and_listen(&self) -> Result<(), Error> {
        let channel = self.channel();
        let commands: &[&str] = match self.node {
            None => &["SUBSCRIBE"],
            Some(_) => &["SSUBSCRIBE", "SUNSUBSCRIBE"],
        };
        for command in commands {
            if let Some(refusal) = permission::denial(&self.link, &[command, &channel]).await {
                return Err(self.explain(refusal));
            }
        }
        self.listen().await
    }

    /// Fails if the user may not subscribe to grant messages.
    pub(crate) async fn listen(&self) -> Result<(), Error> {
        let channel = self.channel();
        let listened = match &self.node {
            None => wakeup::subscribe(&self.link, &channel).await.map(drop),
            Some((cluster, node)) => wakeup::try_sharded(cluster, node, &channel).await,
        };
        listened.map_err(|error| self.explain(error))
    }

    /// A channel that no client uses.
    fn channel(&self) -> String {
        match self.node {
            None => process_name(&self.prefix, &self.name),
            Some(_) => sharded_name(&self.prefix, &self.name, &self.name),
        }
    }

    fn unknown(&self, command: &str) -> Error {
        let version = self.version.get().map_or("unknown", String::as_str);
        let is_cluster = self.node.is_some();
        let (kind, reason) = unknown::explain(command, version, is_cluster, self.link.call_by());
        self.refused(kind, reason)
    }

    /// Explains an error. If the error does not name the rejected command, this command is assumed
    /// to be the command that calls scripts or functions.
    pub(crate) fn explain(&self, error: RedisError) -> Error {
        self.explain_call(self.calling_command(), error)
    }

    /// Explains an error of a call of this command, or of another command that the error names.
    fn explain_call(&self, called: &str, error: RedisError) -> Error {
        let text = error.to_string();
        let named = match lacks_right(&text) {
            // This error quotes the command, unless the keys are rejected.
            true => text.split('\'').nth(1).map(str::to_owned),
            false => unknown::command_in(&text),
        };
        self.explain_as(named.as_deref().unwrap_or(called), error)
    }

    /// Explains an error of this command: the server does not know the command, the user lacks the
    /// permission, or there is another cause.
    fn explain_as(&self, command: &str, error: RedisError) -> Error {
        let text = error.to_string();
        // The error of a missing permission contains the user's name, which may be any text.
        if is_unknown_command(&text) && !lacks_right(&text) {
            return self.unknown(command);
        }
        let (address, is_sharded) = (self.address(), self.node.is_some());
        permission::explain(address, &self.prefix, is_sharded, command, error)
    }

    /// Makes an error of this server more exact.
    pub(crate) async fn inquire(&self, error: Error) -> Error {
        let source = self.link.source();
        inquire(self.link.dialer(), |server| source.client_at(server), error).await
    }

    /// The error for a server that sent an unexpected reply.
    fn not_redis(&self, pong: &Value) -> Error {
        const MOST: usize = 80;
        let said: String = format!("{pong:?}").chars().take(MOST).collect();
        let reason = format!(
            "the server is not Redis; its reply to PING was {said}: check which program listens \
             there"
        );
        self.refused(Kind::NotRedis, reason)
    }

    fn refused(&self, kind: Kind, reason: impl Into<String>) -> Error {
        let (address, reason) = (self.address(), reason.into());
        Error::Connect { address, kind, reason, right: None, source: None }
    }

    fn address(&self) -> String {
        self.link.server()
    }

    /// The command that calls scripts or functions.
    fn calling_command(&self) -> &'static str {
        match self.link.call_by() {
            CallBy::Sha1 => "evalsha",
            CallBy::Function => "fcall",
        }
    }
}

/// A name that no semaphore has.
fn probe_name() -> String {
    format!("probe-{}", Uuid::new_v4().simple())
}

/// Returns the server's reply to HELLO. Every user may call HELLO, but a proxy may not support it.
async fn hello(connection: &Connection) -> HashMap<String, String> {
    let response: Result<HashMap<String, Value>, _> = ask(connection, redis::cmd("HELLO")).await;
    let texts = response.unwrap_or_default().into_iter();
    texts.filter_map(|(key, value)| Some((key, redis::from_redis_value(value).ok()?))).collect()
}

/// Runs a command. Several commands may run at the same time, and each gets its own reply.
async fn ask<T: FromRedisValue>(connection: &Connection, command: Cmd) -> Result<T, RedisError> {
    command.query_async(&mut connection.clone()).await
}
