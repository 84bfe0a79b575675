//! Connecting, what a user may do there, and which semaphores there are.

mod connect;
mod denied;
mod lookers;
mod migration;
mod names;
mod permissions;
mod shutdown;
