//! The reply of `lua/inspect.lua`: the holders and waiters.

use std::fmt;
use std::time::Duration;

use crate::protocol::group_inspection::InspectedGroups;
use crate::protocol::id;

/// The holders and waiters of a semaphore, at one moment on the server.
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
    /// The effective limit. For an unused semaphore, it is the limit in the configuration of the
    /// inspecting client, or 0 with [`existing_limit`](crate::SemaphoreBuilder::existing_limit).
    pub limit: u32,
    /// The declared limit, which the last declaration set. `None` if no client has declared a
    /// limit, for example for a semaphore with initial permits.
    pub declared_limit: Option<u32>,
    /// The runtime limit, or `None` if no runtime limit is set. A runtime limit is also the
    /// effective limit.
    pub runtime_limit: Option<u32>,
    /// The weight of all permits. If the server still has to remove over 1,000 expired permits,
    /// this value is too high.
    pub held: u64,
    /// The number of waiting requests.
    pub queued: u64,
    /// How many of the waiting requests have a [group](crate::Group).
    pub queued_in_groups: u64,
    /// The last number of the sequence of fencing tokens and tickets. No permit has a larger token.
    /// The server does not store the tokens of permits.
    pub last_token: u64,
    /// The permits, sorted by the expiry of their leases. At most 1,000.
    pub holders: Vec<Holder>,
    /// The waiting requests, in queue order. At most 1,000.
    pub waiters: Vec<Waiter>,
}

/// Prints only the number of holders and waiters.
impl fmt::Debug for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inspection")
            .field("limit", &self.limit)
            .field("declared_limit", &self.declared_limit)
            .field("runtime_limit", &self.runtime_limit)
            .field("held", &self.held)
            .field("queued", &self.queued)
            .field("queued_in_groups", &self.queued_in_groups)
            .field("last_token", &self.last_token)
            .field("holders", &format_args!("{} listed", self.holders.len()))
            .field("waiters", &format_args!("{} listed", self.waiters.len()))
            .finish()
    }
}

/// A permit that is held. Part of an [`Inspection`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The ID, as in [`Permit::id`](crate::Permit::id).
    pub id: String,
    /// The weight.
    pub weight: u32,
    /// The time until the lease expires, unless the lease is refreshed.
    pub expires_in: Duration,
}

/// A waiting request. Part of an [`Inspection`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// The ID, which [`Permit::id`](crate::Permit::id) will return.
    pub id: String,
    /// The weight.
    pub weight: u32,
    /// The position in the queue. 1 is the head. In a semaphore with [groups](crate::Group), the
    /// requests without a group come first, and then all others in the order of their arrival.
    pub position: u64,
    /// The time since the request was queued. This time excludes a head start, unless a program in
    /// another language omits the head start from its IDs.
    pub waited: Duration,
    /// The time until the client counts as dead, unless a heartbeat arrives before. `None` if the
    /// client already counts as dead: at its turn, the request leaves the queue.
    pub alive_for: Option<Duration>,
}

impl Holder {
    /// Returns the client name: the client ID up to the last dot.
    pub fn client_name(&self) -> &str {
        id::client_name_of(self.client())
    }

    /// Returns the client ID, which differs between processes with the same client name.
    pub fn client(&self) -> &str {
        client_of(&self.id)
    }

    /// Returns the name of the [group](crate::Group), if the request had one.
    pub fn group(&self) -> Option<&str> {
        group_of(&self.id)
    }
}

impl Waiter {
    /// Returns the client name: the client ID up to the last dot.
    pub fn client_name(&self) -> &str {
        id::client_name_of(self.client())
    }

    /// Returns the client ID, which differs between processes with the same client name.
    pub fn client(&self) -> &str {
        client_of(&self.id)
    }

    /// Returns the name of the [group](crate::Group), if the request had one.
    pub fn group(&self) -> Option<&str> {
        group_of(&self.id)
    }
}

impl Inspection {
    /// `configured`: the limit of an unused semaphore. `before`: the number of waiters before the
    /// first waiter in the reply.
    pub(crate) fn read(reply: InspectReply, configured: u32, before: u64) -> Self {
        let (_, limit, declared, runtime, held, _, queued, last_token, holders, waiters, groups) =
            reply;
        // Entries without a weight are omitted, because no client created them.
        let holders = holders.into_iter().map(holder).filter(|holder| holder.weight > 0);
        let waiters = waiters.into_iter().zip(before + 1..).map(waiter);
        Self {
            limit: u32::try_from(limit).unwrap_or(configured),
            declared_limit: u32::try_from(declared).ok(),
            runtime_limit: u32::try_from(runtime).ok(),
            held: held.max(0) as u64,
            queued,
            queued_in_groups: groups.0,
            last_token,
            holders: holders.collect(),
            waiters: waiters.collect(),
        }
    }
}

fn holder((id, left): (Vec<u8>, u64)) -> Holder {
    let id = String::from_utf8_lossy(&id).into_owned();
    Holder { weight: weight_of(&id), id, expires_in: Duration::from_millis(left) }
}

fn waiter(((id, waited, present), position): ((Vec<u8>, u64, i64), u64)) -> Waiter {
    let id = String::from_utf8_lossy(&id).into_owned();
    let (weight, waited) = (weight_of(&id), Duration::from_millis(waited));
    let alive_for = u64::try_from(present).ok().map(Duration::from_millis);
    Waiter { id, weight, position, waited, alive_for }
}

fn client_of(id: &str) -> &str {
    id::client_and_weight(id).map_or(id, |(client, _)| client)
}

fn group_of(id: &str) -> Option<&str> {
    Some(id::group_of(id).split_once(',')?.0)
}

fn weight_of(id: &str) -> u32 {
    id::client_and_weight(id).map_or(0, |(_, weight)| weight)
}

/// The reply of the script: time, limit, declared, runtime, held, holders_total, queued,
/// last_number, then the holders, the waiters and the groups.
pub(crate) type InspectReply = (
    i64,
    i64,
    i64,
    i64,
    i64,
    u64,
    u64,
    u64,
    Vec<(Vec<u8>, u64)>,
    Vec<(Vec<u8>, u64, i64)>,
    InspectedGroups,
);
