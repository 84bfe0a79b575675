//! The CLI as its users start it, on real servers: `scripts/with-redis cargo test`.

mod demo;
mod denied;
mod doctor;
#[cfg(feature = "exporter")]
mod exporter;
mod load;
mod ls;
mod one;
mod options;
mod output;
mod run;
mod secrets;
mod sentinel;
mod server;
mod silence;
mod strangers;
mod support;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "top")]
mod top;
