//! One finding, and how bad it is.

use std::fmt::{self, Display, Formatter};

/// One thing that was looked at, what was found, and what mends it. Of an [`Examination`].
///
/// [`Examination`]: crate::Examination
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
    pub found: String,
    /// What mends it: a command for `redis-cli` where there is one. None where nothing has to be
    /// mended.
    pub remedy: Option<String>,
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
    Danger,
    /// Worth knowing. It may be meant to be so.
    Hint,
    /// The server refused to tell, so there may be a danger or none.
    Unchecked,
    /// There is nothing to mend.
    Fine,
}

impl Check {
    pub(super) fn fine(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Fine, found: found.into(), remedy: None }
    }

    pub(super) fn danger(name: &'static str, found: impl Into<String>) -> Self {
        Self { verdict: Verdict::Danger, ..Self::fine(name, found) }
    }

    pub(super) fn hint(name: &'static str, found: impl Into<String>) -> Self {
        Self { verdict: Verdict::Hint, ..Self::fine(name, found) }
    }

    pub(super) fn unchecked(name: &'static str, found: impl Into<String>) -> Self {
        Self { verdict: Verdict::Unchecked, ..Self::fine(name, found) }
    }

    pub(super) fn mend(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }
}

impl Verdict {
    fn id(self) -> &'static str {
        match self {
            Self::Danger => "danger",
            Self::Hint => "hint",
            Self::Unchecked => "unchecked",
            Self::Fine => "fine",
        }
    }
}

/// Verdict and name in columns; what mends it in a line of its own.
impl Display for Check {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:<9}  {:<11}  {}", self.verdict.id(), self.name, self.found)?;
        match &self.remedy {
            Some(remedy) => write!(f, "\n{:24}mend: {remedy}", ""),
            None => Ok(()),
        }
    }
}

impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.pad(self.id())
    }
}
