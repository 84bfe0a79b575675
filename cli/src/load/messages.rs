//! Messages between the processes: JSON in pipes, one line each.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock;
use crate::load::groups::LoadGroup;

/// The first line to a worker.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    pub name: String,
    /// The limit to declare.
    pub limit: Option<u32>,
    pub lease: Duration,
    pub tasks: u32,
    pub weight: u32,
    pub hold: Duration,
    /// The groups to which the tasks belong in turn, from the `first_group`.
    pub groups: Vec<LoadGroup>,
    pub first_group: usize,
}

/// The second line to a worker, when all workers are ready. The run begins immediately and ends at
/// `end`, by the clock that all processes share. There is no third line. If the input ends, the run
/// is over immediately.
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

#[derive(Debug, Serialize, Deserialize)]
pub enum Report {
    Ready,
    /// Sent every 50 ms.
    Progress(Progress),
    /// The cycles of a task. They are sent only after the run, because sending them during the run
    /// would change the measurement.
    Log(Log),
    Failed(String),
}

#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
pub struct Progress {
    pub acquires: u64,
    pub waiting: u64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Log {
    pub group: Option<String>,
    pub turns: Vec<Turn>,
    pub lost: u64,
}

/// The times of one permit: its request, its grant, and the moment before its release. Field names
/// are omitted in JSON, because a run may have a million cycles.
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
