//! The reply of `lua/inspect.lua`: who holds and who waits.

use std::fmt;
use std::time::Duration;

use redis::{Value, from_redis_value};

use crate::protocol::id;

/// Who holds a semaphore and who waits for it, at one moment on the server.
///
/// # Examples
///
/// ```
/// # use redis_semaphore::{Error, SemaphoreClient};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
/// # let name = uuid::Uuid::new_v4().to_string();
/// # let semaphore = client.semaphore(name).limit(3).build()?;
/// let permit = semaphore.acquire_many(2).await?;
/// let now = semaphore.inspect().await?;
/// assert_eq!((now.limit, now.held, now.queued), (3, 2, 0));
/// assert_eq!(now.holders[0].id, permit.id());
/// for holder in &now.holders {
///     println!("{} holds {} for {:?} more", holder.client_name(), holder.weight, holder.expires_in);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The limit in force. Where the server knows of none, as nobody has used the semaphore, that
    /// of the one that was asked; 0 for one with
    /// [`existing_limit`](crate::SemaphoreBuilder::existing_limit).
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

/// Of holders and waiters their count.
impl fmt::Debug for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inspection")
            .field("limit", &self.limit)
            .field("declared_limit", &self.declared_limit)
            .field("runtime_limit", &self.runtime_limit)
            .field("held", &self.held)
            .field("queued", &self.queued)
            .field("last_token", &self.last_token)
            .field("holders", &format_args!("{} listed", self.holders.len()))
            .field("waiters", &format_args!("{} listed", self.waiters.len()))
            .finish()
    }
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
    pub weight: u32,
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
    pub weight: u32,
    /// The place in the queue, where 1 is the head.
    pub position: u64,
    /// Since the request was queued. A head start does not count, unless it is of a program in
    /// another language that does not tell it in its IDs.
    pub waited: Duration,
    /// For how long its process is taken to be there, unless it is heard of again. `None` where it
    /// is not: the request leaves the queue when its turn comes.
    pub alive_for: Option<Duration>,
}

impl Holder {
    /// The label of the process: its client up to the last dot.
    ///
    /// # Examples
    ///
    /// See [`Inspection`].
    pub fn client_name(&self) -> &str {
        id::client_name_of(self.client())
    }

    /// The process: no two of them have the same client, though maybe the same client name.
    ///
    /// # Examples
    ///
    /// See [`Inspection`].
    pub fn client(&self) -> &str {
        client_of(&self.id)
    }
}

impl Waiter {
    /// The label of the process: its client up to the last dot.
    ///
    /// # Examples
    ///
    /// See [`Inspection`].
    pub fn client_name(&self) -> &str {
        id::client_name_of(self.client())
    }

    /// The process: no two of them have the same client, though maybe the same client name.
    ///
    /// # Examples
    ///
    /// See [`Inspection`].
    pub fn client(&self) -> &str {
        client_of(&self.id)
    }
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
        Ok(Self {
            limit: u32::try_from(limit).unwrap_or(configured),
            declared_limit: u32::try_from(declared).ok(),
            runtime_limit: u32::try_from(runtime).ok(),
            held: held.max(0) as u64,
            queued,
            last_token,
            holders: read_holders(&holders)?,
            waiters: read_waiters(&waiters, before)?,
        })
    }
}

/// What no client has written, and so has no weight, is left out.
fn read_holders(values: &[Value]) -> Result<Vec<Holder>, redis::ParsingError> {
    let holders = values.chunks_exact(2).map(|two| {
        let (id, ms): (Vec<u8>, u64) = from_redis_value(Value::Array(two.to_vec()))?;
        let id = String::from_utf8_lossy(&id).into_owned();
        let (weight, expires_in) = (weight_of(&id), Duration::from_millis(ms));
        Ok(Holder { id, weight, expires_in })
    });
    holders.filter(|holder| !matches!(holder, Ok(Holder { weight: 0, .. }))).collect()
}

fn read_waiters(values: &[Value], before: u64) -> Result<Vec<Waiter>, redis::ParsingError> {
    let waiters = values.chunks_exact(3).zip(before + 1..).map(|(three, position)| {
        let (id, waited, present): (Vec<u8>, u64, i64) =
            from_redis_value(Value::Array(three.to_vec()))?;
        let id = String::from_utf8_lossy(&id).into_owned();
        let (weight, waited) = (weight_of(&id), Duration::from_millis(waited));
        let alive_for = u64::try_from(present).ok().map(Duration::from_millis);
        Ok(Waiter { id, weight, position, waited, alive_for })
    });
    waiters.collect()
}

fn client_of(id: &str) -> &str {
    id::client_and_weight(id).map_or(id, |(client, _)| client)
}

fn weight_of(id: &str) -> u32 {
    id::client_and_weight(id).map_or(0, |(_, weight)| weight)
}

/// As the script answers: time, limit, declared, runtime, held, holders_total, queued, the last number,
/// then the holders and the waiters.
pub(crate) type InspectReply = (i64, i64, i64, i64, i64, u64, u64, u64, Vec<Value>, Vec<Value>);
