//! Outages of Redis are told while `run` waits: that one begins, and that it is over. The library logs
//! both. Once the command runs a terminal is its own: then only a log is told.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::output::note;

/// The semaphore whose user is told.
static TOLD: Mutex<Option<String>> = Mutex::new(None);
static IS_AWAY: AtomicBool = AtomicBool::new(false);

/// They are told until this is dropped.
pub struct Told;

impl Told {
    pub fn while_this_lives(semaphore: &str) -> Self {
        set_told(Some(semaphore.to_owned()));
        Self
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        set_told(None);
    }
}

fn set_told(semaphore: Option<String>) {
    *TOLD.lock().unwrap_or_else(PoisonError::into_inner) = semaphore;
}

/// While they are told.
pub fn is_away() -> bool {
    IS_AWAY.load(Relaxed)
}

struct Connection;

/// What hears of the connections to Redis: docs/operations.md has what is logged of them.
pub fn listener<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
    let of_connections =
        Targets::new().with_target("redis_semaphore::connection", LevelFilter::INFO);
    Connection.with_filter(of_connections)
}

impl<S: Subscriber> Layer<S> for Connection {
    /// There are several connections: one that is lost tells, as does the first that is there again.
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let is_away = *event.metadata().level() == Level::WARN;
        let told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(name) = told.as_ref().filter(|_| IS_AWAY.swap(is_away, Relaxed) != is_away) else {
            return;
        };
        note(match is_away {
            true => format!("semaphore {name}: Redis does not answer: trying again"),
            false => format!("semaphore {name}: Redis answers again"),
        });
    }
}
