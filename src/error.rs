use std::time::Duration;

/// What can go wrong. "Did not get it" is not among them: a try that finds no room answers `None`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A script is missing or broken, or the server holds another text under its name. This is a
    /// mistake in a program or a folder of scripts, not a passing condition.
    #[error("script: {0}")]
    Script(String),
    /// Redis answered with an error, or could not be reached.
    #[error("redis: {0}")]
    Redis(#[from] redis::RedisError),
    #[error("{0:?}")]
    #[allow(missing_docs)]
    Todo(Duration),
}
