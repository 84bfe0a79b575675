//! Detached permits, which can be sent to another process.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::error::Error;
use crate::protocol::{check_name, id};
use crate::semaphore::Permit;

/// A permit that no process holds: the data that another process needs to adopt it. Created by
/// [`Permit::detach`], and used by [`Semaphore::adopt`](crate::Semaphore::adopt). Send this value
/// as text: `to_string` writes the text, and `parse` reads it.
///
/// Until a process adopts the permit, no process refreshes or releases it. If no process adopts the
/// permit before its lease expires, the permit is free again. Keep this value secret: any process
/// that has the value can adopt the permit. `Debug` does not print the ID and the fencing token.
/// A process that knows only the ID can adopt the permit, too. The debug log and
/// [`inspect`](crate::Semaphore::inspect) show IDs, so give access to them only to trusted users.
///
/// The text is one line: ID, fencing token, [`expires_in`](Self::expires_in) in ms, and the name of
/// the semaphore, separated by spaces. The text does not contain the server or the key prefix, so
/// both processes must use the same server and prefix.
///
/// # Examples
///
/// ```
/// # use redis_semaphore::{Error, DetachedPermit, SemaphoreClient};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// # let url = std::env::var("REDIS_URL").unwrap();
/// # let name = uuid::Uuid::new_v4().to_string();
/// # let (here, there) = (SemaphoreClient::connect(&url).await?, SemaphoreClient::connect(&url).await?);
/// # let semaphore = here.semaphore(&name).limit(1).build()?;
/// let permit = semaphore.acquire().await?;
/// let token = permit.fencing_token();
/// let message = permit.detach().to_string();
///
/// // Another process, which received the message:
/// # let semaphore = there.semaphore(&name).limit(1).build()?;
/// let detached: DetachedPermit = message.parse()?;
/// assert_eq!((detached.name(), detached.weight()), (semaphore.name(), 1));
/// println!("{} can be adopted for {:?}", detached.id(), detached.expires_in());
/// let permit = semaphore.adopt(detached).await?;
/// assert_eq!(permit.fencing_token(), token);
/// permit.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
#[must_use = "a detached permit that is never adopted expires with its lease"]
pub struct DetachedPermit {
    name: String,
    id: String,
    weight: u32,
    token: u64,
    expires_in: Duration,
}

impl DetachedPermit {
    /// Returns the name of the semaphore, without the prefix.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the [ID](Permit::id). The permit gets another ID when it is adopted.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the [weight](Permit::weight).
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// Returns the [fencing token](Permit::fencing_token). An adoption does not change the token. A
    /// store that checks fencing tokens therefore rejects holders of earlier permits, but cannot
    /// distinguish the successive holders of this permit.
    pub fn fencing_token(&self) -> u64 {
        self.token
    }

    /// Returns how much of the lease was guaranteed to remain at [`Permit::detach`]. The permit can
    /// be adopted within this time. The transfer to the other process counts toward this time.
    /// Returns zero if the permit was already lost.
    pub fn expires_in(&self) -> Duration {
        self.expires_in
    }

    /// Parses the text. An error does not contain the text, because any process that has the text
    /// can adopt the permit.
    fn read(text: &str) -> Result<Self, &'static str> {
        let mut parts = text.splitn(4, ' ');
        let mut next = || parts.next().unwrap_or_default();
        let id = next();
        let (lease, said) = (id::lease_of(id), id::client_and_weight(id));
        let ((_, weight), lease) = said.zip(lease).ok_or("the first term is not an ID")?;
        let token = id::number(next()).filter(|token| *token > 0);
        let token = token.ok_or("the token is not a number from 1 to 9007199254740991")?;
        let expires_in = id::number(next()).map(Duration::from_millis);
        let expires_in = expires_in.filter(|left| *left <= lease);
        let expires_in =
            expires_in.ok_or("the milliseconds are not a number from 0 to the lease in the ID")?;
        let name = next();
        check_name("name", name).map_err(|_| "the rest is not the name of a semaphore")?;
        Ok(Self { name: name.to_owned(), id: id.to_owned(), weight, token, expires_in })
    }
}

impl fmt::Display for DetachedPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, id, token, expires_in, .. } = self;
        write!(f, "{id} {token} {} {name}", expires_in.as_millis())
    }
}

impl fmt::Debug for DetachedPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printed = f.debug_struct("DetachedPermit");
        printed.field("name", &self.name).field("weight", &self.weight);
        printed.field("expires_in", &self.expires_in).finish_non_exhaustive()
    }
}

impl FromStr for DetachedPermit {
    type Err = Error;

    /// # Errors
    ///
    /// - [`Error::Invalid`] if the text is not the text of a `DetachedPermit`.
    fn from_str(text: &str) -> Result<Self, Error> {
        Self::read(text).map_err(|wrong| {
            let wanted = "must be the text of a DetachedPermit: ID, fencing token, milliseconds \
                          and name";
            Error::invalid("permit", format!("{wanted}; {wrong}"))
        })
    }
}

impl Permit {
    /// Detaches the permit, so that another process can [adopt](crate::Semaphore::adopt) the permit
    /// and continue the work. During the transfer, the permit stays taken until its lease expires.
    ///
    /// Nothing is sent. The lease counts from the last refresh, so usually at least two thirds of
    /// it are left. [`expires_in`](DetachedPermit::expires_in) returns the remaining time. If this
    /// time is too short, call [`refresh`](Self::refresh) first.
    ///
    /// [Watches](Self::watch) report that this process no longer holds the permit. Stop the work
    /// before you detach the permit: the adopting process gets the [same fencing
    /// token](DetachedPermit::fencing_token), so a store cannot reject late writes of this process.
    pub fn detach(mut self) -> DetachedPermit {
        self.on_drop = None;
        let lease = self.lease();
        let (token, expires_in) = (lease.token, lease.expires_in());
        self.let_go();
        self.core.part_with(&self.acquisition);
        DetachedPermit {
            name: self.core.name.clone(),
            id: self.acquisition.id.clone(),
            weight: self.acquisition.weight,
            token,
            // This time is rounded down to whole ms, because the text contains whole ms.
            expires_in: Duration::from_millis(expires_in.as_millis() as u64),
        }
    }
}
