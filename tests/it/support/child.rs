//! This test program again, as another process: it runs one test, which the environment tells what
//! to do.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::sync::mpsc;

const ROLE: &str = "REDIS_SEMAPHORE_CHILD_ROLE";
const SAID: &str = "child says ";
const DEADLINE: Duration = Duration::from_secs(60);

pub struct Process {
    child: Child,
    lines: mpsc::UnboundedReceiver<String>,
}

impl Process {
    /// `test` does nothing where it has no [`role`].
    pub fn start(test: &str, role: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(ROLE, role)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = mpsc::unbounded_channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some(said) = line.strip_prefix(SAID) {
                    // The test may be over.
                    let _ = sender.send(said.to_owned());
                }
            }
        });
        Self { child, lines }
    }

    /// What it says next; `None` when it has ended.
    pub async fn next(&mut self) -> Option<String> {
        let line = tokio::time::timeout(DEADLINE, self.lines.recv()).await;
        line.expect("it says something in time, or ends")
    }

    /// At once, whatever it does.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What this process is to do, if it is a child.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Tells the test that started this process.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{SAID}{line}").unwrap();
    out.flush().unwrap();
}
