//! The arguments.

use std::time::Duration;

use clap::Args;

use crate::duration::{WEEK, duration};
use crate::number::number;
use crate::pattern::{self, Pattern};

const ABOUT: &str = "\
Serves /metrics in the text format of Prometheus. At each scrape it looks for all semaphores under \
the prefix, and at each of them.

Nobody is asked for a password: whoever reaches the address reads the names of the semaphores. So it \
listens on this machine only by default.";

const RESULTS: &str = "\
A user of the server who may only look is enough: docs/protocol.md has the rules. Of them +scan, and \
in a cluster +cluster|nodes, are for the names, and +dbsize is for redis_semaphore_keys alone. \
docs/operations.md lists the metrics; docs/alerts.yml and docs/grafana.json use them.

It runs until it is told to end (SIGTERM, SIGHUP, or Ctrl-C). While Redis is away it goes on, and says \
redis_semaphore_up 0.

Exit status: 0 told to end, others as for all commands.";

#[derive(Debug, Args)]
#[command(long_about = ABOUT, after_help = RESULTS)]
pub struct Exporter {
    /// Where to listen: :10379 is everywhere
    #[arg(
        long,
        default_value = "127.0.0.1:10379",
        value_name = "HOST:PORT",
        value_parser = address
    )]
    pub listen: String,
    #[arg(long, value_name = "PATTERN", help = pattern::HELP)]
    pub only: Option<Pattern>,
    /// The most semaphores to look at, the first by name: each is some series in Prometheus.
    /// redis_semaphore_omitted says how many there are more
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = number(0..=u32::MAX))]
    pub max_semaphores: u32,
    /// How long a look at all of them may take. Let it be less than Prometheus' scrape_timeout,
    /// which is 10s by default
    #[arg(
        long,
        default_value = "8s",
        value_name = "DURATION",
        value_parser = duration(Duration::from_millis(50), WEEK)
    )]
    pub timeout: Duration,
}

/// As programs in Go take it: without a host it is everywhere.
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
            Err(format!("an IPv6 address stands in brackets, as in [::1]:{port}"))
        }
        Some(_) => Ok(text.to_owned()),
    }
}
