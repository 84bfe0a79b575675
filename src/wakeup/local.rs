//! A server in memory, which never loses messages or becomes unavailable.

use super::{Channel, Router};
use crate::server::Messages;

pub(super) async fn listen(router: &Router, channel: &Channel, mut messages: Messages) {
    while let Some(message) = messages.recv().await {
        router.hear(&channel.name, message.as_bytes());
    }
}
