//! The results of the doctor for each server.

use std::fmt::{self, Display, Formatter};

use super::{Check, Verdict};

/// The results of all checks of each server. Returned by
/// [`SemaphoreClient::doctor`](crate::SemaphoreClient::doctor).
///
/// `Display` prints a report for people, with a line for each check and a line for its fix.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redis_semaphore::Error> {
/// use redis_semaphore::{SemaphoreClient, Verdict};
///
/// let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
/// let diagnosis = client.doctor().await?;
/// println!("{diagnosis}");
/// for server in &diagnosis.servers {
///     for check in server.checks.iter().filter(|check| check.verdict == Verdict::Critical) {
///         eprintln!("{}: {} (fix: {:?})", server.address, check.finding, check.fix);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnosis {
    /// The server, or all primaries of a cluster.
    pub servers: Vec<ServerReport>,
}

/// The results for one server. Part of a [`Diagnosis`].
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerReport {
    /// The host and port, or the path of the socket.
    pub address: String,
    /// The name and version of the server, such as `redis 8.0.6`. Empty if they are unknown.
    pub version: String,
    /// All checks, the worst first.
    pub checks: Vec<Check>,
}

impl Diagnosis {
    /// Returns the worst verdict of all checks.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redis_semaphore::Error> {
    /// use redis_semaphore::{SemaphoreClient, Verdict};
    ///
    /// let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
    /// let is_fit = client.doctor().await?.worst() > Verdict::Critical;
    /// # Ok(())
    /// # }
    /// ```
    pub fn worst(&self) -> Verdict {
        let checks = self.servers.iter().flat_map(|server| &server.checks);
        checks.map(|check| check.verdict).min().unwrap_or(Verdict::Ok)
    }
}

/// Prints a summary; `Display` prints the checks.
impl fmt::Debug for Diagnosis {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Diagnosis")
            .field("servers", &format_args!("{} listed", self.servers.len()))
            .field("worst", &self.worst())
            .finish()
    }
}

impl fmt::Debug for ServerReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerReport")
            .field("address", &self.address)
            .field("version", &self.version)
            .field("checks", &format_args!("{} listed", self.checks.len()))
            .finish()
    }
}

impl Display for Diagnosis {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (number, server) in self.servers.iter().enumerate() {
            let gap = if number == 0 { "" } else { "\n\n" };
            write!(f, "{gap}{server}")?;
        }
        Ok(())
    }
}

impl Display for ServerReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let gap = if self.version.is_empty() { "" } else { ", " };
        write!(f, "{}{gap}{}", self.address, self.version)?;
        self.checks.iter().try_for_each(|check| write!(f, "\n{check}"))
    }
}
