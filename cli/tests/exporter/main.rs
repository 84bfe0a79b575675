//! The command `exporter`, as a process, with real servers.
#![forbid(unsafe_code)]
#![cfg(feature = "exporter")]

mod outages;
#[cfg(feature = "prometheus-tests")]
mod prometheus;
mod support;
mod values;
mod web;
