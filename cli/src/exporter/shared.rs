//! Looks that are bounded in time. Scrapes at the same time share one.

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
    /// The one under way: only scrapes that wait for it keep it. When all of them have gone it
    /// ends, as nobody would drive it any more.
    current: Mutex<Option<WeakShared<Look>>>,
    /// Why the last one failed, if it did.
    failing: Mutex<Option<String>>,
}

impl Looks {
    pub fn new(server: Server, asked: Exporter) -> Self {
        let (current, failing) = (Mutex::new(None), Mutex::new(None));
        Self { server, asked, semaphores: OnceCell::new(), current, failing }
    }

    /// Once that is done, the library connects again by itself.
    pub async fn connect(&self) -> Result<&SemaphoreClient, Failure> {
        let connected = || connect(&self.server, SemaphoreClient::builder().read_only());
        self.semaphores.get_or_try_init(connected).await
    }

    pub async fn shut_down(&self) {
        if let Some(semaphores) = self.semaphores.get() {
            semaphores.shutdown().await;
        }
    }

    /// What the metrics are now. The scrape may have less patience than a look may take.
    pub async fn text(self: &Arc<Self>, patience: Duration) -> Arc<str> {
        let started = Instant::now();
        match timeout(patience, self.current()).await {
            Ok(text) => text,
            Err(_) => {
                // Whoever waits on may see more.
                if self.under_way().is_none() {
                    self.tell_changes(Some(&too_slow(patience)));
                }
                text(None, started.elapsed()).into()
            }
        }
    }

    /// The look under way, or a new one.
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
        self.tell_changes(looked.as_ref().err());
        text(looked.ok(), started.elapsed()).into()
    }

    /// Each reason once, and not at each scrape: that would fill the log.
    pub fn tell_changes(&self, failure: Option<&Failure>) {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        // How long it took is another number each time.
        let is_digit = |c: char| c.is_ascii_digit();
        let now = failure.map(|failure| failure.to_string().replace(is_digit, ""));
        if *failing == now {
            return;
        }
        match failure {
            Some(failure) => note(failure),
            None => note("Redis can be looked at again"),
        }
        *failing = now;
    }
}

fn too_slow(patience: Duration) -> Failure {
    let patience = format_duration(patience);
    let reason = format!(
        "the semaphores could not be looked at within {patience}: look whether Redis is slow, raise \
         --timeout and Prometheus's scrape_timeout, or narrow --only"
    );
    Failure::new(UNAVAILABLE, reason)
}
