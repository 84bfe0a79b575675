//! The scripts as a library of Redis functions: the same code, stored by the server under names.
//!
//! The code that scripts share stands once, before the functions. A server runs the shared code
//! when it loads the library, not in each call.

use std::collections::HashSet;

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, FromRedisValue, RedisError};

use super::{Script, ScriptRegistry};
use crate::error::{Error, is_missing_function};

/// Other clients may remove the library between two calls, but rarely this often.
const MAX_ATTEMPTS: u32 = 4;

/// The kind of the error for functions that have this crate's names but are foreign, and for
/// functions that cannot be loaded.
pub(crate) const UNUSABLE: ErrorKind = ErrorKind::Client;

/// The published library of this crate's functions, `lua/functions.lua`.
const LIBRARY: &str = "redis_semaphore";
/// The start of the name of each function in the library.
const PREFIX: &str = "sem_";

impl ScriptRegistry {
    /// Returns the scripts as a library for `FUNCTION LOAD`, which requires Redis 7.0 or newer, or
    /// Valkey.
    ///
    /// Each script becomes a function with the same keys, arguments and replies. The function's
    /// name is `prefix` followed by the name of the script. The included files stand once at the
    /// beginning, so they should only define functions and constants, under names that no other
    /// included file uses. They cannot use `KEYS` and `ARGV`.
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
        let mut library =
            format!("#!lua name={name}\n-- Made from scripts: change those, not this file.\n");
        let mut done = HashSet::new();
        for script in self.scripts() {
            for file in script.parts().0 {
                if done.insert(&file.path) {
                    library.push('\n');
                    library.push_str(&file.text);
                }
            }
        }
        library.extend(self.scripts().map(|script| function(script, prefix)));
        library
    }

    /// Calls a script as a function. If a server does not have the library, the library is loaded
    /// first. If a server's memory is too full for the library, the script is run instead.
    pub(super) async fn call_function<T: FromRedisValue>(
        &self,
        connection: &mut impl ConnectionLike,
        name: &str,
        write: impl Fn(&mut Cmd),
    ) -> Result<T, Error> {
        let function = format!("{PREFIX}{name}");
        let mut attempt = 0;
        loop {
            attempt += 1;
            let mut call = redis::cmd("FCALL");
            write(call.arg(&function));
            let missing = match call.query_async(connection).await {
                Err(error) if is_missing_function(&error) => error,
                result => return Ok(result?),
            };
            let mut load = redis::cmd("FUNCTION");
            load.arg("LOAD").arg(self.function_library(LIBRARY, PREFIX));
            // An existing library is not replaced, because it may be newer.
            match load.exec_async(connection).await {
                Ok(()) if attempt == MAX_ATTEMPTS => return Err(missing.into()),
                Ok(()) => {}
                // Another client was faster, or foreign functions have these names.
                Err(taken) if mentions(&taken, "already exists") => {
                    if attempt == MAX_ATTEMPTS {
                        return Err(unusable(&function, &taken).into());
                    }
                }
                Err(full) if full.code() == Some("OOM") => {
                    let response = self.run_script(connection, name, write).await;
                    return response
                        .map_err(|error| if is_forbidden(&error) { full.into() } else { error });
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn unusable(function: &str, taken: &RedisError) -> RedisError {
    let detail = format!("there is no {function}, and FUNCTION LOAD returned \"{taken}\"");
    (UNUSABLE, "other functions already use these names", detail).into()
}

fn is_forbidden(error: &Error) -> bool {
    matches!(error, Error::Redis(error) if error.code() == Some("NOPERM"))
}

fn mentions(error: &RedisError, words: &str) -> bool {
    error.detail().is_some_and(|detail| detail.contains(words))
}

/// Returns the code that registers a script as a function. The script's own code can be the body of
/// the function, because both read `KEYS` and `ARGV`, and end with a `return`.
fn function(script: &Script, prefix: &str) -> String {
    let flags: Vec<_> = script.flags().iter().map(|flag| format!("'{flag}'")).collect();
    format!(
        "\nredis.register_function{{function_name = '{prefix}{}', flags = {{{}}},\n\
         callback = function(KEYS, ARGV)\n{}end}}\n",
        script.name(),
        flags.join(", "),
        script.parts().1
    )
}
