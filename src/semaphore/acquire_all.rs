//! Acquiring permits of several semaphores.

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::Instant;

use crate::error::Error;
use crate::releases::Ending;
use crate::semaphore::permit::Permit;
use crate::semaphore::{AcquireRequest, Permits};

/// Acquires permits of several semaphores: either all permits or none. Use this function for work
/// that needs, for example, a database connection, a license and some memory.
///
/// The permits are acquired one after the other, in the byte order of the semaphores' keys. The
/// order of `requests` does not matter. Therefore **callers that hold no other permits never
/// deadlock with each other**, even if they request some of the same semaphores. This applies to
/// all processes with the same prefix. A caller that already holds a permit can still deadlock, so
/// request all permits in one call.
///
/// Each semaphore grants permits in order of arrival. While the next permit is awaited, the permits
/// that are already acquired stay held, and are refreshed as usual.
///
/// The shortest [timeout](AcquireRequest::timeout) of the requests applies to the whole call, and
/// counts from the first poll. If `requests` is empty, the result contains no permits.
///
/// # Errors
///
/// After any of these errors, the permits that were already acquired are released in the
/// background:
///
/// - [`Error::Invalid`] if two requests have the same prefix and name, even if their clients use
///   different servers or databases: two processes could acquire such permits in different orders.
///   Nothing was sent. Request one permit with a higher weight, or use another name or prefix.
/// - [`Error::Invalid`] if a weight is 0 or a head start is out of range. Nothing was sent.
/// - [`Error::Lost`] if a permit was lost while another permit was awaited.
/// - The errors of [`Semaphore::acquire`](crate::Semaphore::acquire). An error about one semaphore
///   contains the name of the semaphore.
///
/// # Cancel safety
///
/// Safe: if the future is dropped, the waiting request leaves its queue, and all permits are
/// released in the background.
///
/// # Examples
///
/// ```
/// # use std::time::Duration;
/// # use redis_semaphore::{Error, SemaphoreClient, acquire_all};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
/// # let [one, other] = [(); 2].map(|()| uuid::Uuid::new_v4().to_string());
/// # async fn work() {}
/// let licences = client.semaphore(one).limit(5).build()?;
/// let gigabytes = client.semaphore(other).limit(64).build()?;
///
/// let heavy = gigabytes.request().weight(16).timeout(Duration::from_secs(10));
/// let permits = acquire_all([licences.request(), heavy]).await?;
/// tokio::select! {
///     () = work() => {}
///     () = permits.lost() => eprintln!("stopped: one of them is lost"),
/// }
/// permits.release().await?;
/// # Ok(())
/// # }
/// ```
pub fn acquire_all(
    requests: impl IntoIterator<Item = AcquireRequest>,
) -> impl Future<Output = Result<Permits, Error>> {
    let requests: Vec<_> = requests.into_iter().collect();
    async move {
        let order = order(&requests)?;
        let timeout = requests.iter().filter_map(|request| request.timeout).min();
        let (started, mut permits) = (Instant::now(), Vec::<Permit>::new());
        // This stream returns the indexes of lost permits. Without this stream, each poll would
        // check all permits that are already acquired.
        let mut losses = FuturesUnordered::new();
        for index in &order {
            let left = timeout.map(|timeout| timeout.saturating_sub(started.elapsed()));
            let mut request = requests[*index].clone();
            request.timeout = left;
            let permit = tokio::select! {
                biased;
                Some(lost) = losses.next() => Err(loss(&permits, lost)),
                permit = request.acquire() => permit,
            };
            let mut permit = permit.map_err(|error| since(started, error))?;
            // If the permit is dropped before all permits are acquired, it is always released,
            // because no work has started yet.
            permit.on_drop = Some(Ending::RETURN);
            let (watch, number) = (permit.watch(), permits.len());
            losses.push(async move {
                watch.ended().await;
                number
            });
            permits.push(permit);
        }
        if let Some(lost) = permits.iter().position(Permit::is_lost) {
            return Err(loss(&permits, lost));
        }
        Ok(Permits::new(as_given(permits, &order)))
    }
}

/// Returns the indexes of the requests, in the order in which their permits are acquired.
fn order(requests: &[AcquireRequest]) -> Result<Vec<usize>, Error> {
    for request in requests {
        request.check()?;
    }
    let key = |index: &usize| requests[*index].core.key();
    let mut order: Vec<_> = (0..requests.len()).collect();
    order.sort_by_key(key);
    // The same key may be a key of two servers. The names of servers give no order of them, because
    // each process may use other addresses.
    match order.windows(2).find(|two| key(&two[0]) == key(&two[1])) {
        Some(two) => {
            let name = &requests[two[0]].core.name;
            let reason = format!("must have different names or prefixes; {name:?} occurs twice");
            Err(Error::invalid("requests", reason))
        }
        None => Ok(order),
    }
}

fn loss(permits: &[Permit], lost: usize) -> Error {
    permits[lost].loss("acquire_all")
}

/// Replaces the waiting time in a timeout error with the duration of the whole call.
fn since(started: Instant, error: Error) -> Error {
    match error {
        Error::Timeout { semaphore, position, outage, .. } => {
            Error::Timeout { semaphore, waited: started.elapsed(), position, outage }
        }
        error => error,
    }
}

fn as_given(permits: Vec<Permit>, order: &[usize]) -> Vec<Permit> {
    let mut numbered: Vec<_> = order.iter().zip(permits).collect();
    numbered.sort_by_key(|(index, _)| **index);
    numbered.into_iter().map(|(_, permit)| permit).collect()
}
