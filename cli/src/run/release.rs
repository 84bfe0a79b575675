//! Gives a permit back, however long the server refuses that.

use std::time::{Duration, Instant};

use redis_semaphore::{Error, Permit, SemaphoreClient};
use tokio::time::sleep;

use crate::output::note;

const PAUSE: Duration = Duration::from_millis(200);

/// Until the server confirms it, or the lease is over. A person learns at the first failure that it
/// may take long.
pub async fn release(client: &SemaphoreClient, name: &str, permit: Permit) -> Result<(), Error> {
    let id = permit.id().to_owned();
    let ends = Instant::now() + permit.expires_in();
    let mut error = match permit.release().await {
        Err(error) if !matches!(error, Error::Lost { .. } | Error::Shutdown) => error,
        done => return done,
    };
    note(format_args!("{error}: the release is retried until the lease of the permit ends"));
    let semaphore = client.semaphore(name).existing_limit().build()?;
    // The library goes on, too, but does not report its success.
    while Instant::now() < ends {
        match semaphore.revoke(&id).await {
            Ok(_) => return Ok(()),
            Err(again) => error = again,
        }
        sleep(PAUSE).await;
    }
    Err(error)
}
