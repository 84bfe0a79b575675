//! The command `run`, with real processes and real servers: `scripts/with-redis cargo test`.

mod guard;
mod leave;
mod limits;
mod loss;
mod many;
mod queue;
mod signals;
mod status;
mod support;
mod terminal;
