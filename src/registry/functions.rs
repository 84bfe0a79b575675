//! The scripts as a library of Redis functions: the same code, which the server keeps under names.

use redis::aio::ConnectionLike;
use redis::{Cmd, FromRedisValue, RedisError};

use super::{Script, ScriptRegistry};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Library {
    pub(crate) name: &'static str,
    /// What the names of its functions begin with.
    pub(crate) prefix: &'static str,
}

impl ScriptRegistry {
    /// The scripts as a library for `FUNCTION LOAD`, which Redis 7.0 and newer and Valkey know. Each
    /// script becomes a function, named by `prefix` and its own name, that takes the same keys and
    /// arguments and answers the same.
    ///
    /// # Examples
    ///
    /// ```
    /// use redis_semaphore::ScriptRegistry;
    ///
    /// let library = ScriptRegistry::embedded().function_library("redis_semaphore", "sem_");
    /// assert!(library.starts_with("#!lua name=redis_semaphore\n"));
    /// assert!(library.contains("function_name = 'sem_acquire'"));
    /// ```
    pub fn function_library(&self, name: &str, prefix: &str) -> String {
        let functions = self.scripts().map(|script| function(script, prefix));
        let head =
            format!("#!lua name={name}\n-- Made from scripts: change those, not this file.\n");
        std::iter::once(head).chain(functions).collect()
    }

    /// Calls a script as a function. A server that does not have the library (any more) gets it
    /// first.
    pub(super) async fn call_function<C, T>(
        &self,
        connection: &mut C,
        library: Library,
        name: &str,
        write: impl Fn(&mut Cmd),
    ) -> Result<T, RedisError>
    where
        C: ConnectionLike,
        T: FromRedisValue,
    {
        let mut call = redis::cmd("FCALL");
        write(call.arg(format!("{}{name}", library.prefix)));
        match call.query_async(connection).await {
            Err(error) if says(&error, "Function not found") => {
                Box::pin(self.load_functions(connection, library)).await?;
                Box::pin(call.query_async(connection)).await
            }
            result => result,
        }
    }

    async fn load_functions<C: ConnectionLike>(
        &self,
        connection: &mut C,
        library: Library,
    ) -> Result<(), RedisError> {
        let mut load = redis::cmd("FUNCTION");
        load.arg("LOAD").arg(self.function_library(library.name, library.prefix));
        match load.exec_async(connection).await {
            // Another client was faster. One that is there is not replaced: it may be newer.
            Err(error) if says(&error, "already exists") => Ok(()),
            result => result,
        }
    }
}

fn says(error: &RedisError, words: &str) -> bool {
    error.detail().is_some_and(|detail| detail.contains(words))
}

/// The code of a script reads `KEYS` and `ARGV`, and ends with a `return`: as does a function's.
fn function(script: &Script, prefix: &str) -> String {
    let flags: Vec<_> = script.flags().iter().map(|flag| format!("'{flag}'")).collect();
    format!(
        "\nredis.register_function{{\n  function_name = '{prefix}{}',\n  flags = {{{}}},\n  \
         callback = function(KEYS, ARGV)\n{}end,\n}}\n",
        script.name(),
        flags.join(", "),
        script.source()
    )
}
