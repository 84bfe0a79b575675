//! The arguments, and what is wrong with them.

use std::time::Duration;

use clap::Args;
use clap::builder::ArgPredicate;
use serde::{Serialize, Serializer};

use crate::duration::{WEEK, duration};
use crate::failure::Failure;
use crate::number::number;
use crate::table::millis;

const ABOUT: &str = "\
Measures what a semaphore does under load, on a real Redis server.

Every task acquires, holds and releases, again and again, until the time is over. All tasks of all \
processes share one semaphore. A task that still waits in the end gives up, which is not counted. \
Ctrl-C ends the run early: the results are for the time until then.";

const RESULTS: &str = "\
Results (names as with --json; the options are repeated there, too, durations as hold_us, lease_ms
and duration_ms):
  elapsed_seconds        the time that was measured
  acquires               permits that were granted in this time
  per_second             acquires / elapsed_seconds
  ideal_per_second       what the limit allows: permits that fit it at once (not more than there
                         are tasks) / mean time for which a permit really was held; null if no
                         hold ended in time, and of no use with --hold 0s
  utilisation            mean weight held / limit; 1 is never reached, as a permit on its way from
                         one to the next is held by nobody
  wait_us                from asking for a permit to having it, in microseconds
  turns                  permits that one task got, the least and the most: how fair it is
  calls_per_acquire      calls of scripts that the server counted / acquires
  server_us_per_acquire  the server's time in these calls, in microseconds / acquires
                         (both with the waits that were given up in the end, and with what other
                         clients did meanwhile; null if the user may not call INFO, and with a
                         cluster, sentinels or several URLs)
  max_held               the largest weight that was held at once, by the holders' own clocks
  lost                   permits that were lost before they were released

Exit status: 0 measured, 1 measured, and more than the limit was held at once, others as for all \
commands (69 also when a process died).";

/// Each takes some kB in the process that it is in.
const MAX_TASKS: u32 = 1_000_000;
/// To measure.
const SHORTEST: Duration = Duration::from_millis(100);

#[derive(Debug, Args, Serialize)]
#[command(long_about = ABOUT, after_help = RESULTS)]
pub struct Load {
    /// How much may be held at once. With --name this declares it for everybody [default: 10; with
    /// --name the limit in force]
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
    /// Tasks in all, spread evenly over the processes
    #[arg(long, default_value_t = 100, value_parser = number(1..=MAX_TASKS))]
    pub tasks: u32,
    /// Processes, each with connections of its own
    #[arg(long, default_value_t = 1, value_parser = number(1..=1000))]
    pub processes: u32,
    /// How long a permit is held: up to 7days; 0s: not at all
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "5ms",
        value_parser = duration(Duration::ZERO, WEEK)
    )]
    #[serde(rename = "hold_us", serialize_with = "as_micros")]
    pub hold: Duration,
    /// For how long a permit is held without renewal
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10s",
        value_parser = humantime::parse_duration
    )]
    #[serde(rename = "lease_ms", serialize_with = "as_millis")]
    pub lease: Duration,
    /// How long to measure: 100ms to 7days
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10s",
        value_parser = duration(SHORTEST, WEEK)
    )]
    #[serde(rename = "duration_ms", serialize_with = "as_millis")]
    pub duration: Duration,
    /// How much of the limit a permit takes
    #[arg(long, default_value_t = 1, value_parser = number(1..=u32::MAX))]
    pub weight: u32,
    /// The name of the semaphore [default: one that nothing else uses]
    #[arg(long, default_value_t = unique_name(), hide_default_value = true)]
    pub name: String,
    /// Print the results as one JSON object
    #[arg(long)]
    #[serde(skip)]
    pub json: bool,
}

impl Load {
    /// What clap cannot see.
    pub fn check(&self) -> Result<(), Failure> {
        let Self { tasks, processes, .. } = self;
        if let Some(limit) = self.limit {
            self.check_weight(limit)?;
        }
        if tasks < processes {
            return Err(Failure::usage(format!(
                "--tasks {tasks} leaves some of --processes {processes} without any"
            )));
        }
        Ok(())
    }

    pub fn check_weight(&self, limit: u32) -> Result<(), Failure> {
        let weight = self.weight;
        if weight <= limit {
            return Ok(());
        }
        Err(Failure::usage(format!("--weight {weight} can never fit a limit of {limit}")))
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
