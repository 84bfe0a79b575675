//! What a connection logs in with. Each new one asks for it anew: passwords change.

use std::error::Error as StdError;
use std::fmt;

use futures_util::future::BoxFuture;
use redis::RedisConnectionInfo;

/// A password, and whose it is. From what was given to
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
    /// A password of the user that the URL has, or else of the default user.
    ///
    /// # Examples
    ///
    /// See [`Credentials`].
    pub fn new(password: impl Into<String>) -> Self {
        Self { username: None, password: password.into() }
    }

    /// The user, where it is neither that of the URL nor, if that has none, the default one.
    ///
    /// # Examples
    ///
    /// See [`Credentials`].
    pub fn username(mut self, username: impl Into<String>) -> Self {
        self.username = Some(username.into());
        self
    }

    /// Joined with the user that the URL has, if it has one: that may be no other.
    pub(crate) fn apply_to(
        self,
        settings: RedisConnectionInfo,
    ) -> Result<RedisConnectionInfo, String> {
        let settings = settings.set_password(self.password);
        match (self.username, settings.username()) {
            (Some(user), Some(other)) if user != other => {
                Err(format!("it tells the user {user:?}, and the URL has {other:?}: leave one out"))
            }
            (Some(user), _) => Ok(settings.set_username(user)),
            (None, _) => Ok(settings),
        }
    }
}

/// Who logs in, in words. A user without a password is not named, as it may be a password that
/// lacks its colon.
pub(crate) fn who(settings: &RedisConnectionInfo) -> String {
    match (settings.username(), settings.password()) {
        (Some(_), None | Some("")) => "the user of the URL without a password".to_owned(),
        (Some(user), Some(_)) => format!("the user {user:?} with this password"),
        (None, _) => "the default user with this password".to_owned(),
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
