//! Tests of work with one semaphore: acquiring, holding, releasing, and background jobs.

mod acknowledge;
mod acquire;
mod acquire_all;
mod adopt;
mod background;
mod cancellation;
mod circles;
mod close;
mod dead_waiters;
mod detached_permit;
mod groups;
mod head_start;
mod inspection;
mod kept;
mod let_expire;
mod limits;
mod lost_replies;
mod order;
mod panics;
mod permit_watch;
mod permits;
mod processes;
mod revoke;
mod short_leases;
