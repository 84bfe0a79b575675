//! The two ends of a handoff: the holder and the waiter.

use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::PubSubStream;

use super::moment;
use crate::support::Result;
use crate::support::baseline::{Baseline, id};
use crate::support::design::Design;
use crate::support::relay;
use crate::support::server::{client, connection};

pub trait Ends: Send + Sized + 'static {
    const NAME: &'static str;

    fn open(name: &str) -> impl Future<Output = Result<Self>> + Send;

    fn take(&mut self) -> impl Future<Output = Result<()>> + Send;

    /// Releases the permit. Returns the time at which the release began.
    fn give(&mut self) -> impl Future<Output = Result<Duration>> + Send;

    /// Prepares for the wait, before the other end is notified.
    fn get_ready(&mut self) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// Waits for the permit, and releases it. Returns the time at which the permit was granted.
    fn receive(&mut self) -> impl Future<Output = Result<Duration>> + Send;
}

/// A permit of a semaphore with limit 1.
pub struct OfDesign<D: Design> {
    design: D,
    permit: Option<D::Permit>,
}

impl<D: Design> Ends for OfDesign<D> {
    const NAME: &'static str = D::NAME;

    async fn open(name: &str) -> Result<Self> {
        Ok(Self { design: D::open(name, 1).await?, permit: None })
    }

    async fn take(&mut self) -> Result<()> {
        self.permit = Some(self.design.acquire().await?);
        Ok(())
    }

    async fn give(&mut self) -> Result<Duration> {
        let permit = self.permit.take().ok_or("nothing was taken")?;
        let begun = moment::now()?;
        self.design.release(permit).await?;
        Ok(begun)
    }

    async fn receive(&mut self) -> Result<Duration> {
        let permit = self.design.acquire().await?;
        let received = moment::now()?;
        self.design.release(permit).await?;
        Ok(received)
    }
}

/// The baseline: a script that only publishes, and a subscriber.
pub struct OfMessages {
    name: String,
    publisher: Baseline,
    /// Only the waiting process has this stream.
    messages: Option<PubSubStream>,
}

impl Ends for OfMessages {
    const NAME: &'static str = "baseline";

    async fn open(name: &str) -> Result<Self> {
        let publisher = relay::publisher(connection().await?, name).await?;
        Ok(Self { name: name.to_owned(), publisher, messages: None })
    }

    async fn take(&mut self) -> Result<()> {
        Ok(())
    }

    async fn give(&mut self) -> Result<Duration> {
        let id = id();
        let begun = moment::now()?;
        self.publisher.release(&id).await?;
        Ok(begun)
    }

    async fn get_ready(&mut self) -> Result<()> {
        if self.messages.is_none() {
            self.messages = Some(relay::listen(&client()?, &self.name).await?.into_on_message());
        }
        Ok(())
    }

    async fn receive(&mut self) -> Result<Duration> {
        let messages = self.messages.as_mut().ok_or("nobody listens yet")?;
        messages.next().await.ok_or("the connection for messages is lost")?;
        moment::now()
    }
}
