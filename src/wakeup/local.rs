//! Grant messages of a server in memory, which loses no messages and is always available.

use super::{Channel, Router};
use crate::server::Messages;

pub(super) async fn listen(router: &Router, channel: &Channel, mut messages: Messages) {
    while let Some(message) = messages.recv().await {
        router.receive(&channel.name, message.as_bytes());
    }
}
