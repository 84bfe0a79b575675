//! From the options to a permit.

use redis_semaphore::{Error, Permit, Semaphore, Semaphores};

use super::times::Times;
use crate::failure::{Failure, NO_PERMIT};
use crate::options::Run;
use crate::output::tell;

pub async fn acquire(
    semaphores: &Semaphores,
    asked: &Run,
    times: &Times,
) -> Result<Permit, Failure> {
    let builder = semaphores.semaphore(&asked.name).lease(asked.lease);
    let semaphore = match asked.limit {
        Some(limit) => builder.limit(limit),
        None => builder.limit_in_force(),
    };
    let semaphore = semaphore.build()?;
    if let Some(limit) = asked.limit {
        tell_other_limit(&semaphore, limit).await?;
    }
    let permit = wait(&semaphore, asked).await?;
    // One that waited has used up some of its lease.
    if !times.is_fresh(&permit) {
        permit.refresh().await?;
    }
    Ok(permit)
}

async fn wait(semaphore: &Semaphore, asked: &Run) -> Result<Permit, Failure> {
    let request = semaphore.request().weight(asked.weight).ahead(asked.ahead);
    let permit = match asked.timeout {
        _ if asked.no_wait => request.try_acquire().await.transpose(),
        Some(timeout) => Some(request.timeout(timeout).acquire().await),
        None => Some(request.acquire().await),
    };
    match permit {
        Some(Err(error @ Error::NoLimit { .. })) => {
            Err(Failure::usage(format!("{error}: --limit N declares one")))
        }
        Some(permit) => Ok(permit?),
        None => {
            let reason = format!("semaphore {}: no permit is free, or others wait", asked.name);
            Err(Failure::new(NO_PERMIT, reason))
        }
    }
}

/// A limit that differs from the one in force is a mistake more often than not.
async fn tell_other_limit(semaphore: &Semaphore, declared: u32) -> Result<(), Error> {
    let before = semaphore.limit().await?;
    if before == declared {
        return Ok(());
    }
    let name = semaphore.name();
    match semaphore.inspect().await?.runtime_limit {
        Some(set) => tell(format_args!(
            "redis-semaphore: semaphore {name}: --limit {declared} is declared, but {set}, which was \
             set at run time, is in force"
        )),
        None => tell(format_args!(
            "redis-semaphore: semaphore {name}: --limit {declared} is in force now, for everyone; \
             before, it was {before}"
        )),
    }
    Ok(())
}
