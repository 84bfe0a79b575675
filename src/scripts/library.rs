//! The scripts as a library of Redis functions: the same code, which the server keeps under names.
//!
//! Each function has the whole text of its script, with what the scripts share. That text cannot
//! stand there once: the shared pieces work on the locals of a script, so they cannot be called;
//! and there is no `loadstring` while a library is loaded, to put texts together. So it costs a
//! server some memory, once, and a call no time.

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, FromRedisValue, RedisError};

use super::{Script, ScriptRegistry};
use crate::error::{Error, is_missing_function};

/// Others may remove the library between two calls, though hardly as often.
const MAX_ATTEMPTS: u32 = 4;

/// The kind of an error that says that functions of our names are others', or cannot be loaded.
pub(crate) const UNUSABLE: ErrorKind = ErrorKind::Client;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Library {
    pub(crate) name: &'static str,
    /// What the names of its functions begin with.
    pub(crate) prefix: &'static str,
}

impl ScriptRegistry {
    /// The scripts as a library for `FUNCTION LOAD`, which Redis 7.0 and newer and Valkey know.
    /// Each script becomes a function, named by `prefix` and its own name, that takes the same keys
    /// and arguments and answers the same.
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
    /// first; one whose memory is full takes no library, but runs the script.
    pub(super) async fn call_function<C, T>(
        &self,
        connection: &mut C,
        library: Library,
        name: &str,
        write: impl Fn(&mut Cmd),
    ) -> Result<T, Error>
    where
        C: ConnectionLike,
        T: FromRedisValue,
    {
        let function = format!("{}{name}", library.prefix);
        let mut call = redis::cmd("FCALL");
        write(call.arg(&function));
        let mut attempt = 0;
        loop {
            attempt += 1;
            let missing = match call.query_async(connection).await {
                Err(error) if is_missing_function(&error) => error,
                result => return Ok(result?),
            };
            match self.load_functions(connection, library).await {
                Ok(()) if attempt == MAX_ATTEMPTS => return Err(missing.into()),
                Ok(()) => {}
                // Another client was faster, or somebody else's functions have these names.
                Err(taken) if mentions(&taken, "already exists") => {
                    if attempt == MAX_ATTEMPTS {
                        return Err(unusable(&function, &taken).into());
                    }
                }
                Err(full) if full.code() == Some("OOM") => {
                    let answer = self.run_script(connection, name, write).await;
                    return answer
                        .map_err(|error| if is_forbidden(&error) { full.into() } else { error });
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn load_functions<C: ConnectionLike>(
        &self,
        connection: &mut C,
        library: Library,
    ) -> Result<(), RedisError> {
        let mut load = redis::cmd("FUNCTION");
        load.arg("LOAD").arg(self.function_library(library.name, library.prefix));
        // One that is there is not replaced: it may be newer.
        load.exec_async(connection).await
    }
}

fn unusable(function: &str, taken: &RedisError) -> RedisError {
    let detail = format!("there is no {function}, and FUNCTION LOAD answers \"{taken}\"");
    (UNUSABLE, "somebody else's functions have our names", detail).into()
}

fn is_forbidden(error: &Error) -> bool {
    matches!(error, Error::Redis(error) if error.code() == Some("NOPERM"))
}

fn mentions(error: &RedisError, words: &str) -> bool {
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
