//! The memory of this process and of the server, after each tenth of a run.

use std::fs;
use std::time::Duration;

use crate::support::Result;
use crate::support::figure::Figure;
use crate::support::rounds::length_of;
use crate::support::server::Server;

/// In this time, an idle server frees the memory of closed connections.
const REST: Duration = Duration::from_secs(3);
const READINGS: usize = 20;
const BETWEEN_READINGS: Duration = Duration::from_millis(500);
/// The allowed growth of this process from the first tenth to the end, in MB.
const CLIENT_TARGET: f64 = 1.0;
/// The allowed growth of the server, in KB.
const SERVER_TARGET: f64 = 10.0;

/// The readings. Each pair is the memory of this process in MB, and of the server in KB.
pub struct Memory(Vec<(f64, f64)>);

impl Memory {
    pub fn new() -> Result<Self> {
        // The first reading makes the server allocate some memory that it keeps.
        Server::connect()?.kept_memory()?;
        Ok(Self(Vec::new()))
    }

    /// Reads the memory of this process and of the server while nothing else runs.
    pub async fn note(&mut self) -> Result<()> {
        tokio::time::sleep(length_of(REST)).await;
        let client = resident()? / 1e6;
        let server = kept_by_server().await? as f64 / 1e3;
        eprintln!("client {client:.2} MB, server {server:.1} KB");
        self.0.push((client, server));
        Ok(())
    }

    /// Compares the first reading (after a tenth of the run) with the last reading.
    pub fn figures(
        self,
        (client, server): (&'static str, &'static str),
        what: &str,
    ) -> Result<Vec<Figure>> {
        let (Some(first), Some(last)) = (self.0.first(), self.0.last()) else {
            return Err("no memory was noted".into());
        };
        let client =
            Figure::new(client, format!("{what}: client's memory"), "MB", (first.0, last.0));
        let server =
            Figure::new(server, format!("{what}: server's memory"), "KB", (first.1, last.1));
        Ok(vec![
            client.value_at_most(first.0 + CLIENT_TARGET),
            server.value_at_most(first.1 + SERVER_TARGET),
        ])
    }
}

/// Reads until two readings agree, because a server updates its count of buffers with a delay. Each
/// reading uses a new connection, because the buffers of new connections have equal sizes.
async fn kept_by_server() -> Result<u64> {
    let mut last = None;
    for _ in 0..READINGS {
        let kept = Server::connect()?.kept_memory()?;
        if last.replace(kept) == Some(kept) {
            return Ok(kept);
        }
        tokio::time::sleep(length_of(BETWEEN_READINGS)).await;
    }
    Err("the server's memory keeps changing: does another program use the server?".into())
}

/// Returns this process's bytes in memory. The value in /proc/self/status may be several pages off.
fn resident() -> Result<f64> {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup")?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next());
    Ok(kilobytes.ok_or("the system does not report the memory")?.parse::<f64>()? * 1024.0)
}
