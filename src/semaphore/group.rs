//! Groups of requests: the parties among whom a semaphore's permits are shared fairly.

use crate::error::Error;
use crate::protocol::id::{MAX_GROUP, MAX_SHARE, is_group_name};
use crate::semaphore::settings::GroupDefaults;

/// A group of requests, such as the requests of one tenant.
///
/// If several groups wait, they take turns: a group with a share of 3 is granted three times the
/// weight of a group with a share of 1, however many requests each group has queued. A group with a
/// cap never holds more weight than its cap. While it is at its cap, its requests delay no other
/// group. All requests without a group form one more group, with a share of 1 and no cap.
///
/// Shares divide grants, not time: use a cap if a group must not fill the semaphore with slow work.
/// Derive the name from an authenticated identity. A caller that may choose names can invent groups,
/// and each of them has a share.
///
/// # Examples
///
/// ```
/// # use redis_semaphore::{Error, Group, SemaphoreClient};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
/// # let name = uuid::Uuid::new_v4().to_string();
/// let renders = client.semaphore(name).limit(20).build()?;
/// let free = renders.request().group("tenant-7").acquire().await?;
/// let paying = Group::new("tenant-8").share(3).cap(5);
/// let permit = renders.request().group(paying).weight(2).acquire().await?;
/// # free.release().await?;
/// # permit.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    name: String,
    share: Option<u16>,
    cap: Option<u32>,
}

impl Group {
    /// Creates a group with this name: 1 to 64 letters, digits, ".", "_" or "-". Acquiring fails if
    /// the name is invalid.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), share: None, cap: None }
    }

    /// Sets the share: the weight that the group is granted in proportion to other waiting groups.
    /// Range: 1 to 1000. Default:
    /// [`SemaphoreBuilder::group_share`](crate::SemaphoreBuilder::group_share). The share of the
    /// request that is granted counts.
    #[must_use]
    pub fn share(self, share: u16) -> Self {
        Self { share: Some(share), ..self }
    }

    /// Sets the cap: the weight that the group may hold at the same time. Range: the weight of the
    /// request to 4,294,967,295. Default:
    /// [`SemaphoreBuilder::group_cap`](crate::SemaphoreBuilder::group_cap). Each request is granted
    /// by its own cap, so a new cap applies to new requests.
    #[must_use]
    pub fn cap(self, cap: u32) -> Self {
        Self { cap: Some(cap), ..self }
    }

    /// Returns the part of an ID for a request with this weight: `GROUP,SHARE,CAP:`.
    pub(crate) fn part(&self, weight: u32, defaults: GroupDefaults) -> Result<String, Error> {
        let name = &self.name;
        check_name(name)?;
        let share = self.share.unwrap_or(defaults.share);
        if !(1..=MAX_SHARE).contains(&share) {
            let reason = format!("must have a share from 1 to {MAX_SHARE}, not {share}");
            return Err(Error::invalid("group", reason));
        }
        let cap = self.cap.or(defaults.cap);
        if let Some(cap) = cap.filter(|cap| *cap < weight) {
            let reason = format!("must have a cap of at least the weight {weight}, not {cap}");
            return Err(Error::invalid("group", reason));
        }
        Ok(format!("{name},{share},{}:", cap.unwrap_or(0)))
    }
}

pub(super) fn check_name(name: &str) -> Result<(), Error> {
    if is_group_name(name) {
        return Ok(());
    }
    let wanted = format!("1 to {MAX_GROUP} letters, digits, \".\", \"_\" or \"-\"");
    Err(Error::invalid("group", format!("must be {wanted}, not {name:?}")))
}

impl From<&str> for Group {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

impl From<String> for Group {
    fn from(name: String) -> Self {
        Self::new(name)
    }
}
