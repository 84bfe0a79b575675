//! Measures the memory of a long-running process, and the memory of its server, after a tenth of
//! the run and at the end. The bench needs Linux, which reports a process's memory.
//!
//! ```text
//! scripts/with-redis cargo bench --bench endurance                            # 13 minutes
//! scripts/with-redis cargo bench --bench endurance -- pairs --pairs 100000
//! scripts/with-redis cargo bench --bench endurance -- builds --minutes 0.5
//! ```

mod builds;
mod memory;
mod pairs;
#[path = "../support/mod.rs"]
mod support;

use clap::Parser;
use support::Result;
use support::arguments::Arguments;
use support::report::Report;

#[derive(Parser)]
struct Options {
    #[command(flatten)]
    arguments: Arguments,
    /// Number of acquire/release cycles
    #[arg(long, default_value_t = 10_000_000)]
    pairs: u64,
    /// Minutes for which a semaphore is built for each request
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Options { arguments, mut pairs, mut minutes } = Options::parse();
    if arguments.only_tests() {
        (pairs, minutes) = (10_000, 0.01);
    }
    let mut report = Report::default();
    if arguments.wants("endurance pairs") {
        report.add_all(pairs::run(pairs).await?);
    }
    if arguments.wants("endurance builds") {
        report.add_all(builds::run(minutes).await?);
    }
    report.print(arguments.json)
}
