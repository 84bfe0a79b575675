//! A semaphore whose clock the test controls.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use super::{START_US, Scripts};
use crate::model::moving::{self, Moving};
use test_support::listener::Listener;
use test_support::server::Server;

/// A semaphore on a private server, whose clock does not move until the test moves it.
pub(super) struct Timed {
    pub(super) server: Server,
    pub(super) scripts: Scripts,
    pub(super) now_us: i64,
}

impl Timed {
    pub(super) fn start() -> Self {
        Self::on(Server::start())
    }

    /// Starts a semaphore whose slot is migrating during each call made with the returned value.
    pub(super) fn start_moving() -> (Self, Moving) {
        let (server, moving) = moving::start("timed");
        (Self::on(server), moving)
    }

    fn on(server: Server) -> Self {
        server.clock.freeze_at(START_US);
        let scripts = Scripts::new(server.connect(), "timed");
        Self { server, scripts, now_us: START_US }
    }

    pub(super) fn now(&self) -> i64 {
        self.now_us / 1000
    }

    pub(super) fn pass(&mut self, ms: i64) {
        self.now_us += ms * 1000;
        self.server.clock.freeze_at(self.now_us);
    }

    pub(super) fn listen(&self, client: &str) -> Listener {
        let channel = format!("sem:wake:{client}");
        Listener::subscribe(self.server.connect(), "SUBSCRIBE", &channel)
    }

    /// Returns how often each command ran during `call`.
    pub(super) fn commands_of<T>(&mut self, call: impl FnOnce(&mut Self) -> T) -> (T, Commands) {
        self.command::<()>("CONFIG RESETSTAT");
        let result = call(self);
        let info: String = self.command("INFO commandstats");
        let calls = |line: &str| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name.to_owned(), rest.split(',').next()?.parse().unwrap()))
        };
        (result, Commands(info.lines().filter_map(calls).collect()))
    }
}

impl Deref for Timed {
    type Target = Scripts;

    fn deref(&self) -> &Scripts {
        &self.scripts
    }
}

impl DerefMut for Timed {
    fn deref_mut(&mut self) -> &mut Scripts {
        &mut self.scripts
    }
}

#[derive(Debug)]
pub(super) struct Commands(BTreeMap<String, i64>);

impl Commands {
    pub(super) fn count(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Returns how often scripts looked up subscribers. Redis 6.2 does not count subcommands
    /// separately.
    pub(super) fn lookups_of_listeners(&self) -> i64 {
        self.count("pubsub|numsub") + self.count("pubsub")
    }

    /// Returns the number of commands run by scripts, without the call itself and the client's own
    /// commands.
    pub(super) fn in_scripts(&self) -> i64 {
        let own = ["evalsha", "script|load", "config|resetstat", "info", "config", "script"];
        self.0.iter().filter(|(name, _)| !own.contains(&name.as_str())).map(|(_, n)| n).sum()
    }
}
