//! What the smaller examples begin with.

/// Whatever fails here ends up as a message for a person.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
pub type Result<T> = std::result::Result<T, Error>;

pub fn redis_url() -> Result<String> {
    let url = std::env::var("REDIS_URL").ok().filter(|url| !url.is_empty());
    let missing = "REDIS_URL is not set: scripts/with-redis cargo run --example ... has a server";
    url.ok_or_else(|| missing.into())
}
