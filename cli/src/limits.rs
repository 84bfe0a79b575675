//! The limit with which this tool opens a semaphore.

use redis_semaphore::{Error, Inspection, Semaphore, SemaphoreBuilder, SemaphoreClient};

/// One that is opened to be looked at, or changed.
pub fn with_existing_limit(client: &SemaphoreClient, name: &str) -> Result<Semaphore, Error> {
    client.semaphore(name).existing_limit().build()
}

/// The one to declare, or that in force.
pub fn with_limit(builder: SemaphoreBuilder, limit: Option<u32>) -> Result<Semaphore, Error> {
    match limit {
        Some(limit) => builder.limit(limit),
        None => builder.existing_limit(),
    }
    .build()
}

/// The limit in force, where there is one.
pub fn limit_of(now: &Inspection) -> Option<u32> {
    now.declared_limit.or(now.runtime_limit).map(|_| now.limit)
}
