use std::time::Duration;

use redis::{Value, from_redis_value};

use crate::calls::InspectReply;

/// Who holds a semaphore and who waits for it, at one moment on the server.
///
/// # Examples
///
/// ```
/// # use redis_semaphore::{Error, Semaphores};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// # let semaphores = Semaphores::connect(&std::env::var("REDIS_URL").unwrap()).await?;
/// # let name = uuid::Uuid::new_v4().to_string();
/// # let semaphore = semaphores.semaphore(name).limit(3).build()?;
/// let permit = semaphore.acquire_many(2).await?;
/// let now = semaphore.inspect().await?;
/// assert_eq!((now.limit, now.held, now.queued), (3, 2, 0));
/// assert_eq!(now.holders[0].id, permit.id());
/// for holder in &now.holders {
///     println!("{} holds {} for {:?} more", holder.owner(), holder.num_permits, holder.expires_in);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The limit in force.
    pub limit: u32,
    /// The limit that the newest client declared; `None` for a semaphore with initial permits.
    pub declared_limit: Option<u32>,
    /// The limit set at run time, if there is one: then it is the one in force.
    pub runtime_limit: Option<u32>,
    /// The weight of all permits.
    pub held: u64,
    /// How many requests wait.
    pub queued: u64,
    /// The newest fencing token or ticket: no permit has a larger token. Tokens of single permits
    /// are known to their holders only.
    pub last_token: u64,
    /// Permits, from the one whose lease ends first; 1,000 at most.
    pub holders: Vec<Holder>,
    /// Requests in the order of the queue; 1,000 at most.
    pub waiters: Vec<Waiter>,
}

/// A permit that somebody holds.
///
/// # Examples
///
/// See [`Inspection`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// As [`Permit::id`](crate::Permit::id).
    pub id: String,
    /// The weight.
    pub num_permits: u32,
    /// Until the lease ends, unless it is renewed.
    pub expires_in: Duration,
}

/// A request that waits.
///
/// # Examples
///
/// See [`Inspection`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// What [`Permit::id`](crate::Permit::id) will be.
    pub id: String,
    /// The weight.
    pub num_permits: u32,
    /// The place in the queue, where 1 is the head.
    pub position: u64,
    /// Since the request was queued.
    pub waited: Duration,
}

impl Holder {
    /// The label of the process: what stands in front of the last colon of the id.
    ///
    /// # Examples
    ///
    /// See [`Inspection`].
    pub fn owner(&self) -> &str {
        owner(&self.id)
    }
}

impl Waiter {
    /// The label of the process: what stands in front of the last colon of the id.
    ///
    /// # Examples
    ///
    /// See [`Inspection`].
    pub fn owner(&self) -> &str {
        owner(&self.id)
    }
}

fn owner(id: &str) -> &str {
    id.rsplit_once(':').map_or(id, |(owner, _)| owner)
}

impl Inspection {
    /// `configured` is the limit of an unused semaphore, `before` the number of waiters in front of
    /// the first one told.
    pub(crate) fn read(
        reply: InspectReply,
        configured: u32,
        before: u64,
    ) -> Result<Self, redis::ParsingError> {
        let (_, limit, declared, runtime, held, _, queued, last_token, holders, waiters) = reply;
        let holders = triples(holders)?.map(|(id, num_permits, ms)| Holder {
            id,
            num_permits,
            expires_in: Duration::from_millis(ms),
        });
        let waiters =
            triples(waiters)?.zip(before + 1..).map(|((id, num_permits, ms), position)| Waiter {
                id,
                num_permits,
                position,
                waited: Duration::from_millis(ms),
            });
        Ok(Self {
            limit: u32::try_from(limit).unwrap_or(configured),
            declared_limit: u32::try_from(declared).ok(),
            runtime_limit: u32::try_from(runtime).ok(),
            held: held.max(0) as u64,
            queued,
            last_token,
            holders: holders.collect(),
            waiters: waiters.collect(),
        })
    }
}

/// Ids of clients in other languages may be any bytes.
fn triples(
    values: Vec<Value>,
) -> Result<impl Iterator<Item = (String, u32, u64)>, redis::ParsingError> {
    let read = |three: &[Value]| -> Result<(String, u32, u64), redis::ParsingError> {
        let three = Value::Array(three.to_vec());
        let (id, weight, ms) = from_redis_value::<(Vec<u8>, u32, u64)>(three)?;
        Ok((String::from_utf8_lossy(&id).into_owned(), weight, ms))
    };
    let triples: Result<Vec<_>, _> = values.chunks_exact(3).map(read).collect();
    Ok(triples?.into_iter())
}
