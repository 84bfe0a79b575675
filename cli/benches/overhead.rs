//! Measures the time that `run` adds to a command if a permit is free, on loopback. The benchmark
//! fails if this time exceeds 10 ms.
//!
//! ```text
//! scripts/with-redis cargo bench -p redis-semaphore-cli
//! ```

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

const TOOL: &str = env!("CARGO_BIN_EXE_redis-semaphore");
const MOST: Duration = Duration::from_millis(10);
const TURNS: usize = 200;

fn main() -> ExitCode {
    // With `--test`, this program only checks that the benchmark works. Benchmarks with criterion
    // do the same.
    let measures = std::env::args().all(|argument| argument != "--test");
    let turns = if measures { TURNS } else { 3 };
    let name = format!("bench-{}", uuid::Uuid::new_v4());
    let with_permit = [TOOL, "run", &name, "--limit", "10", "--", "true"];
    let (mut bare, mut held) = (Vec::new(), Vec::new());
    // The two commands alternate, so that a machine that is slow for a while slows down both.
    for _ in 0..turns {
        bare.push(time(&["true"]));
        held.push(time(&with_permit));
    }
    let [(bare, _), (held, slow)] = [bare, held].map(median_and_slow);
    let added = held.saturating_sub(bare);
    println!("bare {bare:.1?}, with a permit {held:.1?} (p95 {slow:.1?}): {added:.1?} more");
    match measures && added > MOST {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

fn time(command: &[&str]) -> Duration {
    let started = Instant::now();
    let status = Command::new(command[0]).args(&command[1..]).status().expect("it starts");
    assert!(status.success(), "{status}");
    started.elapsed()
}

/// Returns the median, and the time that 5 % of the measured times exceed.
fn median_and_slow(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort();
    (times[times.len() / 2], times[times.len() * 95 / 100])
}
