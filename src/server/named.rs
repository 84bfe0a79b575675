//! The forms in which a server can be given. The library and the CLI accept the same forms.

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};

use super::url::{Wrong, check_host, read};
use crate::error::Error;

/// The location of a server and the login: a URL, a type of redis-rs, or a pair of host and port.
///
/// A URL has one of these forms:
///
/// - `redis://user:password@host:6379/3`, or `rediss://` for TLS. An IPv6 address is written in
///   brackets.
/// - `redis+unix:///path/of/socket?db=3&user=name&pass=secret`, also with one slash instead of
///   three, or with `unix` instead of `redis+unix`.
///
/// `valkey` is accepted instead of `redis`. `?protocol=3` selects the version of the Redis
/// protocol. Special characters are percent-encoded (`%40` for @). A user without a password logs
/// in with an empty password. Any other part is an error: no part of a URL is ignored.
///
/// # Examples
///
/// ```
/// use redis_semaphore::IntoServer;
///
/// # fn main() -> Result<(), redis_semaphore::Error> {
/// let info = "redis://jobs:s%40crt@[::1]/3".into_server()?;
/// assert_eq!(info.addr().to_string(), "::1:6379");
/// assert_eq!(info.redis_settings().username(), Some("jobs"));
/// assert_eq!(info.redis_settings().password(), Some("s@crt"));
/// assert_eq!(info.redis_settings().db(), 3);
///
/// let refused = "redis://localhost/?db=3".into_server().unwrap_err();
/// assert!(refused.to_string().contains("as in redis://host:6379/3"));
/// # Ok(())
/// # }
/// ```
pub trait IntoServer {
    /// Returns the location of the server and the login.
    ///
    /// # Errors
    ///
    /// - [`Error::Invalid`]: the value is unreadable, or contains an unsupported part. The error's
    ///   text repeats no part that may be a password.
    fn into_server(self) -> Result<ConnectionInfo, Error>;
}

impl IntoServer for &str {
    fn into_server(self) -> Result<ConnectionInfo, Error> {
        read(self).map_err(|Wrong(reason)| Error::invalid("url", reason))
    }
}

impl IntoServer for String {
    fn into_server(self) -> Result<ConnectionInfo, Error> {
        self.as_str().into_server()
    }
}

impl IntoServer for &String {
    fn into_server(self) -> Result<ConnectionInfo, Error> {
        self.as_str().into_server()
    }
}

impl IntoServer for ConnectionInfo {
    fn into_server(self) -> Result<ConnectionInfo, Error> {
        check_host(self.addr()).map_err(|Wrong(reason)| Error::invalid("host", reason))?;
        Ok(self)
    }
}

impl IntoServer for ConnectionAddr {
    fn into_server(self) -> Result<ConnectionInfo, Error> {
        self.into_connection_info()?.into_server()
    }
}

impl<T: Into<String>> IntoServer for (T, u16) {
    fn into_server(self) -> Result<ConnectionInfo, Error> {
        self.into_connection_info()?.into_server()
    }
}

/// Converts a value to a server. An error uses `what` as the name of the value.
pub(crate) fn server_of(
    what: &'static str,
    server: impl IntoServer,
) -> Result<ConnectionInfo, Error> {
    server.into_server().map_err(|error| match error {
        Error::Invalid { reason, .. } => Error::invalid(what, reason),
        other => other,
    })
}

/// Checks that all nodes have the same user, password, database, protocol and TLS setting as the
/// first node. A node may omit all these settings except TLS. A different setting is an error,
/// because the client would otherwise ignore it silently.
pub(crate) fn check_all_alike(what: &'static str, servers: &[ConnectionInfo]) -> Result<(), Error> {
    let Some(first) = servers.first() else { return Ok(()) };
    let (settings, is_tls) = (first.redis_settings(), is_tls(first.addr()));
    let default_protocol = RedisConnectionInfo::default().protocol();
    let differs = |server: &ConnectionInfo| {
        let its = server.redis_settings();
        let is_silent = its.username().is_none() && its.password().is_none();
        let user = (its.username(), its.password());
        if self::is_tls(server.addr()) != is_tls {
            Some("whether TLS is wanted")
        } else if !is_silent && user != (settings.username(), settings.password()) {
            Some("user and password")
        } else if its.db() != 0 && its.db() != settings.db() {
            Some("the database")
        } else if its.protocol() != default_protocol && its.protocol() != settings.protocol() {
            Some("the protocol")
        } else {
            None
        }
    };
    servers.iter().find_map(differs).map_or(Ok(()), |difference| {
        let reason = format!(
            "{difference} must be the same in all URLs: the first URL applies to all nodes, and \
             another one differs"
        );
        Err(Error::invalid(what, reason))
    })
}

pub(crate) fn is_tls(address: &ConnectionAddr) -> bool {
    matches!(address, ConnectionAddr::TcpTls { .. })
}
