//! Raises the limit of open files. One design needs a connection for each waiter. These connections
//! exceed the default limit on many machines.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::Result;

pub fn allow_as_many_as_possible() -> Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, most, most)?)
}
