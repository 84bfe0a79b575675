//! What the processes say to each other through pipes: JSON, a line each.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock;

/// The first line to a worker.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    pub name: String,
    /// To be declared.
    pub limit: Option<u32>,
    pub lease: Duration,
    /// How many of the tasks this worker has.
    pub tasks: u32,
    pub weight: u32,
    pub hold: Duration,
}

/// The second line to a worker, when all are ready: it begins at once, and ends then, by the clock
/// that all share. There is no third. The end of the input means that it is over now, whatever the
/// time.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Window {
    pub begin: u64,
    pub end: u64,
}

impl Window {
    pub fn from_now(time: Duration) -> Self {
        let begin = clock::now();
        Self { begin, end: begin + time.as_nanos() as u64 }
    }
}

/// What a worker tells.
#[derive(Debug, Serialize, Deserialize)]
pub enum Report {
    /// It is connected.
    Ready,
    /// Sent a few times a second.
    Progress(Progress),
    /// What one of its tasks did: all of it, and only when everything is over. While time is
    /// measured this would take some of it.
    Log(Log),
    /// It gives up.
    Failed(String),
}

#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
pub struct Progress {
    pub acquires: u64,
    /// Tasks that wait for a permit.
    pub waiting: u64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Log {
    pub turns: Vec<Turn>,
    /// Permits that were lost.
    pub lost: u64,
}

/// A permit from asking for it to just before it was released. There may be a million of them: they
/// are sent without names.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(from = "[u64; 3]", into = "[u64; 3]")]
pub struct Turn {
    pub asked: u64,
    pub held: u64,
    pub freed: u64,
}

impl From<[u64; 3]> for Turn {
    fn from([asked, held, freed]: [u64; 3]) -> Self {
        Self { asked, held, freed }
    }
}

impl From<Turn> for [u64; 3] {
    fn from(Turn { asked, held, freed }: Turn) -> Self {
        [asked, held, freed]
    }
}
