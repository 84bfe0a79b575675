//! The baseline of a handoff: a release only publishes to the waiting process. The server does not
//! know the waiters.

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
    /// The permits that received messages have freed.
    places: Arc<Semaphore>,
    _listener: Arc<Listener>,
}

/// The task that receives messages. The task ends when the last clone of `Relay` is dropped.
struct Listener(AbortHandle);

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Returns a script that publishes the contents of a grant message: the semaphore, the ID, its
/// token, and the expiry of the lease.
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

/// Subscribes to the messages of releases with this name.
pub async fn listen(client: &Client, name: &str) -> Result<PubSub> {
    let mut messages = client.get_async_pubsub().await?;
    messages.subscribe(channel(name)).await?;
    Ok(messages)
}

/// Returns a client whose releases publish a message, as a handoff does.
pub async fn publisher(connection: MultiplexedConnection, name: &str) -> Result<Baseline> {
    Baseline::over(connection, &release_script(name)).await
}

impl Relay {
    /// Connects with this client, for example through a network.
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

/// This design works for one process only, because each release with this name frees a permit in
/// every process.
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
