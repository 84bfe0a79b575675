use std::fmt::{self, Display, Formatter};

/// Something about a server that its semaphores should not be left with. From
/// [`Semaphores::doctor`](crate::Semaphores::doctor).
///
/// Displayed it is one sentence, which ends with what to do.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redis_semaphore::Error> {
/// use redis_semaphore::{Semaphores, Severity};
///
/// let semaphores = Semaphores::connect(&std::env::var("REDIS_URL").unwrap()).await?;
/// for finding in semaphores.doctor().await? {
///     match finding.severity {
///         Severity::Danger => eprintln!("{finding}"),
///         _ => println!("{finding}"),
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What was looked at: `role`, `server`, `rights`, `eviction`, `memory`, `persistence`,
    /// `replicas`, `clients` or `clock`; or the command that was refused, `INFO` or `CONFIG GET`.
    pub what: &'static str,
    /// What is the matter, what comes of it, and what to do.
    pub text: String,
}

/// How bad a [`Finding`] is. The worst comes first.
///
/// # Examples
///
/// See [`Finding`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// Permits can be forgotten, or calls will be refused: mend it before relying on a semaphore.
    Danger,
    /// Worth knowing. It may be meant to be so.
    Hint,
    /// The server refused to tell, so there may be a danger or none.
    Unchecked,
}

impl Finding {
    pub(super) fn danger(what: &'static str, text: impl Into<String>) -> Self {
        Self { severity: Severity::Danger, what, text: text.into() }
    }

    pub(super) fn hint(what: &'static str, text: impl Into<String>) -> Self {
        Self { severity: Severity::Hint, what, text: text.into() }
    }

    pub(super) fn unchecked(what: &'static str, text: impl Into<String>) -> Self {
        Self { severity: Severity::Unchecked, what, text: text.into() }
    }
}

impl Display for Finding {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.severity, self.text)
    }
}

impl Display for Severity {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Danger => "danger",
            Self::Hint => "hint",
            Self::Unchecked => "unchecked",
        })
    }
}
