//! The server's time for an acquire/release cycle without contention: this crate's semaphore beside
//! Redisson's RPermitExpirableSemaphore. Both clients call their scripts as in a real program.
//!
//! ```text
//! benches/peers/redisson/run
//! ```

#[path = "../support/mod.rs"]
mod support;

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use redis_semaphore::Semaphore;
use support::Result;
use support::open_files::allow_as_many_as_possible;
use support::rounds::{Rounds, rounds_of};
use support::server::{Server, semaphores, unique_name, url};
use tokio::task::JoinSet;

const ROUNDS: usize = 9;
/// The number of concurrent cycles.
const TASKS: usize = 200;
/// The number of cycles of each task in a round.
const PAIRS: usize = 50;
const LIMIT: u32 = 1_000_000;

#[tokio::main]
async fn main() -> Result<()> {
    let Ok(class_path) = env::var("REDISSON_CLASS_PATH") else {
        println!("Redisson was not measured: run benches/peers/redisson/run");
        return Ok(());
    };
    allow_as_many_as_possible()?;
    let name = unique_name("redisson");
    let mut redisson = Redisson::start(&class_path, &name)?;
    let gathering = vec![semaphores().await?.semaphore(&*name).limit(LIMIT).build()?; TASKS];
    // Each task has its own client, like a separate process, so requests are not batched.
    let mut alone = Vec::new();
    for _ in 0..TASKS {
        alone.push(semaphores().await?.semaphore(&*name).limit(LIMIT).build()?);
    }
    let mut server = Server::connect()?;
    let (mut alone_rounds, mut gathering_rounds) = (Rounds::default(), Rounds::default());
    // The first round is a warm-up.
    for round in 0..=rounds_of(ROUNDS) {
        let mut spent = vec![server.scripts()?.usec];
        redisson.pairs()?;
        spent.push(server.scripts()?.usec);
        pairs(&alone).await?;
        spent.push(server.scripts()?.usec);
        pairs(&gathering).await?;
        spent.push(server.scripts()?.usec);
        if round > 0 {
            let a_pair = |turn| (spent[turn + 1] - spent[turn]) as f64 / (TASKS * PAIRS) as f64;
            alone_rounds.add(a_pair(0), a_pair(1));
            gathering_rounds.add(a_pair(0), a_pair(2));
        }
    }
    println!("{:<36} {:>10} {:>10}", "server time of a pair", "us", "x Redisson");
    println!("{:<36} {:>10.1} {:>10.2}", "Redisson", alone_rounds.medians().0.0, 1.0);
    for (what, rounds) in [
        ("this crate, a request in a call", alone_rounds),
        ("this crate, what gathered in a call", gathering_rounds),
    ] {
        let ((_, ours), ratio) = rounds.medians();
        println!("{what:<36} {ours:>10.1} {ratio:>10.2}");
    }
    redisson.end()
}

/// Runs the cycles of each semaphore in its own task.
async fn pairs(semaphores: &[Semaphore]) -> Result<()> {
    let tasks: JoinSet<_> = semaphores.iter().cloned().map(take).collect();
    tasks.join_all().await.into_iter().collect()
}

async fn take(semaphore: Semaphore) -> Result<()> {
    for _ in 0..PAIRS {
        semaphore.acquire().await?.release().await?;
    }
    Ok(())
}

/// The Java program, which runs a round for each line of its input.
struct Redisson {
    program: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Redisson {
    fn start(class_path: &str, name: &str) -> Result<Self> {
        let mut program = Command::new("java")
            .args(["-Dslf4j.internal.verbosity=ERROR", "-cp", class_path, "Pairs", &url()?, name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = program.stdin.take().ok_or("it has no input")?;
        let output = BufReader::new(program.stdout.take().ok_or("it has no output")?);
        Ok(Self { program, input, output })
    }

    fn pairs(&mut self) -> Result<()> {
        writeln!(self.input, "{TASKS} {PAIRS}")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line == "done\n" { Ok(()) } else { Err(format!("Redisson answered {line:?}").into()) }
    }

    /// Closes the input of the Java program, which then ends.
    fn end(self) -> Result<()> {
        let Self { mut program, input, .. } = self;
        drop(input);
        let status = program.wait()?;
        if status.success() { Ok(()) } else { Err(format!("Redisson ended with {status}").into()) }
    }
}
