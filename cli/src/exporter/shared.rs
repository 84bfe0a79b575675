//! Looks at all semaphores, with a timeout. Concurrent scrapes share one look.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use humantime::format_duration;
use redis_semaphore::SemaphoreClient;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::exporter::look::look;
use crate::exporter::options::Exporter;
use crate::exporter::text::text;
use crate::failure::{Failure, UNAVAILABLE};
use crate::output::note;
use crate::server::connect;
use crate::server::options::Server;

type Look = BoxFuture<'static, Arc<str>>;

pub struct Looks {
    server: Server,
    asked: Exporter,
    semaphores: OnceCell<SemaphoreClient>,
    /// The look in progress. Only the waiting scrapes keep the look alive. If no scrape waits, the
    /// look is dropped.
    current: Mutex<Option<WeakShared<Look>>>,
    /// Why the last look failed, if it failed.
    failing: Mutex<Option<String>>,
}

impl Looks {
    pub fn new(server: Server, asked: Exporter) -> Self {
        let (current, failing) = (Mutex::new(None), Mutex::new(None));
        Self { server, asked, semaphores: OnceCell::new(), current, failing }
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
        let started = Instant::now();
        match timeout(patience, self.current()).await {
            Ok(text) => text,
            Err(_) => {
                // If other scrapes still wait for the look, it may succeed, so nothing is reported.
                if self.under_way().is_none() {
                    self.report_changes(Some(&too_slow(patience)));
                }
                text(None, started.elapsed()).into()
            }
        }
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

    fn under_way(&self) -> Option<Shared<Look>> {
        self.lock_current().as_ref().and_then(WeakShared::upgrade)
    }

    fn lock_current(&self) -> MutexGuard<'_, Option<WeakShared<Look>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn look(self: Arc<Self>) -> Arc<str> {
        let (started, patience) = (Instant::now(), self.asked.timeout);
        let looked = async { Ok::<_, Failure>(look(self.connect().await?, &self.asked).await?) };
        let looked = timeout(patience, looked).await.unwrap_or_else(|_| Err(too_slow(patience)));
        self.report_changes(looked.as_ref().err());
        text(looked.ok(), started.elapsed()).into()
    }

    /// Reports a reason only if it differs from the last reason, because a report at each scrape
    /// would fill the log.
    pub fn report_changes(&self, failure: Option<&Failure>) {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        // Elapsed times in the text differ from scrape to scrape.
        let is_digit = |c: char| c.is_ascii_digit();
        let now = failure.map(|failure| failure.to_string().replace(is_digit, ""));
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

fn too_slow(patience: Duration) -> Failure {
    let patience = format_duration(patience);
    let reason = format!(
        "the semaphores could not be read within {patience}: check whether Redis is slow, raise \
         --timeout and Prometheus's scrape_timeout, or narrow --only"
    );
    Failure::new(UNAVAILABLE, reason)
}
