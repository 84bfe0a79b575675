//! Looks at all semaphores, with a timeout. Concurrent scrapes share one look.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, Shared, WeakShared};
use futures_util::{FutureExt, TryFutureExt};
use humantime::format_duration;
use redis_semaphore::SemaphoreClient;
use tokio::sync::OnceCell;
use tokio::time::timeout;

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
    failure: Option<Reason>,
}

#[derive(Clone)]
enum Reason {
    TooSlow(Duration),
    Other(Arc<Failure>),
}

pub struct Looks {
    server: Server,
    asked: Exporter,
    semaphores: OnceCell<SemaphoreClient>,
    /// The look in progress. Only the waiting scrapes keep the look alive. If no scrape waits, the
    /// look is dropped.
    current: Mutex<Option<WeakShared<Look>>>,
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

    /// Returns the current metrics. If reading them takes longer than `patience`, returns metrics
    /// that report a failure.
    pub async fn text(self: &Arc<Self>, patience: Duration) -> Arc<str> {
        let (started, look) = (Instant::now(), self.current());
        if let Ok(looked) = timeout(patience, look.clone()).await {
            self.report_changes(looked.failure.as_ref());
            return looked.text;
        }
        // If other scrapes still wait for the look, it may succeed, so nothing is reported.
        if look.strong_count() == Some(1) {
            self.report_changes(Some(&Reason::TooSlow(patience)));
            *self.lock_current() = None;
            self.explain(async { look.await.failure });
        }
        text(None, started.elapsed()).into()
    }

    /// Returns the look in progress, or a new one.
    fn current(self: &Arc<Self>) -> Shared<Look> {
        let mut current = self.lock_current();
        if let Some(look) = current.as_ref().and_then(WeakShared::upgrade) {
            return look;
        }
        let look = self.clone().look().boxed().shared();
        *current = look.downgrade();
        look
    }

    fn lock_current(&self) -> MutexGuard<'_, Option<WeakShared<Look>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn look(self: Arc<Self>) -> Looked {
        let (started, patience, looks) = (Instant::now(), self.asked.timeout, self.clone());
        let read = async move { Ok(look(looks.connect().await?, &looks.asked).await?) };
        let mut read = read.map_err(|failure| Reason::Other(Arc::new(failure))).boxed();
        let (picture, failure) = match timeout(patience, &mut read).await {
            Ok(Ok(picture)) => (Some(picture), None),
            Ok(Err(reason)) => (None, Some(reason)),
            Err(_) => {
                self.explain(async { read.await.err() });
                (None, Some(Reason::TooSlow(patience)))
            }
        };
        Looked { text: text(picture, started.elapsed()).into(), failure }
    }

    /// Continues a look that took too long, because its error may be the reason. Continues at most
    /// one look at a time.
    fn explain(self: &Arc<Self>, late: impl Future<Output = Option<Reason>> + Send + 'static) {
        if self.is_explaining.swap(true, Relaxed) {
            return;
        }
        let looks = self.clone();
        tokio::spawn(async move {
            let reason = late.await;
            looks.is_explaining.store(false, Relaxed);
            // Another look may have succeeded in the meantime.
            if reason.is_some() && looks.lock_failing().is_some() {
                looks.report_changes(reason.as_ref());
            }
        });
    }

    fn lock_failing(&self) -> MutexGuard<'_, Option<String>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn report_failure(&self, failure: Failure) {
        self.report_changes(Some(&Reason::Other(Arc::new(failure))));
    }

    /// Reports a reason only if it differs from the last reason, because a report at each scrape
    /// would fill the log. A lack of time is not reported if another reason is known.
    fn report_changes(&self, reason: Option<&Reason>) {
        let mut failing = self.lock_failing();
        let failure = match reason {
            None => None,
            Some(Reason::TooSlow(_)) if failing.is_some() => return,
            Some(Reason::TooSlow(patience)) => Some(too_slow(*patience)),
            Some(Reason::Other(failure)) => Some(failure.to_string()),
        };
        // Elapsed times in the text differ from scrape to scrape.
        let is_digit = |c: char| c.is_ascii_digit();
        let now = failure.as_ref().map(|failure| failure.replace(is_digit, ""));
        if *failing == now {
            return;
        }
        match failure {
            Some(failure) => note(failure),
            None => note("the semaphores can be read again"),
        }
        *failing = now;
    }
}

fn too_slow(patience: Duration) -> String {
    let patience = format_duration(patience);
    format!(
        "the semaphores could not be read within {patience}: check whether Redis is slow, raise \
         --timeout and Prometheus's scrape_timeout, or narrow --only"
    )
}
