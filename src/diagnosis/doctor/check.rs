//! One check, and its verdict.

use std::fmt::{self, Display, Formatter};

/// The result of one check: finding, verdict and fix. Part of a [`ServerReport`].
///
/// [`ServerReport`]: crate::ServerReport
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Check {
    /// The subject: `connection`, `role`, `commands`, `messages`, `eviction`, `memory`,
    /// `persistence`, `saves`, `replicas`, `clients` or `clock`, `slots` for a cluster, and `local`
    /// for a server in memory. A report may contain several checks with the same name.
    pub name: &'static str,
    /// The severity.
    pub verdict: Verdict,
    /// The finding, and its consequence.
    pub finding: String,
    /// The fix, if possible as a command for `redis-cli`. `None` if no fix is needed or known.
    pub fix: Option<String>,
}

/// The severity of a [`Check`]. The worst verdict is the smallest value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// Permits can be lost, or calls will be rejected. Fix the problem before you rely on a
    /// semaphore.
    Critical,
    /// The finding is worth knowing, but may be intended.
    Notice,
    /// The check was not possible, for example because the user lacks a permission.
    Unchecked,
    /// Nothing needs to be fixed.
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

/// Prints verdict and name in columns, and the fix on a separate line.
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
