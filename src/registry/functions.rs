//! The scripts as a library of Redis functions: the same code, which the server keeps under names.

use super::{Script, ScriptRegistry};

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
