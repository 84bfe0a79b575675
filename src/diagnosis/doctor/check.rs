//! One finding, and how bad it is.

use std::fmt::{self, Display, Formatter};

/// One thing that was looked at, what was found, and what mends it. Of an [`ServerReport`].
///
/// [`ServerReport`]: crate::ServerReport
///
/// # Examples
///
/// See [`Diagnosis`](crate::Diagnosis).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Check {
    /// What was looked at: `role`, `commands`, `wake-ups`, `eviction`, `memory`, `persistence`,
    /// `saves`, `replicas`, `clients` or `clock`, and `local` for a server in memory. There may be
    /// several about the same.
    pub name: &'static str,
    /// How bad it is.
    pub verdict: Verdict,
    /// What was found, and what comes of it.
    pub finding: String,
    /// What mends it: a command for `redis-cli` where there is one. None where nothing has to be
    /// mended.
    pub fix: Option<String>,
}

/// How bad it is what a [`Check`] found. The worst comes first.
///
/// # Examples
///
/// See [`Diagnosis`](crate::Diagnosis).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// Permits can be forgotten, or calls will be refused: mend it before relying on a semaphore.
    Critical,
    /// Worth knowing. It may be meant to be so.
    Notice,
    /// The server refused to tell, so there may be a danger or none.
    Unchecked,
    /// There is nothing to mend.
    Ok,
}

impl Check {
    pub(super) fn ok(name: &'static str, finding: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Ok, finding: finding.into(), fix: None }
    }

    pub(super) fn critical(name: &'static str, finding: impl Into<String>) -> Self {
        Self { verdict: Verdict::Critical, ..Self::ok(name, finding) }
    }

    pub(super) fn notice(name: &'static str, finding: impl Into<String>) -> Self {
        Self { verdict: Verdict::Notice, ..Self::ok(name, finding) }
    }

    pub(super) fn unchecked(name: &'static str, finding: impl Into<String>) -> Self {
        Self { verdict: Verdict::Unchecked, ..Self::ok(name, finding) }
    }

    pub(super) fn fix(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..self }
    }
}

impl Verdict {
    fn id(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Notice => "notice",
            Self::Unchecked => "unchecked",
            Self::Ok => "ok",
        }
    }
}

/// Verdict and name in columns; what mends it in a line of its own.
impl Display for Check {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:<9}  {:<11}  {}", self.verdict.id(), self.name, self.finding)?;
        match &self.fix {
            Some(fix) => write!(f, "\n{:24}fix: {fix}", ""),
            None => Ok(()),
        }
    }
}

impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.pad(self.id())
    }
}
