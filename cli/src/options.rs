//! What may be asked for on the command line, and in the environment.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

#[cfg(feature = "exporter")]
use crate::exporter::options::Exporter;
use crate::load::options::Load;

const STATUS: &str = "\
Exit status (`run` has more of them, see there):
  0   done
  1   done, and the answer is no: see the command
  2   an option is wrong
  69  Redis cannot be reached or used, or gave no answer
  74  the output could not be written";

/// Limits how many commands run at once, on any number of machines, through Redis
#[derive(Debug, Parser)]
#[command(name = "redis-semaphore", version, after_help = STATUS)]
pub struct Options {
    #[command(flatten)]
    pub server: Server,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Look at the server for what endangers semaphores: each check, and what mends it
    Doctor(Doctor),
    /// Serve metrics for Prometheus: how full the semaphores are, and how long somebody waits
    #[cfg(feature = "exporter")]
    Exporter(Exporter),
    /// See six processes share a semaphore, one of which is killed: it takes ten seconds
    Demo(Demo),
    /// Measure what a semaphore does under load
    Load(Load),
    /// Print what makes a shell complete this tool's options
    Completions(Completions),
    /// Print the manual page, in roff
    Man,
}

/// Where the server is, and how to get in. The same for all commands.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Server")]
pub struct Server {
    /// One server, several nodes of a cluster or several sentinels, separated by commas:
    /// redis://HOST:PORT/DB, rediss:// for TLS, redis+unix:///PATH. Only in the environment may it
    /// have a password in it
    #[arg(
        long,
        global = true,
        env = "REDIS_URL",
        hide_env_values = true,
        value_delimiter = ',',
        default_value = "redis://127.0.0.1/"
    )]
    pub url: Vec<String>,
    /// The user of the server
    #[arg(long, global = true, env = "REDIS_USER")]
    pub user: Option<String>,
    /// A file with the password; another way is REDIS_PASSWORD in the environment. It is read
    /// before each connection, so it may change
    #[arg(long, global = true, env = "REDIS_PASSWORD_FILE", value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// The URLs are nodes of a cluster
    #[arg(long, global = true, env = "REDIS_CLUSTER", conflicts_with = "sentinel")]
    pub cluster: bool,
    /// The URLs are sentinels, which know where the primary of this service is
    #[arg(long, global = true, env = "REDIS_SENTINEL", value_name = "SERVICE")]
    pub sentinel: Option<String>,
    /// The authorities that may have signed the server's certificate, in PEM [default: those that
    /// the system trusts]
    #[cfg(feature = "tls")]
    #[arg(long, global = true, env = "REDIS_TLS_CA", value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// A certificate for this client, in PEM
    #[cfg(feature = "tls")]
    #[arg(long, global = true, env = "REDIS_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The key of that certificate, in PEM
    #[cfg(feature = "tls")]
    #[arg(long, global = true, env = "REDIS_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// What the keys of all semaphores begin with
    #[arg(long, global = true, env = "REDIS_SEMAPHORE_PREFIX", default_value = "sem")]
    pub prefix: String,
    /// How long an answer of the server may take
    #[arg(
        long,
        global = true,
        env = "REDIS_SEMAPHORE_RESPONSE_TIMEOUT",
        default_value = "2s",
        value_name = "DURATION",
        value_parser = humantime::parse_duration
    )]
    pub response_timeout: Duration,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 no danger, 1 there is a danger, others as for all commands."
)]
pub struct Doctor {
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 all that was promised was seen, 1 it was not, others as for \
                        all commands."
)]
pub struct Demo {
    #[arg(long, num_args = 2, hide = true)]
    pub worker: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Completions {
    pub shell: clap_complete::Shell,
}
