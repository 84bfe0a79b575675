//! A shell with its own terminal, like a user's shell.

use std::fs::File;
use std::io::{Read, Write};
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::thread;

use nix::pty::openpty;

use super::tool::DEFAULT_SIGNALS;
use crate::support::eventually;
use crate::support::tool::{TOOL, unaware};

pub struct Shell {
    child: Child,
    terminal: File,
    shown: Arc<Mutex<String>>,
    /// The length of the text that was checked.
    seen: usize,
}

impl Shell {
    /// Starts an interactive shell, in which `$TOOL` is the CLI.
    pub fn start(url: &str) -> Self {
        let pair = openpty(None, None).unwrap();
        let slave = || pair.slave.try_clone().unwrap();
        let child = unaware("env")
            .args([DEFAULT_SIGNALS, "setsid", "--ctty", "bash", "--norc", "--noprofile", "-i"])
            .env("REDIS_URL", url)
            .env("TOOL", TOOL)
            .env("PS1", "$ ")
            .env("TERM", "dumb")
            .env_remove("PROMPT_COMMAND")
            .stdin(slave())
            .stdout(slave())
            .stderr(slave())
            .spawn()
            .unwrap();
        let terminal = File::from(pair.master);
        let shown = Arc::<Mutex<String>>::default();
        let (mut output, copy) = (terminal.try_clone().unwrap(), shown.clone());
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Reading fails when the shell has ended.
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                copy.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        let mut shell = Self { child, terminal, shown, seen: 0 };
        // Otherwise, `sees` would find the echoed input.
        shell.enter("stty -echo; echo beg''in");
        shell.sees("begin");
        shell
    }

    pub fn enter(&mut self, line: &str) {
        self.press(&format!("{line}\n"));
    }

    pub fn press(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until this text is shown, after the text that was checked before.
    pub fn sees(&mut self, text: &str) {
        let shown = self.shown.clone();
        let seen = self.seen;
        let found = std::panic::catch_unwind(|| {
            eventually(text, || {
                let shown = shown.lock().unwrap();
                shown[seen..].find(text).map(|at| seen + at + text.len())
            })
        });
        self.seen = found.unwrap_or_else(|_| {
            panic!("{text:?} was not shown:\n{}", &self.shown.lock().unwrap()[seen..])
        });
    }

    pub fn has_shown(&self, text: &str) -> bool {
        self.shown.lock().unwrap().contains(text)
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
