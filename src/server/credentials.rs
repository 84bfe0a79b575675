//! What a connection logs in with. Each new one asks for it anew: passwords change.

use std::error::Error as StdError;
use std::fmt;

use futures_util::future::BoxFuture;
use redis::RedisConnectionInfo;

/// A password, and whose it is. From what was given to
/// [`SemaphoresBuilder::credentials_provider`](crate::SemaphoresBuilder::credentials_provider).
///
/// # Examples
///
/// ```
/// use redis_semaphore::Credentials;
///
/// let credentials = Credentials::new("secret").username("importer");
/// assert!(!format!("{credentials:?}").contains("secret"));
/// ```
#[derive(Clone)]
pub struct Credentials {
    username: Option<String>,
    password: String,
}

impl Credentials {
    /// A password of the default user.
    ///
    /// # Examples
    ///
    /// See [`Credentials`].
    pub fn new(password: impl Into<String>) -> Self {
        Self { username: None, password: password.into() }
    }

    /// The user, where it is not the default one.
    ///
    /// # Examples
    ///
    /// See [`Credentials`].
    pub fn username(mut self, username: impl Into<String>) -> Self {
        self.username = Some(username.into());
        self
    }

    pub(crate) fn apply_to(self, settings: RedisConnectionInfo) -> RedisConnectionInfo {
        let settings = settings.set_password(self.password);
        match (self.username, settings.username()) {
            (Some(username), _) => settings.set_username(username),
            // That of the URL is somebody else.
            (None, Some(_)) => settings.set_username("default"),
            (None, None) => settings,
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}

pub(crate) type BoxError = Box<dyn StdError + Send + Sync>;

/// Asked before each connection.
pub(crate) type Provider =
    dyn Fn() -> BoxFuture<'static, Result<Credentials, BoxError>> + Send + Sync;
