//! A client that is subscribed to its grant messages, over a separate connection.

use std::time::Duration;

use redis::{Connection, FromRedisValue};

use super::scripts::Scripts;

pub struct Listener {
    connection: Connection,
    pub channel: String,
    publish: &'static str,
}

impl Listener {
    pub fn subscribe(mut connection: Connection, command: &str, channel: &str) -> Self {
        connection.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let packed = redis::cmd(command).arg(channel).get_packed_command();
        connection.send_packed_command(&packed).unwrap();
        let publish = if command == "SSUBSCRIBE" { "SPUBLISH" } else { "PUBLISH" };
        let mut listener = Self { connection, channel: channel.to_owned(), publish };
        let (_, confirmed, _): (String, String, i64) = listener.receive();
        assert_eq!(confirmed, channel);
        listener
    }

    pub fn receive<T: FromRedisValue>(&mut self) -> T {
        redis::from_redis_value(self.connection.recv_response().unwrap()).unwrap()
    }

    pub fn message(&mut self) -> String {
        let (_, channel, text): (String, String, String) = self.receive();
        assert_eq!(channel, self.channel);
        text
    }

    /// Checks that no message has arrived. Messages arrive in order: if the next message is the
    /// test's own, no other message arrived before it.
    pub fn expect_silence(&mut self, scripts: &mut Scripts) {
        let (publish, channel) = (self.publish, self.channel.clone());
        redis::cmd(publish).arg(channel).arg("end-of-test").exec(&mut scripts.connection).unwrap();
        assert_eq!(self.message(), "end-of-test");
    }
}
