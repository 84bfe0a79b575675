//! Outages of Redis are told while `run` waits: that one begins, and that it is over. The library logs
//! both. Once the command runs a terminal is its own: then only a log is told.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::output::tell;

static IS_TOLD_OF: AtomicBool = AtomicBool::new(false);
static IS_AWAY: AtomicBool = AtomicBool::new(false);

/// They are told until this is dropped.
pub struct Told;

impl Told {
    pub fn while_this_lives() -> Self {
        IS_TOLD_OF.store(true, Relaxed);
        Self
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        IS_TOLD_OF.store(false, Relaxed);
    }
}

/// While they are told.
pub fn is_away() -> bool {
    IS_AWAY.load(Relaxed)
}

struct Connection;

/// What hears of the connection to Redis: docs/operations.md has what is logged of it.
pub fn listener<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
    let of_connection = Targets::new()
        .with_target("redis_semaphore::server", LevelFilter::INFO)
        .with_target("redis_semaphore::wakeup", LevelFilter::INFO)
        // It logs strange messages.
        .with_target("redis_semaphore::wakeup::router", LevelFilter::OFF);
    Connection.with_filter(of_connection)
}

impl<S: Subscriber> Layer<S> for Connection {
    /// There are several connections: one that is lost tells, as does the first that is there again.
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let is_away = *event.metadata().level() == Level::WARN;
        if !IS_TOLD_OF.load(Relaxed) || IS_AWAY.swap(is_away, Relaxed) == is_away {
            return;
        }
        tell(match is_away {
            true => "redis-semaphore: Redis does not answer: trying again",
            false => "redis-semaphore: Redis answers again",
        });
    }
}
