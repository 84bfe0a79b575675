//! Finds out what is wrong with a server, when a client connects and for the doctor.

pub(crate) mod connect;
mod doctor;
mod inquiry;
pub(crate) mod permission;
mod probe;
mod unknown;

pub(crate) use doctor::examine;
pub use doctor::{Check, Diagnosis, ServerReport, Verdict};
pub(crate) use inquiry::inquire;
pub(crate) use probe::Probe;
