//! Limits of the semaphores that the CLI opens.

use redis_semaphore::{Error, Inspection, Semaphore, SemaphoreBuilder, SemaphoreClient};

/// Opens a semaphore to inspect or change it.
pub fn with_existing_limit(client: &SemaphoreClient, name: &str) -> Result<Semaphore, Error> {
    client.semaphore(name).existing_limit().build()
}

/// Opens a semaphore with this declared limit, or with the existing limit.
pub fn with_limit(builder: SemaphoreBuilder, limit: Option<u32>) -> Result<Semaphore, Error> {
    match limit {
        Some(limit) => builder.limit(limit),
        None => builder.existing_limit(),
    }
    .build()
}

/// Returns the effective limit, if one exists.
pub fn limit_of(now: &Inspection) -> Option<u32> {
    now.declared_limit.or(now.runtime_limit).map(|_| now.limit)
}
