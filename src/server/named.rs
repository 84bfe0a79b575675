//! What may name a server: the library and the tool take the same.

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

use super::url::{Wrong, read};
use crate::error::Error;

/// What says where a server is, and who connects: a URL, or what redis-rs has for that.
///
/// A URL is `redis://user:password@host:6379/3`, with `rediss://` for TLS, or
/// `redis+unix:///path/of/socket?db=3&user=name&pass=secret`. `valkey` may stand for `redis`, one
/// slash of a socket for three, and `unix` for `redis+unix`. An IPv6 address stands in brackets.
/// Behind `?` `protocol=3` asks for that version of the protocol. Special characters are written as
/// in all URLs (`%40` for @). A user without a password logs in with an empty one. Whatever else is
/// written is an error: nothing of a URL is passed over.
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
    /// Where the server is, and who connects.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] where it cannot be read, or says what nothing here takes. The text
    /// repeats nothing that may be a password.
    ///
    /// # Examples
    ///
    /// See [`IntoServer`].
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
        Ok(self)
    }
}

impl IntoServer for ConnectionAddr {
    fn into_server(self) -> Result<ConnectionInfo, Error> {
        Ok(self.into_connection_info()?)
    }
}

impl<T: Into<String>> IntoServer for (T, u16) {
    fn into_server(self) -> Result<ConnectionInfo, Error> {
        Ok(self.into_connection_info()?)
    }
}

/// The same, where an error is about something that has another name.
pub(crate) fn server_of(
    what: &'static str,
    server: impl IntoServer,
) -> Result<ConnectionInfo, Error> {
    server.into_server().map_err(|error| match error {
        Error::Invalid { reason, .. } => Error::invalid(what, reason),
        other => other,
    })
}

/// What one of them says of user, password, database or TLS holds for all. What another one says
/// instead would be passed over.
pub(crate) fn check_all_alike(what: &'static str, servers: &[ConnectionInfo]) -> Result<(), Error> {
    let Some(first) = servers.first() else { return Ok(()) };
    let (settings, is_tls) = (first.redis_settings(), is_tls(first.addr()));
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
        } else {
            None
        }
    };
    servers.iter().find_map(differs).map_or(Ok(()), |difference| {
        let reason = format!(
            "{difference} must be the same in all of them: what the first says holds for all nodes, \
             and another one says something else"
        );
        Err(Error::invalid(what, reason))
    })
}

pub(crate) fn is_tls(address: &ConnectionAddr) -> bool {
    matches!(address, ConnectionAddr::TcpTls { .. })
}
