//! The baseline of a handoff: a release only publishes to the waiting process. The server does not
//! know the waiters.

use std::sync::Arc;

use futures_util::StreamExt;
use redis::Client;
use redis::aio::{MultiplexedConnection, PubSub};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::Result;
use super::baseline::Baseline;
use super::design::Design;
use super::server::{client, connection_to};

#[derive(Clone)]
pub struct Relay {
    baseline: Baseline,
    /// The free permits. Each received message adds one.
    places: Arc<Semaphore>,
    /// The task that receives messages. It ends when the last clone is dropped.
    _listener: Arc<JoinSet<()>>,
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
        let mut messages = listen(client, name).await?.into_on_message();
        let places = Arc::new(Semaphore::new(limit as usize));
        let freed = places.clone();
        let mut listener = JoinSet::new();
        listener.spawn(async move {
            while messages.next().await.is_some() {
                freed.add_permits(1);
            }
        });
        Ok(Self { baseline, places, _listener: Arc::new(listener) })
    }
}

/// This design works for one process only, because each release with this name frees a permit in
/// every process.
impl Design for Relay {
    const NAME: &'static str = "baseline";
    type Permit = ();

    async fn open(name: &str, limit: u32) -> Result<Self> {
        Self::at(&client()?, name, limit).await
    }

    async fn for_task(&self) -> Result<Self> {
        Ok(self.clone())
    }

    async fn acquire(&mut self) -> Result<()> {
        self.baseline.acquire().await?;
        self.places.acquire().await?.forget();
        Ok(())
    }

    async fn release(&mut self, (): ()) -> Result<()> {
        Ok(self.baseline.release().await?)
    }
}
