//! One design needs a connection for each of its waiters, which is more than a process may open on
//! many machines unless it asks.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::Result;

pub fn allow_as_many_as_possible() -> Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, most, most)?)
}
