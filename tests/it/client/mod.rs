//! Tests of connecting, of users' rights, and of the names of semaphores.

mod connect;
mod denied;
mod lookers;
mod migration;
mod names;
mod permissions;
mod shutdown;
