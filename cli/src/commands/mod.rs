//! The commands, a file each.

pub mod completions;
pub mod doctor;
pub mod inspect;
pub mod limit;
pub mod ls;
pub mod man;
pub mod revoke;

use redis_semaphore::Inspection;

use crate::failure::{Failure, NO};

/// The limit in force, where there is one.
pub fn limit_of(now: &Inspection) -> Option<u32> {
    now.declared_limit.or(now.runtime_limit).map(|_| now.limit)
}

fn must_exist(name: &str, now: &Inspection) -> Result<(), Failure> {
    let is_there = limit_of(now).is_some() || now.last_token > 0 || now.held + now.queued > 0;
    match is_there {
        true => Ok(()),
        false => Err(Failure::new(
            NO,
            format!("{name}: there is no such semaphore: `ls` shows the names under this --prefix"),
        )),
    }
}
