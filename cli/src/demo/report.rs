//! Reports of the workers to the supervisor, as lines of text.

use std::fmt;
use std::str::FromStr;

use crate::demo::moment::Moment;
use crate::failure::AnyError;

#[derive(Debug, Clone, Copy)]
pub struct Report {
    pub at: Moment,
    pub what: What,
}

#[derive(Debug, Clone, Copy)]
pub enum What {
    /// The worker is about to request a permit.
    Waits,
    /// The worker has a permit.
    Holds,
    /// The worker has taken this page.
    Begins(u32),
    /// The worker has finished this page.
    Finishes(u32),
    /// The worker has finished this page, but another worker had finished it before.
    Repeats(u32),
    /// The worker has lost its permit and stopped working.
    Loses,
    /// The worker has put back this unfinished page.
    PutsBack(u32),
    /// The worker is about to release its permit.
    Leaves,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, what } = self;
        match what {
            What::Waits => write!(f, "{at} waits"),
            What::Holds => write!(f, "{at} holds"),
            What::Begins(page) => write!(f, "{at} begins {page}"),
            What::Finishes(page) => write!(f, "{at} finishes {page}"),
            What::Repeats(page) => write!(f, "{at} repeats {page}"),
            What::Loses => write!(f, "{at} loses"),
            What::PutsBack(page) => write!(f, "{at} puts-back {page}"),
            What::Leaves => write!(f, "{at} leaves"),
        }
    }
}

impl FromStr for Report {
    type Err = AnyError;

    fn from_str(line: &str) -> crate::demo::Result<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let (at, what) = match words[..] {
            [at, "waits"] => (at, What::Waits),
            [at, "holds"] => (at, What::Holds),
            [at, "begins", page] => (at, What::Begins(page.parse()?)),
            [at, "finishes", page] => (at, What::Finishes(page.parse()?)),
            [at, "repeats", page] => (at, What::Repeats(page.parse()?)),
            [at, "loses"] => (at, What::Loses),
            [at, "puts-back", page] => (at, What::PutsBack(page.parse()?)),
            [at, "leaves"] => (at, What::Leaves),
            _ => return Err(format!("a worker sent {line:?}, which is not a report").into()),
        };
        Ok(Self { at: at.parse()?, what })
    }
}
