//! The script registry: Lua scripts that are embedded at compile time and called by their SHA-1.
//!
//! `include_dir!` embeds a folder of scripts. Each `.lua` file at its top level is a script. A file
//! that begins with `#!lua name=` is a library of Redis functions, and is skipped. Files in
//! subfolders are shared code. A script includes shared code with a line
//! `-- include: lib/file.lua`. The header comment of a script names its keys and arguments.

mod header;
mod include;
mod library;
mod script;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use include_dir::{Dir, include_dir};
use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, FromRedisValue, Pipeline, ServerErrorKind, ToRedisArgs};

pub(crate) use library::UNUSABLE;
pub use script::Script;

use crate::error::Error;

static FOLDER: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/lua");

static EMBEDDED: LazyLock<ScriptRegistry> = LazyLock::new(|| {
    ScriptRegistry::from_dir(&FOLDER).expect("a test of this crate reads its own scripts")
});

/// How a script is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallBy {
    /// By the SHA-1 of its text.
    Sha1,
    /// As a function of a library that the server stores.
    Function,
}

/// Lua scripts by name, which can be loaded into a Redis server and run there.
///
/// # Examples
///
/// The scripts of this crate:
///
/// ```
/// use redis_semaphore::ScriptRegistry;
///
/// let acquire = ScriptRegistry::embedded().script("acquire").unwrap();
/// assert_eq!(acquire.keys(), ["permits", "queue", "clients", "state", "order", "turns"]);
/// assert_eq!(acquire.sha1().len(), 40);
/// ```
///
/// A folder of an application (here the scripts of this crate's examples). The folder becomes part
/// of the program, so it need not be deployed separately:
///
/// ```
/// use redis_semaphore::ScriptRegistry;
/// // The macro needs the name `include_dir`, hence `self`.
/// use redis_semaphore::include_dir::{self, Dir, include_dir};
///
/// static SCRIPTS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/examples/scripts");
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let registry = ScriptRegistry::from_dir(&SCRIPTS)?;
/// let client = redis::Client::open(std::env::var("REDIS_URL")?)?;
/// let mut connection = client.get_multiplexed_async_connection().await?;
/// registry.load(&mut connection).await?;
///
/// let key = format!("example:{}", uuid::Uuid::new_v4());
/// let highest: i64 = registry.run(&mut connection, "raise", &[&key], &[7]).await?;
/// assert_eq!(highest, 7);
/// let highest: i64 = registry.run(&mut connection, "raise", &[&key], &[5]).await?;
/// assert_eq!(highest, 7);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ScriptRegistry {
    scripts: BTreeMap<String, Script>,
}

impl ScriptRegistry {
    /// Returns the scripts of this crate, which implement the semaphore protocol.
    ///
    /// # Examples
    ///
    /// ```
    /// let names: Vec<_> = redis_semaphore::ScriptRegistry::embedded()
    ///     .scripts()
    ///     .map(|script| script.name())
    ///     .collect();
    /// assert_eq!(names, ["acquire", "inspect", "limit", "probe", "refresh", "release", "wake"]);
    /// ```
    pub fn embedded() -> &'static Self {
        &EMBEDDED
    }

    /// Reads a folder that was embedded with `include_dir!`, and resolves the includes.
    ///
    /// Also call this function in a test, so that a missing include makes the test fail, not the
    /// program.
    ///
    /// # Errors
    ///
    /// - [`Error::Script`]: an include is missing or circular, a file is not UTF-8, or a header
    ///   comment does not number its keys and arguments from 1 on.
    pub fn from_dir(dir: &Dir<'_>) -> Result<Self, Error> {
        let mut scripts = BTreeMap::new();
        for file in dir.files() {
            let path = file.path();
            let is_lua = path.extension().is_some_and(|extension| extension == "lua");
            // Libraries of functions are not scripts.
            if is_lua && !file.contents().starts_with(b"#!lua name=") {
                let script = Script::read(dir, path)?;
                scripts.insert(script.name().to_owned(), script);
            }
        }
        Ok(Self { scripts })
    }

    /// Returns the script with this name, which is the file name without `.lua`.
    ///
    /// # Examples
    ///
    /// ```
    /// assert!(redis_semaphore::ScriptRegistry::embedded().script("nothing").is_none());
    /// ```
    pub fn script(&self, name: &str) -> Option<&Script> {
        self.scripts.get(name)
    }

    /// Returns all scripts, sorted by name.
    ///
    /// # Examples
    ///
    /// ```
    /// for script in redis_semaphore::ScriptRegistry::embedded().scripts() {
    ///     println!("{} {} {:?}", script.sha1(), script.name(), script.arguments());
    /// }
    /// ```
    pub fn scripts(&self) -> impl Iterator<Item = &Script> {
        self.scripts.values()
    }

    /// Loads all scripts into the server with one pipeline.
    ///
    /// This call is optional, and saves the first [`run`](Self::run) of each script a round trip.
    ///
    /// # Errors
    ///
    /// - [`Error::Script`]: the server's SHA-1 of a script differs, for example because a proxy
    ///   changes the text.
    /// - [`Error::Redis`]: the server returned an error or was unreachable.
    ///
    /// # Cancel safety
    ///
    /// Safe. After cancellation, some scripts may be loaded. Loading them again does no harm.
    pub async fn load<C: ConnectionLike>(&self, connection: &mut C) -> Result<(), Error> {
        let mut pipeline = Pipeline::new();
        for script in self.scripts() {
            pipeline.cmd("SCRIPT").arg("LOAD").arg(script.source());
        }
        let theirs: Vec<String> = pipeline.query_async(connection).await?;
        for (script, sha1) in self.scripts().zip(theirs) {
            if sha1 != script.sha1() {
                // A server that is not Redis may return a text of any length.
                let sha1: String = sha1.chars().take(script.sha1().len()).collect();
                return Err(Error::Script(format!(
                    "the server's SHA-1 of the script \"{}\" is {sha1}, ours is {}",
                    script.name(),
                    script.sha1()
                )));
            }
        }
        Ok(())
    }

    /// Runs a script by its SHA-1.
    ///
    /// If the server does not have the script, the source of the script is sent in one extra round
    /// trip. The server then keeps the script.
    ///
    /// # Errors
    ///
    /// - [`Error::Script`]: no script has this name.
    /// - [`Error::Redis`]: the server or the script returned an error, or the server was
    ///   unreachable.
    ///
    /// # Cancel safety
    ///
    /// Not safe. A canceled call may still run on the server.
    pub async fn run<C, K, A, T>(
        &self,
        connection: &mut C,
        name: &str,
        keys: &[K],
        arguments: &[A],
    ) -> Result<T, Error>
    where
        C: ConnectionLike,
        K: ToRedisArgs,
        A: ToRedisArgs,
        T: FromRedisValue,
    {
        let with_keys = |cmd: &mut Cmd| {
            cmd.arg(keys.len()).arg(keys).arg(arguments);
        };
        self.run_with(connection, CallBy::Sha1, name, with_keys).await
    }

    /// Runs a script; `write` adds the number of keys, the keys and the arguments.
    pub(crate) async fn run_with<T: FromRedisValue>(
        &self,
        connection: &mut impl ConnectionLike,
        call_by: CallBy,
        name: &str,
        write: impl Fn(&mut Cmd),
    ) -> Result<T, Error> {
        match call_by {
            CallBy::Sha1 => self.run_script(connection, name, write).await,
            CallBy::Function => Box::pin(self.call_function(connection, name, write)).await,
        }
    }

    async fn run_script<T: FromRedisValue>(
        &self,
        connection: &mut impl ConnectionLike,
        name: &str,
        write: impl Fn(&mut Cmd),
    ) -> Result<T, Error> {
        let mut evalsha = redis::cmd("EVALSHA");
        write(evalsha.arg(self.known(name)?.sha1()));
        match evalsha.query_async(connection).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                Box::pin(self.run_text(connection, name, write)).await
            }
            result => Ok(result?),
        }
    }

    /// Runs a script by its text. The server need not have the script.
    pub(crate) async fn run_text<T: FromRedisValue>(
        &self,
        connection: &mut impl ConnectionLike,
        name: &str,
        write: impl Fn(&mut Cmd),
    ) -> Result<T, Error> {
        let mut eval = redis::cmd("EVAL");
        write(eval.arg(self.known(name)?.source()));
        Ok(eval.query_async(connection).await?)
    }

    fn known(&self, name: &str) -> Result<&Script, Error> {
        self.script(name).ok_or_else(|| Error::Script(format!("there is no script \"{name}\"")))
    }
}

impl fmt::Debug for ScriptRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptRegistry").field("scripts", &self.scripts.keys()).finish()
    }
}
