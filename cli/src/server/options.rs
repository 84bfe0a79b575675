//! The options of all commands.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::BoolishValueParser;

/// Where the server is, and how to get in. The same for all commands.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Server")]
pub struct Server {
    /// Where the server is: redis://HOST:PORT/DB, rediss:// for TLS, redis+unix:///PATH. Several,
    /// separated by commas, are a primary and its replicas, or what --cluster or --sentinel says.
    /// Only in the environment may it have a password in it
    #[arg(
        long,
        global = true,
        env = "REDIS_URL",
        hide_env_values = true,
        value_delimiter = ',',
        default_value = "redis://127.0.0.1/"
    )]
    pub url: Vec<String>,
    /// The user of the server, where the URL has none
    #[arg(
        long,
        global = true,
        env = "REDIS_USER",
        value_parser = clap::builder::NonEmptyStringValueParser::new()
    )]
    pub user: Option<String>,
    /// A file with the password, of the user of the URL or of --user; another way is
    /// REDIS_PASSWORD in the environment. It is read before each connection, so it may change; a
    /// FIFO, such as <(command), is read once
    #[arg(long, global = true, env = "REDIS_PASSWORD_FILE", value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// The URLs are nodes of a cluster
    #[arg(long, global = true, env = "REDIS_CLUSTER", value_parser = BoolishValueParser::new())]
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
    /// How long an answer of the server may take. Write this and all other durations like 30s, 5m
    /// or '1h 30m'
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
