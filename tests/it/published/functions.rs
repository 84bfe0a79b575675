//! Generates `lua/functions.lua`, which contains the scripts as Redis functions.

use redis_semaphore::ScriptRegistry;

#[test]
fn functions_lua_matches_the_embedded_scripts() {
    let library = ScriptRegistry::embedded().function_library("redis_semaphore", "sem_");
    super::assert_is_published("functions.lua", &library);
}
