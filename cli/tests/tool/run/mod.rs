//! The command `run`.

mod first;
mod guard;
mod label;
mod limits;
mod loss;
mod many;
mod outages;
mod per;
mod queue;
mod signals;
mod status;
mod stop;
mod support;
mod terminal;
mod wherever;
