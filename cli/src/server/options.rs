//! The server options. All commands except `completions` and `man` have them.
//! `Options::declared` adds the settings that all of them share.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::BoolishValueParser;

use crate::duration::duration;

/// How to reach the server, and how to authenticate.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Server")]
pub struct Server {
    /// Redis URL: redis://HOST:PORT/DB, rediss:// for TLS, or redis+unix:///PATH. A comma-separated
    /// list names a primary and its replicas, cluster nodes (--cluster) or sentinels (--sentinel).
    /// Only the environment variable may contain a password
    #[arg(long, env = "REDIS_URL", value_delimiter = ',', default_value = "redis://127.0.0.1/")]
    pub url: Vec<String>,
    /// User name, if the URL has none
    #[arg(
        long,
        env = "REDIS_USER",
        value_parser = clap::builder::NonEmptyStringValueParser::new()
    )]
    pub user: Option<String>,
    /// Read the password from this file before each connection, so that it can be rotated.
    /// Alternatively, set REDIS_PASSWORD
    #[arg(long, env = "REDIS_PASSWORD_FILE", value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// The URLs are cluster nodes
    #[arg(
        long,
        env = "REDIS_CLUSTER",
        value_parser = BoolishValueParser::new()
    )]
    pub cluster: bool,
    /// The URLs are sentinels that know the primary of this service
    #[arg(long, env = "REDIS_SENTINEL", value_name = "SERVICE")]
    pub sentinel: Option<String>,
    /// CA certificates that may have signed the server's certificate, in PEM [default: those of the
    /// system]
    #[cfg(feature = "tls")]
    #[arg(long, env = "REDIS_TLS_CA", value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// Certificate of this client, in PEM
    #[cfg(feature = "tls")]
    #[arg(long, env = "REDIS_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Key of that certificate, in PEM
    #[cfg(feature = "tls")]
    #[arg(long, env = "REDIS_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Prefix of all keys
    #[arg(long, env = "REDIS_SEMAPHORE_PREFIX", default_value = "sem")]
    pub prefix: String,
    /// Timeout for each reply of the server
    #[arg(
        long,
        env = "REDIS_SEMAPHORE_RESPONSE_TIMEOUT",
        default_value = "2s",
        value_name = "DURATION",
        value_parser = duration
    )]
    pub response_timeout: Duration,
}
