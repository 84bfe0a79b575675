//! Releases a permit, and retries if the release fails.

use std::time::{Duration, Instant};

use redis_semaphore::{Error, Permit, SemaphoreClient};
use tokio::time::sleep;

use crate::failure::with_options;
use crate::output::note;

const PAUSE: Duration = Duration::from_millis(200);

/// Releases the permit, and retries until the server confirms the release or the lease expires. The
/// first failure prints a note, because the retries may take long.
pub async fn release(client: &SemaphoreClient, name: &str, permit: Permit) -> Result<(), Error> {
    let id = permit.id().to_owned();
    let ends = Instant::now() + permit.expires_in();
    let error = match permit.release().await {
        Err(error) if !matches!(error, Error::Lost { .. } | Error::Shutdown) => error,
        done => return done,
    };
    note(format_args!(
        "{}; the release is retried until the lease expires or a signal arrives",
        with_options(&error.to_string())
    ));
    let semaphore = client.semaphore(name).existing_limit().build()?;
    // The library retries the release, too, but does not report whether a retry succeeds. The
    // retries here revoke the permit. An error of a retry would name the revocation, so the error
    // of the release is returned.
    while Instant::now() < ends {
        if semaphore.revoke(&id).await.is_ok() {
            return Ok(());
        }
        sleep(PAUSE).await;
    }
    Err(error)
}
