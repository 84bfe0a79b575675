//! Permits of several semaphores at once.

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::Instant;

use crate::error::Error;
use crate::semaphore::on_drop::OnDrop;
use crate::semaphore::permit::Permit;
use crate::semaphore::{AcquireRequest, Permits};

/// Acquires of several semaphores, all or nothing: for work that needs a database connection, a
/// licence and some memory.
///
/// It acquires one after the other, in the order of the bytes of their keys, whatever order they
/// are given in. So **callers that hold nothing else never wait for each other in a circle**,
/// however their sets overlap, over all processes with the same prefix. Whoever holds a permit
/// already and asks here for others may wait in such a circle: ask for all of them at once instead.
///
/// At each semaphore the order of arrival counts. What is acquired already is held, and renewed,
/// while the next one is waited for.
///
/// The shortest [timeout](AcquireRequest::timeout) of the requests, counted from the first poll,
/// is the deadline for all of them. Of no requests comes a guard that holds nothing.
///
/// # Errors
///
/// [`Error::Invalid`] when two requests are of the same prefix and name (ask for a heavier permit
/// instead), and for a weight or a head start that one of them cannot have; nothing was sent then.
/// Otherwise as for [`Semaphore::acquire`](crate::Semaphore::acquire), of the semaphore that it
/// names, and [`Error::Lost`] when a permit was lost while another one was waited for. Whatever the
/// error is, all permits are given back in the background.
///
/// # Cancel safety
///
/// Safe: a wait that is dropped leaves its queue, and all permits are given back in the background.
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
        // One for each permit, by its index, so that a thousand take a thousand looks.
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
            // Nothing has started before all are there.
            permit.on_drop = Some(OnDrop::RETURN);
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

/// The numbers of the requests, in the order in which all callers acquire.
fn order(requests: &[AcquireRequest]) -> Result<Vec<usize>, Error> {
    for request in requests {
        request.check()?;
    }
    let mut order: Vec<_> = (0..requests.len()).collect();
    order.sort_by_key(|index| requests[*index].core.key());
    let key = |index: usize| requests[index].core.key();
    match order.windows(2).find(|two| key(two[0]) == key(two[1])) {
        Some(two) => {
            let name = &requests[two[0]].core.name;
            let reason = format!("must have each semaphore once, and {name:?} is there twice");
            Err(Error::invalid("requests", reason))
        }
        None => Ok(order),
    }
}

fn loss(permits: &[Permit], lost: usize) -> Error {
    permits[lost].loss("acquire_all")
}

/// A timeout tells how long all of it took.
fn since(started: Instant, error: Error) -> Error {
    match error {
        Error::Timeout { semaphore, position, .. } => {
            Error::Timeout { semaphore, waited: started.elapsed(), position }
        }
        error => error,
    }
}

fn as_given(permits: Vec<Permit>, order: &[usize]) -> Vec<Permit> {
    let mut numbered: Vec<_> = order.iter().zip(permits).collect();
    numbered.sort_by_key(|(index, _)| **index);
    numbered.into_iter().map(|(_, permit)| permit).collect()
}
