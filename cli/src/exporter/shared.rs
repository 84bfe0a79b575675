//! Looks at all semaphores, with a timeout. Concurrent scrapes share one look.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use humantime::format_duration;
use redis_semaphore::SemaphoreClient;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout_at};

use crate::exporter::look::look;
use crate::exporter::options::Exporter;
use crate::exporter::text::text;
use crate::failure::Failure;
use crate::output::note;
use crate::server::connect;
use crate::server::options::Server;

type Look = BoxFuture<'static, Looked>;

/// The metrics, and why the look failed, if it failed.
#[derive(Clone)]
struct Looked {
    text: Arc<str>,
    failure: Option<Arc<Failure>>,
}

pub struct Looks {
    server: Server,
    asked: Exporter,
    semaphores: OnceCell<SemaphoreClient>,
    /// The look in progress, and the time at which it began. Only the waiting scrapes share it.
    current: Mutex<Option<(Instant, WeakShared<Look>)>>,
    /// Why the last look failed, if it failed.
    failing: Mutex<Option<String>>,
    /// Whether a task waits for the error of a look that took too long.
    is_explaining: AtomicBool,
}

impl Looks {
    pub fn new(server: Server, asked: Exporter) -> Self {
        let (current, failing) = (Mutex::new(None), Mutex::new(None));
        let is_explaining = AtomicBool::new(false);
        Self { server, asked, semaphores: OnceCell::new(), current, failing, is_explaining }
    }

    /// Connects once. After that, the library reconnects by itself.
    pub async fn connect(&self) -> Result<&SemaphoreClient, Failure> {
        let connected = || connect(&self.server, SemaphoreClient::builder().read_only());
        self.semaphores.get_or_try_init(connected).await
    }

    pub async fn shut_down(&self) {
        if let Some(semaphores) = self.semaphores.get() {
            semaphores.shutdown().await;
        }
    }

    /// Returns the current metrics. If reading them takes longer than `patience`, or than `--timeout`,
    /// returns metrics that report a failure.
    pub async fn text(self: &Arc<Self>, patience: Duration) -> Arc<str> {
        let (patience, (began, look)) = (patience.min(self.asked.timeout), self.current());
        let ends = (Instant::now() + patience).min(began + self.asked.timeout);
        if let Ok(looked) = timeout_at(ends, look.clone()).await {
            self.report_changes(looked.failure.as_ref().map(|failure| failure.to_string()));
            return looked.text;
        }
        // If other scrapes still wait for the look, it may succeed, so nothing is reported.
        if look.strong_count() == Some(1) {
            // A reason that is already known may say more.
            if !self.is_failing() {
                self.report_changes(Some(too_slow(patience)));
            }
            self.explain(look, patience);
        }
        text(None, ends - began).into()
    }

    /// Returns the look in progress, or a new one.
    fn current(self: &Arc<Self>) -> (Instant, Shared<Look>) {
        let mut current = self.lock_current();
        if let Some((began, look)) = &*current
            && let Some(look) = look.upgrade()
        {
            return (*began, look);
        }
        let (began, look) = (Instant::now(), self.clone().look().boxed().shared());
        *current = look.downgrade().map(|weak| (began, weak));
        (began, look)
    }

    fn lock_current(&self) -> MutexGuard<'_, Option<(Instant, WeakShared<Look>)>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn look(self: Arc<Self>) -> Looked {
        let started = Instant::now();
        let read = async { Ok::<_, Failure>(look(self.connect().await?, &self.asked).await?) };
        let (picture, failure) = match read.await {
            Ok(picture) => (Some(picture), None),
            Err(failure) => (None, Some(Arc::new(failure))),
        };
        Looked { text: text(picture, started.elapsed()).into(), failure }
    }

    /// Continues a look that took longer than `patience`, because its error may be the reason.
    /// Continues at most one look at a time. Later scrapes do not share it.
    fn explain(self: &Arc<Self>, late: Shared<Look>, patience: Duration) {
        *self.lock_current() = None;
        if self.is_explaining.swap(true, Relaxed) {
            return;
        }
        let looks = self.clone();
        tokio::spawn(async move {
            let failure = late.await.failure;
            looks.is_explaining.store(false, Relaxed);
            // Another look may have succeeded in the meantime.
            if looks.is_failing() {
                let reason = failure.map_or(too_slow(patience), |failure| failure.to_string());
                looks.report_changes(Some(reason));
            }
        });
    }

    fn is_failing(&self) -> bool {
        self.lock_failing().is_some()
    }

    fn lock_failing(&self) -> MutexGuard<'_, Option<String>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports a reason only if it differs from the last reason, because a report at each scrape
    /// would fill the log.
    pub fn report_changes(&self, reason: Option<String>) {
        let mut failing = self.lock_failing();
        let now = reason.as_deref().map(kind_of);
        if *failing == now {
            return;
        }
        match reason {
            Some(reason) => note(reason),
            None => note("the semaphores can be read again"),
        }
        *failing = now;
    }
}

/// Returns the part of a reason that stays the same from scrape to scrape: elapsed times change, and
/// so does the system's error for a lost connection.
fn kind_of(reason: &str) -> String {
    let start = reason.split("the connection was lost").next().unwrap_or_default();
    start.replace(|c: char| c.is_ascii_digit() || c == '.', "")
}

fn too_slow(patience: Duration) -> String {
    let patience = format_duration(patience);
    format!(
        "the semaphores could not be read within {patience}: check whether Redis is slow, raise \
         --timeout and Prometheus's scrape_timeout, or narrow --only"
    )
}
