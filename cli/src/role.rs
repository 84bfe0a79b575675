//! What a process is that this program has started as a part of itself: users cannot ask for that,
//! so it is no option.

/// By its own path there may be another program meanwhile, or none: an upgrade does not wait for
/// those that run.
pub const THIS_PROGRAM: &str = "/proc/self/exe";

/// Is in the environment of such a process.
pub const VARIABLE: &str = "REDIS_SEMAPHORE_ROLE";

/// A role, with what follows it.
pub const GUARD: &str = "guard";
pub const STARTER: &str = "starter";

pub fn of_this_process() -> Option<String> {
    std::env::var(VARIABLE).ok()
}
