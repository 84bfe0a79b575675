use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use redis::Connection;

/// The time by which a server's clock may be ahead of the time that was set, in µs.
pub const CLOCK_LEAD: std::ops::Range<i64> = 0..10_000;

use super::preload::build_library;

/// The library that moves a server's clock, built once for all tests of this run.
static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| build_library("tests/support/clock.c"));

/// The wall clock of one server, which the test moves.
pub struct Clock {
    file: File,
    path: PathBuf,
}

impl Clock {
    pub fn create(folder: &Path) -> Self {
        let path = folder.join("clock");
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        file.write_all_at(&[0; 16], 0).unwrap();
        Self { file, path }
    }

    pub fn preload(&self, server: &mut Command) {
        server.env("LD_PRELOAD", LIBRARY.as_path()).env("TEST_CLOCK", &self.path);
    }

    pub fn freeze_at(&self, us: i64) {
        self.file.write_all_at(&us.to_ne_bytes(), 0).unwrap();
    }

    /// Freezes the clock at this time, and waits until the server has noticed.
    pub fn freeze_seen_at(&self, us: i64, connection: &mut Connection) {
        self.freeze_at(us);
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let (seconds, micros): (i64, i64) = redis::cmd("TIME").query(connection).unwrap();
            if CLOCK_LEAD.contains(&(seconds * 1_000_000 + micros - us)) {
                return;
            }
            assert!(Instant::now() < deadline, "the server does not read its clock");
        }
    }

    /// Runs the clock ahead of the machine's clock by this amount.
    pub fn run_ahead_by(&self, us: i64) {
        self.file.write_all_at(&us.to_ne_bytes(), 8).unwrap();
    }
}
