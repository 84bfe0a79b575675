//! The arguments of `exporter`.

use std::time::Duration;

use clap::Args;

use crate::duration::{WEEK, duration_within};
use crate::number::number;
use crate::pattern::{self, Pattern};

const NOTES: &str = "\
Each scrape of /metrics reads the semaphores under the prefix; simultaneous scrapes share one \
read. There is no authentication: \
the address exposes the names of all semaphores. A read-only user of the server is sufficient. \
docs/metrics.md lists the metrics.

While Redis is unavailable, redis_semaphore_up is 0.

Exit status: 0 if SIGTERM, SIGHUP or Ctrl-C ended it.";

#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub struct Exporter {
    /// Address to listen on; :10379 means all addresses
    #[arg(
        long,
        default_value = "127.0.0.1:10379",
        value_name = "HOST:PORT",
        value_parser = address
    )]
    pub listen: String,
    #[arg(long, value_name = "PATTERN", help = pattern::HELP)]
    pub only: Option<Pattern>,
    /// Maximum number of semaphores to read, the first by name; redis_semaphore_omitted counts the
    /// others
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = number(0..=u32::MAX))]
    pub max_semaphores: u32,
    /// How long reading all semaphores may take; use less than Prometheus's scrape_timeout (10s by
    /// default)
    #[arg(
        long,
        default_value = "8s",
        value_name = "DURATION",
        value_parser = duration_within(Duration::from_millis(50), WEEK)
    )]
    pub timeout: Duration,
}

/// Parses an address. As in Go programs, an address without a host means all addresses.
fn address(text: &str) -> Result<String, String> {
    const LOOK: &str = "write HOST:PORT, such as 127.0.0.1:10379, or :10379 to listen everywhere";
    let is_port =
        |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    match text.rsplit_once(':') {
        None if is_port(text) => {
            Err(format!("the host is missing: write 127.0.0.1:{text} for this machine, or :{text}"))
        }
        None => Err(format!("the port is missing: {LOOK}")),
        Some((_, port)) if !is_port(port) => Err(format!("a port is 0 to 65535: {LOOK}")),
        Some((host, port))
            if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) =>
        {
            Err(format!("write an IPv6 address in brackets, as in [::1]:{port}"))
        }
        Some(_) => Ok(text.to_owned()),
    }
}
