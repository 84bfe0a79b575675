//! Reports of the workers to the supervisor.

use serde::{Deserialize, Serialize};

use crate::demo::moment::Moment;

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Report {
    pub at: Moment,
    pub what: What,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum What {
    /// The worker is about to request a permit.
    Waits,
    /// The worker has a permit.
    Holds,
    /// The worker has taken this page.
    Begins(u32),
    /// The worker has finished this page.
    Finishes(u32),
    /// The worker has finished this page, but another worker had finished it before.
    Repeats(u32),
    /// The worker has lost its permit and stopped working.
    Loses,
    /// The worker has put back this unfinished page.
    PutsBack(u32),
    /// The worker is about to release its permit.
    Leaves,
}
