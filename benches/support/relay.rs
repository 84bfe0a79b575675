//! The baseline of a hand-off: a release publishes to the process that waits, and that is all the
//! server does. Who waits is known only to the process itself.

use std::sync::Arc;

use futures_util::StreamExt;
use redis::Client;
use redis::aio::{MultiplexedConnection, PubSub};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use super::Result;
use super::baseline::Baseline;
use super::design::Design;
use super::server::{client, connection_to};

pub struct Relay {
    baseline: Baseline,
    /// The places that are free, as far as messages have told.
    places: Arc<Semaphore>,
    _listener: Arc<Listener>,
}

/// Ends with the last that uses it.
struct Listener(AbortHandle);

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Publishes what a grant message contains: the semaphore, the ID, its token, the end of its lease.
fn release_script(name: &str) -> String {
    let channel = channel(name);
    format!(
        "redis.call('PUBLISH', '{channel}', '{name}\\n' .. ARGV[2] .. \
         ' 1795225134570262 1795225164570') return {{1, -1, 1}}"
    )
}

fn channel(name: &str) -> String {
    format!("sem:wake:{name}")
}

/// Subscribed to what the releases of that name publish.
pub async fn listen(client: &Client, name: &str) -> Result<PubSub> {
    let mut messages = client.get_async_pubsub().await?;
    messages.subscribe(channel(name)).await?;
    Ok(messages)
}

/// Calls that publish as a hand-off does.
pub async fn publisher(connection: MultiplexedConnection, name: &str) -> Result<Baseline> {
    Baseline::over(connection, &release_script(name)).await
}

impl Relay {
    /// At the end of a network, say.
    pub async fn at(client: &Client, name: &str, limit: u32) -> Result<Self> {
        let baseline = publisher(connection_to(client).await?, name).await?;
        Ok(Self::between(baseline, listen(client, name).await?, limit))
    }

    fn between(baseline: Baseline, messages: PubSub, limit: u32) -> Self {
        let mut messages = messages.into_on_message();
        let places = Arc::new(Semaphore::new(limit as usize));
        let freed = places.clone();
        let listener = tokio::spawn(async move {
            while messages.next().await.is_some() {
                freed.add_permits(1);
            }
        });
        Self { baseline, places, _listener: Arc::new(Listener(listener.abort_handle())) }
    }
}

/// For one process: each release of that name frees a place here.
impl Design for Relay {
    const NAME: &'static str = "baseline";
    type Permit = String;

    async fn open(name: &str, limit: u32) -> Result<Self> {
        Self::at(&client()?, name, limit).await
    }

    async fn for_task(&self) -> Result<Self> {
        let (baseline, places) = (self.baseline.clone(), self.places.clone());
        Ok(Self { baseline, places, _listener: self._listener.clone() })
    }

    async fn acquire(&mut self) -> Result<String> {
        let id = Design::acquire(&mut self.baseline).await?;
        self.places.acquire().await?.forget();
        Ok(id)
    }

    async fn release(&mut self, id: String) -> Result<()> {
        Ok(self.baseline.release(&id).await?)
    }
}
