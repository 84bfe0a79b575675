//! Tests of groups: shares, caps, bounded work and lost keys.

mod bounds;
mod histories;
mod losses;
mod order;
mod pages;
mod starvation;

use super::{Timed, name_of};

/// Starts a semaphore whose calls name the keys of groups.
fn start() -> Timed {
    let mut semaphore = Timed::start();
    semaphore.keys = semaphore.all_keys.clone();
    semaphore
}

/// Returns the names of the requests that hold permits.
fn holders(semaphore: &mut Timed) -> Vec<String> {
    let permits = semaphore.scores("permits");
    permits.iter().map(|(id, _)| name_of(id).to_owned()).collect()
}
