//! The baseline of a handoff between processes: a script that only publishes, and a subscriber.

use futures_util::StreamExt;
use redis::aio::PubSubStream;

use super::partner;
use crate::support::Result;
use crate::support::baseline::Baseline;
use crate::support::design::Design;
use crate::support::relay;
use crate::support::server::{client, connection};

/// In the measuring process, a release publishes a message. In the other process, an acquire waits
/// for the message.
pub struct Messages {
    publisher: Baseline,
    /// Only the other process has this stream.
    messages: Option<PubSubStream>,
}

impl Design for Messages {
    const NAME: &'static str = "baseline";
    type Permit = ();

    async fn open(name: &str, _: u32) -> Result<Self> {
        let publisher = relay::publisher(connection().await?, name).await?;
        let messages = match partner::role() {
            Some(_) => Some(relay::listen(&client()?, name).await?.into_on_message()),
            None => None,
        };
        Ok(Self { publisher, messages })
    }

    async fn for_task(&self) -> Result<Self> {
        Ok(Self { publisher: self.publisher.clone(), messages: None })
    }

    async fn acquire(&mut self) -> Result<()> {
        if let Some(messages) = &mut self.messages {
            messages.next().await.ok_or("the connection for messages is lost")?;
        }
        Ok(())
    }

    async fn release(&mut self, (): ()) -> Result<()> {
        match self.messages {
            Some(_) => Ok(()),
            None => Ok(self.publisher.release().await?),
        }
    }
}
