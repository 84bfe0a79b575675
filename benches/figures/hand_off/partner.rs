//! The process that waits in a handoff. It runs this program, too. A line on its standard input
//! starts a wait. The process prints a line before the wait, and the time of the grant after the
//! wait.

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use super::pair::now;
use crate::support::Result;
use crate::support::design::Design;
use crate::support::runner::Runner;

/// The other process runs the same program. It gets its parameters in these environment variables,
/// because the command-line arguments are for users.
const DESIGN: &str = "BENCH_HAND_OFF_DESIGN";
const NAME: &str = "BENCH_HAND_OFF_NAME";

/// The other process, as the measuring process sees it.
pub struct Partner {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Partner {
    pub fn start(design: &str, name: &str) -> Result<Self> {
        let mut child = Command::new(env::current_exe()?)
            .env(DESIGN, design)
            .env(NAME, name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = BufReader::new(child.stdout.take().ok_or("it has no output")?);
        Ok(Self { child, output })
    }

    /// Starts a wait in the other process. Returns the next line of the other process, which is
    /// printed when the wait begins.
    pub fn asks(&mut self) -> Result<String> {
        writeln!(self.child.stdin.as_ref().ok_or("it has no input")?)?;
        self.line()
    }

    pub fn received(&mut self) -> Result<Duration> {
        Ok(Duration::from_nanos(self.line()?.trim().parse()?))
    }

    pub fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.output.read_line(&mut line)? {
            0 => Err("the other process has ended".into()),
            _ => Ok(line),
        }
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        // Closes the input of the other process, which then ends.
        let _ = self.child.wait();
    }
}

/// Returns the design and the semaphore's name, or `None` in the measuring process.
pub fn role() -> Option<(String, String)> {
    Some((env::var(DESIGN).ok()?, env::var(NAME).ok()?))
}

/// Serves as the other process until its input ends.
pub fn serve<D: Design>(name: &str) -> Result<()> {
    let runner = Runner::new()?;
    let here = Arc::new(Mutex::new(runner.run(D::open(name, 1))));
    for line in io::stdin().lines() {
        line?;
        println!("asks");
        // The wait runs in a task, as in a program.
        let wait = async { tokio::spawn(wait(here.clone())).await? };
        println!("{}", runner.run(wait).as_nanos());
    }
    Ok(())
}

/// Waits for a permit, and releases it. Returns the time of the grant.
async fn wait<D: Design>(here: Arc<Mutex<D>>) -> Result<Duration> {
    let mut here = here.lock().await;
    let permit = here.acquire().await?;
    let granted = now()?;
    here.release(permit).await?;
    Ok(granted)
}
