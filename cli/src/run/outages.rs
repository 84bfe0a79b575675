//! Reports outages of Redis while `run` connects and waits: when an outage begins, and when it
//! ends. The library logs both moments. After the command has started, the CLI prints these reports
//! only if standard error is not a terminal.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use humantime::format_duration;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::failure::with_options;
use crate::output::note;

static STATE: Mutex<State> =
    Mutex::new(State { semaphore: None, outages: BTreeMap::new(), refresh: None });

struct State {
    /// The semaphore for which outages are reported.
    semaphore: Option<String>,
    /// Outages by the numbers that the library gives them. After a failover, the log of an outage's
    /// end names another server than the log of its beginning.
    outages: BTreeMap<u64, Outage>,
    /// The last failure of a refresh.
    refresh: Option<(Instant, String)>,
}

struct Outage {
    server: String,
    began: Instant,
    reason: String,
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Outages are reported until this value is dropped, or until [`stop_reporting`] is called.
pub struct Reporting;

impl Reporting {
    pub fn while_this_lives(semaphore: &str) -> Self {
        state().semaphore = Some(semaphore.to_owned());
        Self
    }
}

impl Drop for Reporting {
    fn drop(&mut self) {
        stop_reporting();
    }
}

/// Must be called before the client is shut down in an outage: its connections are then no longer
/// used, but Redis is not available again.
pub fn stop_reporting() {
    state().semaphore = None;
}

/// Returns since when Redis is unavailable, and why. Returns `None` if it is available.
pub fn reason() -> Option<String> {
    let state = state();
    let Outage { server, began, reason } =
        state.outages.values().min_by_key(|outage| outage.began)?;
    let since = format_duration(Duration::from_secs(began.elapsed().as_secs()));
    Some(format!("Redis at {server} has been unavailable for at least {since}: {reason}"))
}

/// Returns why the permit of this semaphore was not refreshed during its lease.
pub fn refresh_failure(semaphore: &str, lease: Duration) -> String {
    let failure = state().refresh.clone().filter(|(at, _)| at.elapsed() < lease);
    failure
        .map_or("Redis is unavailable, or redis-semaphore was stopped".to_owned(), |(_, reason)| {
            reason.replacen(&format!("semaphore {semaphore}: "), "", 1)
        })
}

struct Connection;

/// The events about connections: see docs/troubleshooting.md.
const CONNECTIONS: &str = "redis_semaphore::connection";
const REFRESHES: &str = "redis_semaphore::semaphore::core::auto_refresh";

/// Returns a layer that receives the log events of the library about its connections and refreshes.
pub fn listener<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
    let received = [(CONNECTIONS, LevelFilter::INFO), (REFRESHES, LevelFilter::WARN)];
    Connection.with_filter(Targets::new().with_targets(received))
}

impl<S: Subscriber> Layer<S> for Connection {
    /// Several connections may fail in one outage. The first failure, repeated warnings and the
    /// last recovery are reported.
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let Fields { outage, server, error } = fields;
        let mut state = state();
        if event.metadata().target() == REFRESHES {
            state.refresh = Some((Instant::now(), with_options(&error)));
            return;
        }
        let line = match *event.metadata().level() {
            Level::WARN => {
                let reason = with_options(&error);
                let line = format!("Redis at {server} is unavailable: {reason}; retrying");
                let is_first = state.outages.is_empty();
                let before = state.outages.remove(&outage);
                // The library warns again if the cause changes to a cause that does not pass by
                // itself.
                let is_new = is_first || before.is_some();
                let began = before.map_or_else(Instant::now, |outage| outage.began);
                state.outages.insert(outage, Outage { server, began, reason });
                is_new.then_some(line)
            }
            // The server works again, or is no longer used, for example after a failover.
            _ => {
                let was_out = state.outages.remove(&outage).is_some();
                let is_over = was_out && state.outages.is_empty();
                is_over.then(|| "Redis is available again".to_owned())
            }
        };
        if let (Some(name), Some(line)) = (&state.semaphore, line) {
            note(format_args!("semaphore {name}: {line}"));
        }
    }
}

#[derive(Default)]
struct Fields {
    outage: u64,
    server: String,
    error: String,
}

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "outage" {
            self.outage = value;
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "server" => self.server.push_str(value),
            "error" => self.error.push_str(value),
            _ => {}
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = write!(text, "{value:?}");
        self.record_str(field, &text);
    }
}
