//! The process that waits in a handoff. It runs this program, too. A line on its standard input
//! starts a wait. The process prints a line before the wait, and the time of the grant after the
//! wait.

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use super::ends::Ends;
use super::moment;
use crate::support::Result;
use crate::support::runner::Runner;

/// Environment variables contain the parameters of the other process. The process cannot get
/// arguments, because criterion reads them.
const DESIGN: &str = "BENCH_HAND_OFF_DESIGN";
const NAME: &str = "BENCH_HAND_OFF_NAME";

/// The other process, as the measuring process sees it.
pub struct Partner {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Partner {
    pub fn start<E: Ends>(name: &str) -> Result<Self> {
        let mut child = Command::new(env::current_exe()?)
            .env(DESIGN, E::NAME)
            .env(NAME, name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().ok_or("it has no output")?);
        Ok(Self { child, input, output })
    }

    /// Starts a wait in the other process, and returns when the wait begins.
    pub fn asks(&mut self) -> Result<()> {
        writeln!(self.input.as_ref().ok_or("it has no input")?)?;
        self.line().map(drop)
    }

    pub fn received(&mut self) -> Result<Duration> {
        moment::read(&self.line()?)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.output.read_line(&mut line)? {
            0 => Err("the other process has ended".into()),
            _ => Ok(line),
        }
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        drop(self.input.take()); // This ends the other process.
        let _ = self.child.wait();
    }
}

/// Returns the design and the semaphore's name, if this is the other process.
pub fn role() -> Option<(String, String)> {
    Some((env::var(DESIGN).ok()?, env::var(NAME).ok()?))
}

/// Serves as the other process until its input ends.
pub fn serve<E: Ends>(runner: &Runner, name: &str) -> Result<()> {
    let here = Arc::new(Mutex::new(runner.run(E::open(name))));
    for line in io::stdin().lines() {
        line?;
        runner.run(async { here.lock().await.get_ready().await });
        println!("asks");
        let here = here.clone();
        // The wait runs in a task, as in a program.
        let receive =
            async { tokio::spawn(async move { here.lock().await.receive().await }).await? };
        println!("{}", moment::write(runner.run(receive)));
    }
    Ok(())
}
