//! The groups in the reply of `lua/inspect.lua`.

use std::collections::HashSet;
use std::time::Duration;

use crate::protocol::id;

/// A group of a semaphore: the weight that it holds, and its waiting requests. Returned by
/// [`Semaphore::inspect_groups`](crate::Semaphore::inspect_groups).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupInspection {
    /// The name of the [group](crate::Group). `None` for the requests without a group.
    pub name: Option<String>,
    /// The weight of the group's permits. If over 1,000 groups hold permits, the value for the
    /// requests without a group includes the weight of the groups that are not returned.
    pub held: u64,
    /// The number of waiting requests.
    pub queued: u64,
    /// The time since the first of the waiting requests was queued. `None` if no request waits.
    pub waited: Option<Duration>,
    /// The share of the first of the waiting requests. `None` if no request waits.
    pub share: Option<u16>,
    /// The cap of the first of the waiting requests. `None` if no request waits, or if this request
    /// has no cap.
    pub cap: Option<u32>,
    /// The runtime cap, which replaces the caps of all requests: see
    /// [`Semaphore::set_group_cap`](crate::Semaphore::set_group_cap).
    pub runtime_cap: Option<u32>,
}

/// The number of queued requests that have a group, the larger of the numbers of groups that wait
/// and that hold a permit, and the groups.
pub(crate) type InspectedGroups = (u64, u64, Vec<InspectedGroup>);

/// The group, the held weight, the number of queued requests, of the first of them, the ms waited
/// and the ID, and the runtime cap.
type InspectedGroup = (Vec<u8>, i64, u64, i64, Vec<u8>, i64);

impl GroupInspection {
    pub(crate) fn read((name, held, queued, waited, id, runtime_cap): InspectedGroup) -> Self {
        // A stranger may have written the name and the ID.
        let [name, id] = [name, id].map(|text| String::from_utf8_lossy(&text).into_owned());
        let mut numbers = id::group_of(&id).trim_end_matches(':').split(',').skip(1);
        let (share, cap) = (numbers.next(), numbers.next());
        let waited = u64::try_from(waited).ok().map(Duration::from_millis);
        Self {
            name: Some(name).filter(|name| !name.is_empty()),
            held: held.max(0) as u64,
            queued,
            waited,
            share: share.map_or(waited.map(|_| 1), |share| share.parse().ok()),
            cap: cap.and_then(|cap| cap.parse().ok()).filter(|cap| *cap > 0),
            runtime_cap: u32::try_from(runtime_cap).ok(),
        }
    }

    /// Removes groups that are on two pages, and adds what the requests without a group hold: the
    /// part of `held` that no group holds.
    pub(crate) fn completed(mut groups: Vec<Self>, held: u64) -> Vec<Self> {
        let mut seen = HashSet::new();
        groups.retain(|group| seen.insert(group.name.clone()));
        let rest = held.saturating_sub(groups.iter().map(|group| group.held).sum());
        match groups.iter_mut().find(|group| group.name.is_none()) {
            Some(others) => others.held = rest,
            None if rest > 0 => groups.push(Self {
                name: None,
                held: rest,
                queued: 0,
                waited: None,
                share: None,
                cap: None,
                runtime_cap: None,
            }),
            None => {}
        }
        groups
    }
}
