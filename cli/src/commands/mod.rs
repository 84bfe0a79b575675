//! The smaller commands, one file each.

pub mod completions;
pub mod doctor;
pub mod inspect;
pub mod limit;
pub mod ls;
pub mod man;
pub mod revoke;

use redis_semaphore::Inspection;

use crate::failure::{Failure, NO};
use crate::limits::limit_of;

fn exists(now: &Inspection) -> bool {
    limit_of(now).is_some() || now.last_token > 0 || now.held + now.queued > 0
}

fn must_exist(name: &str, now: &Inspection) -> Result<(), Failure> {
    match exists(now) {
        true => Ok(()),
        false => Err(Failure::new(
            NO,
            format!(
                "semaphore {name} does not exist: `redis-semaphore ls` lists the names under this \
                 --prefix"
            ),
        )),
    }
}
