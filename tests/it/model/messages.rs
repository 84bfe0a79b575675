//! Compares the messages of the scripts with the messages of the model.

use std::time::Duration;

use super::CLIENTS;
use super::system::System;

impl System {
    /// Checks that each handoff of the model is in a message: one message for each client, in
    /// order, with the same content.
    pub(super) fn receive_messages(&mut self) -> Result<(), String> {
        for (client, lines) in self.model.take_messages() {
            let expected = format!("model\n{}", lines.join("\n"));
            let index = CLIENTS.iter().position(|(_, name)| *name == client).unwrap();
            let listener = &mut self.listeners[index];
            listener.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let reply =
                listener.recv_response().map_err(|e| format!("message {expected:?}: {e}"))?;
            let (_, _, text): (String, String, String) = redis::from_redis_value(reply).unwrap();
            if text != expected {
                return Err(format!("message {text:?}, the model says {expected:?}"));
            }
        }
        Ok(())
    }

    /// Subscribes or unsubscribes. Fails if there is a message that the model does not expect.
    pub(super) fn listen(&mut self, client: usize, listens: bool) -> Result<(), String> {
        // Valkey 8.0 rejects an unsubscribe without a subscription.
        if !listens && !self.model.listening.contains(CLIENTS[client].1) {
            return Ok(());
        }
        let command = if listens { "SUBSCRIBE" } else { "UNSUBSCRIBE" };
        let packed =
            redis::cmd(command).arg(format!("sem:wake:{}", CLIENTS[client].1)).get_packed_command();
        // The reply precedes any later message, because both use this connection.
        let listener = &mut self.listeners[client];
        listener.send_packed_command(&packed).unwrap();
        let mut unexpected = Vec::new();
        loop {
            let reply = listener.recv_response().unwrap();
            let (kind, _, rest): (String, String, redis::Value) =
                redis::from_redis_value(reply).unwrap();
            if kind == command.to_lowercase() {
                break;
            }
            unexpected.push(rest);
        }
        if listens {
            self.model.listening.insert(CLIENTS[client].1.to_owned());
        } else {
            self.model.listening.remove(CLIENTS[client].1);
        }
        if unexpected.is_empty() {
            return Ok(());
        }
        Err(format!("messages {unexpected:?} to client {client}, the model says none"))
    }
}
