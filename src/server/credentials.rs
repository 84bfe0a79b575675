//! The credentials of a connection. If the program has a credentials provider, each new connection
//! calls the provider again, because passwords change.

use std::error::Error as StdError;
use std::fmt;

use futures_util::future::BoxFuture;
use redis::{RedisConnectionInfo, RedisError};

use crate::error::{of_redis, server_error};

/// A password and its user. Returned by the provider of
/// [`SemaphoreClientBuilder::credentials_provider`](crate::SemaphoreClientBuilder::credentials_provider).
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
    /// Creates credentials for the user of the URL, or for the default user if the URL has none.
    pub fn new(password: impl Into<String>) -> Self {
        Self { username: None, password: password.into() }
    }

    /// Sets the user. Default: the user of the URL, or the default user. If the URL has a user, the
    /// two users must be the same.
    pub fn username(mut self, username: impl Into<String>) -> Self {
        self.username = Some(username.into());
        self
    }

    /// Adds the credentials to the settings. Fails if the settings contain a different user.
    pub(crate) fn apply_to(
        self,
        settings: RedisConnectionInfo,
    ) -> Result<RedisConnectionInfo, String> {
        let settings = settings.set_password(self.password);
        match (self.username, settings.username()) {
            (Some(user), Some(other)) if user != other => Err(format!(
                "the provider returned the user {user:?}, but the URL names {other:?}: remove one \
                 of the two"
            )),
            (Some(user), _) => Ok(settings.set_username(user)),
            (None, _) => Ok(settings),
        }
    }
}

/// Describes the user for messages. A user without a password is not named, because the name may be
/// a password: in a URL that lacks the colon before the password, the password looks like a user.
pub(crate) fn who(settings: &RedisConnectionInfo) -> String {
    match (settings.username(), settings.password()) {
        (Some(_), None | Some("")) => "the user of the URL without a password".to_owned(),
        (Some(user), Some(_)) => format!("the user {user:?} with this password"),
        (None, _) => "the default user with this password".to_owned(),
    }
}

/// Returns the error of a login. If it is not a known error of Redis, it may quote the login, so it
/// is returned without the password.
pub(crate) fn without_password(error: RedisError, settings: &RedisConnectionInfo) -> RedisError {
    let Some(code) = error.code() else { return error };
    // If a URL lacks the colon before the password, the password counts as the user.
    let login = [settings.password(), settings.username()];
    let Some(secret) = login.into_iter().flatten().find(|part| !part.is_empty()) else {
        return error;
    };
    let line = format!("-{code} {}", error.detail().unwrap_or_default());
    // Redis quotes the arguments of an unknown command, and shortens them.
    let shown = line.split(", with args").next().unwrap_or_default().replace(secret, "***");
    match shown == line || of_redis(&error).is_some() {
        true => error,
        false => server_error(&shown).unwrap_or(error),
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}

pub(crate) type BoxError = Box<dyn StdError + Send + Sync>;

/// A function that returns the credentials. It is called before each connection is made.
pub(crate) type Provider =
    dyn Fn() -> BoxFuture<'static, Result<Credentials, BoxError>> + Send + Sync;
