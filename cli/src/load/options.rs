//! The arguments of `load`, and their checks.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use clap::builder::ArgPredicate;
use serde::{Serialize, Serializer};

use crate::duration::{WEEK, duration, duration_within};
use crate::failure::Failure;
use crate::load::groups::{self, LoadGroup};
use crate::number::number;
use crate::table::millis;

const RESULTS: &str = "\
Each task acquires, holds and releases permits of one semaphore until the time is over. Ctrl-C \
ends the run early.

Results (names as with --json):
  elapsed_seconds        measured time
  acquires               permits granted in that time
  per_second             acquires / elapsed_seconds
  ideal_per_second       permits that fit limit and --tasks / mean hold time; null if no hold ended
  utilization            mean weight held / limit; below 1, because each handoff takes time
  wait_us                microseconds from request to grant
  turns                  permits per task, fewest and most
  calls_per_acquire      script calls on the server / acquires
  server_us_per_acquire  microseconds of the server for these calls / acquires
  max_held               largest weight held at one time
  lost                   permits lost before their release
  groups                 for each group: share, cap, acquires, part of all acquires, part by its
                         share (if all groups always wait), wait_us
Server values include other clients. They are null without the right +info, or with several servers.

Exit status: 0 if at most the limit was held, 1 if more was held.";

/// Each task uses several kB of memory in its process.
const MAX_TASKS: u32 = 1_000_000;
const SHORTEST: Duration = Duration::from_millis(100);

#[derive(Debug, Args, Serialize)]
#[command(after_help = RESULTS)]
pub struct Load {
    /// Limit to declare; with --name, for all processes [default: 10; with --name, the effective
    /// limit]
    #[arg(
        long,
        default_value = "10",
        default_value_if("name", ArgPredicate::IsPresent, None),
        hide_default_value = true,
        value_name = "N",
        value_parser = number(1..=u32::MAX)
    )]
    #[serde(skip)]
    pub limit: Option<u32>,
    /// Number of tasks, spread evenly over the processes
    #[arg(long, default_value_t = 100, value_parser = number(1..=MAX_TASKS))]
    pub tasks: u32,
    /// Number of processes, each with its own connections
    #[arg(long, default_value_t = 1, value_parser = number(1..=1000))]
    pub processes: u32,
    /// How long to hold each permit, up to 7days; 0s: not at all
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "5ms",
        value_parser = duration_within(Duration::ZERO, WEEK)
    )]
    #[serde(rename = "hold_us", serialize_with = "as_micros")]
    pub hold: Duration,
    /// How long a permit stays valid without being refreshed
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10s",
        value_parser = duration
    )]
    #[serde(rename = "lease_ms", serialize_with = "as_millis")]
    pub lease: Duration,
    /// How long to measure, 100ms to 7days
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10s",
        value_parser = duration_within(SHORTEST, WEEK)
    )]
    #[serde(rename = "duration_ms", serialize_with = "as_millis")]
    pub duration: Duration,
    /// Weight of each permit
    #[arg(long, default_value_t = 1, value_parser = number(1..=u32::MAX))]
    pub weight: u32,
    /// Groups, to which the tasks belong in turn: NAME, NAME=SHARE or NAME=SHARE:CAP, with commas
    /// between them
    #[arg(long, value_name = "GROUPS", value_delimiter = ',', value_parser = groups::parse)]
    #[serde(skip)]
    pub groups: Vec<LoadGroup>,
    /// Name of the semaphore [default: an unused name]
    #[arg(long, default_value_t = unique_name(), hide_default_value = true)]
    pub name: String,
    /// Print one JSON object
    #[arg(long)]
    #[serde(skip)]
    pub json: bool,
}

impl Load {
    /// Checks what clap cannot check.
    pub fn check(&self) -> Result<(), Failure> {
        let Self { tasks, processes, .. } = self;
        if let Some(limit) = self.limit {
            self.check_weight(limit)?;
        }
        if tasks < processes {
            return Err(Failure::usage(format!(
                "--tasks {tasks} is less than --processes {processes}: give each process at least \
                 one task"
            )));
        }
        let mut names = BTreeSet::new();
        if let Some(twice) = self.groups.iter().find(|group| !names.insert(&group.name)) {
            let name = &twice.name;
            return Err(Failure::usage(format!("--groups: the group {name} is there twice")));
        }
        let too_low =
            self.groups.iter().find(|group| group.cap.is_some_and(|cap| cap < self.weight));
        if let Some(LoadGroup { name, .. }) = too_low {
            let weight = self.weight;
            return Err(Failure::usage(format!(
                "--groups: the cap of {name} is below --weight {weight}: use a larger cap"
            )));
        }
        if (*tasks as usize) < self.groups.len() {
            return Err(Failure::usage(format!(
                "--tasks {tasks} is less than the number of --groups: give each group at least one \
                 task"
            )));
        }
        Ok(())
    }

    pub fn check_weight(&self, limit: u32) -> Result<(), Failure> {
        let weight = self.weight;
        if weight <= limit {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "--weight {weight} exceeds the limit of {limit}: use a smaller weight or a larger limit"
        )))
    }
}

fn as_micros<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(time.as_micros() as u64)
}

fn as_millis<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(millis(*time))
}

fn unique_name() -> String {
    format!("load-{}", uuid::Uuid::new_v4())
}
