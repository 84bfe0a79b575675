//! A permit on its way to another process.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::error::Error;
use crate::protocol::{check_name, id};
use crate::semaphore::Permit;

/// What another process needs to go on with a permit: from [`Permit::detach`], and for
/// [`Semaphore::adopt`](crate::Semaphore::adopt). It travels as text, or as whatever is made of its
/// parts.
///
/// Nobody renews the permit meanwhile, and nobody gives it back: it is lost when its lease ends
/// before somebody adopts it. Whoever has this can adopt the permit, so show it to nobody else.
///
/// As text it is one line: id, fencing token, [`expires_in`](Self::expires_in) in ms and the name
/// of the semaphore, with a blank between them. The server and the prefix of the keys are not in
/// it: both sides must use the same.
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
/// // Another process, which got the message:
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
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a permit that nobody adopts is lost when its lease ends"]
pub struct DetachedPermit {
    name: String,
    id: String,
    weight: u32,
    token: u64,
    expires_in: Duration,
}

impl DetachedPermit {
    /// The name of the semaphore, without the prefix.
    ///
    /// # Examples
    ///
    /// See [`DetachedPermit`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// As [`Permit::id`]. The permit has another one when it is adopted.
    ///
    /// # Examples
    ///
    /// See [`DetachedPermit`].
    pub fn id(&self) -> &str {
        &self.id
    }

    /// As [`Permit::weight`]: the weight.
    ///
    /// # Examples
    ///
    /// See [`DetachedPermit`].
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// As [`Permit::fencing_token`]: the one of the acquire, which it keeps however often it moves.
    /// So a store that is fenced tells each holder of the permit from those before and after, but
    /// not the holders that it had from each other: whoever parts with a permit must have stopped.
    ///
    /// # Examples
    ///
    /// See [`DetachedPermit`].
    pub fn fencing_token(&self) -> u64 {
        self.token
    }

    /// How much of the lease was surely left when the permit was taken apart: for so long it can be
    /// adopted. The time on the way counts. Zero when it was lost already.
    ///
    /// # Examples
    ///
    /// See [`DetachedPermit`].
    pub fn expires_in(&self) -> Duration {
        self.expires_in
    }

    /// Or what is wrong with it. The text itself is not shown: it is worth a permit.
    fn read(text: &str) -> Result<Self, &'static str> {
        let mut parts = text.splitn(4, ' ');
        let mut next = || parts.next().unwrap_or_default();
        let id = next();
        let (lease, said) = (id::lease_of(id), id::client_and_weight(id));
        let ((_, weight), lease) = said.zip(lease).ok_or("the first term is no id")?;
        let token = id::number(next()).filter(|token| *token > 0);
        let token = token.ok_or("the token is no number from 1 to 9007199254740991")?;
        let expires_in = id::number(next()).map(Duration::from_millis);
        let expires_in = expires_in.filter(|left| *left <= lease);
        let expires_in = expires_in.ok_or("the ms are no number from 0 to the lease in the id")?;
        let name = next();
        check_name("name", name).map_err(|_| "what follows the ms is no name of a semaphore")?;
        Ok(Self { name: name.to_owned(), id: id.to_owned(), weight, token, expires_in })
    }
}

impl fmt::Display for DetachedPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, id, token, expires_in, .. } = self;
        write!(f, "{id} {token} {} {name}", expires_in.as_millis())
    }
}

impl FromStr for DetachedPermit {
    type Err = Error;

    /// # Errors
    ///
    /// [`Error::Invalid`] for what is not the text of one.
    fn from_str(text: &str) -> Result<Self, Error> {
        Self::read(text).map_err(|wrong| {
            let wanted = "must be the text of DetachedPermit: id, fencing token, ms and name";
            Error::invalid("permit", format!("{wanted}; {wrong}"))
        })
    }
}

impl Permit {
    /// Parts with the permit, so that another process can
    /// [adopt](crate::Semaphore::adopt) it: work moves on, and nobody gets in between.
    ///
    /// Nothing is sent. From now on nobody renews the permit, and nobody gives it back, until it is
    /// adopted. Its lease counts from the last renewal: mostly at least two thirds of it are left,
    /// and [`expires_in`](DetachedPermit::expires_in) says how much. Where that is little,
    /// [`refresh`](Self::refresh) first. If nobody adopts it in time, it is free when its lease
    /// ends.
    ///
    /// Who [watches](Self::watch) it is told that this process holds it no longer. Stop the work
    /// before: the fencing token [stays the same](DetachedPermit::fencing_token).
    ///
    /// # Examples
    ///
    /// See [`DetachedPermit`].
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
            // As the text has it.
            expires_in: Duration::from_millis(expires_in.as_millis() as u64),
        }
    }
}
