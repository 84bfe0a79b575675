//! Connecting, the rights of users, and the names of semaphores.

mod connect;
mod denied;
mod lookers;
mod migration;
mod names;
mod permissions;
mod shutdown;
