//! Generates `lua/functions.lua`, which contains the scripts as Redis functions.

use redis_semaphore::ScriptRegistry;

#[test]
fn the_library_is_that_of_the_scripts() {
    let library = ScriptRegistry::embedded().function_library("redis_semaphore", "sem_");
    super::assert_is_published("functions.lua", &library);
}
