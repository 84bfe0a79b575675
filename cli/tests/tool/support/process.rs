use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use test_support::observer::until;

/// A process of one test, which ends with the test.
pub struct Process(pub Child);

impl Process {
    pub fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id() as i32), signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The test may have ended the process already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns whether a process has a handler for this signal.
pub fn catches(process: i32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.map_or(0, |mask| u64::from_str_radix(mask.trim(), 16).unwrap());
    caught & 1 << (signal as u32 - 1) != 0
}

/// Opens a FIFO when another process reads it.
pub fn writer_of(fifo: &Path) -> File {
    let mut options = OpenOptions::new();
    let options = options.write(true).custom_flags(nix::libc::O_NONBLOCK);
    let mut writer = None;
    until("another process reads the FIFO", || {
        writer = options.open(fifo).ok();
        writer.is_some()
    });
    writer.unwrap()
}
