//! What may happen to clients, connections and servers.

use std::time::Duration;

use tokio::time::sleep;

use crate::support::proxy::{Flow, Proxy};
use crate::support::server::Server;

use super::crew::Crew;

/// A fault, and the undoing of it. What it was done to is chosen with `random`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    KillClient,
    StopClient,
    CutCommands,
    CutWakeups,
    CutAll,
    SwallowReplies,
    DelayReplies,
    HoldMessages,
    RefuseConnections,
    PauseServer,
    KillConnections,
    ForgetScripts,
    RestartServer,
}

impl Fault {
    pub const ALL: [Self; 13] = [
        Self::KillClient,
        Self::StopClient,
        Self::CutCommands,
        Self::CutWakeups,
        Self::CutAll,
        Self::SwallowReplies,
        Self::DelayReplies,
        Self::HoldMessages,
        Self::RefuseConnections,
        Self::PauseServer,
        Self::KillConnections,
        Self::ForgetScripts,
        Self::RestartServer,
    ];

    pub fn name(self) -> String {
        format!("{self:?}")
    }
}

pub struct Field {
    pub server: Server,
    pub proxy: Proxy,
    pub crew: Crew,
}

impl Field {
    /// Does it, and undoes it after a while.
    pub async fn inflict(&mut self, fault: Fault, random: &mut fastrand::Rng) {
        let mut while_it_lasts = Duration::from_millis(random.u64(20..900));
        match fault {
            Fault::KillClient => {
                let numbers = self.crew.numbers();
                self.crew.kill(*random.choice(&numbers).unwrap());
                self.crew.start_one();
            }
            Fault::StopClient => {
                // Also for longer than its leases.
                while_it_lasts *= 4;
                let numbers = self.crew.numbers();
                let process = *random.choice(&numbers).unwrap();
                self.crew.stop(process);
                sleep(while_it_lasts).await;
                self.crew.go_on(process);
            }
            Fault::CutCommands => self.proxy.cut_commands(),
            Fault::CutWakeups => self.proxy.cut_wakeups(),
            Fault::CutAll => self.proxy.cut_all(),
            Fault::SwallowReplies => {
                self.proxy.replies(Flow::Swallow);
                sleep(while_it_lasts).await;
                // What is lost of a stream is lost with its connection.
                self.proxy.cut_commands();
                self.proxy.replies(Flow::Pass);
            }
            Fault::DelayReplies => {
                self.proxy.replies(Flow::Hold);
                sleep(while_it_lasts).await;
                self.proxy.replies(Flow::Pass);
            }
            Fault::HoldMessages => {
                self.proxy.messages(Flow::Hold);
                sleep(while_it_lasts).await;
                self.proxy.messages(Flow::Pass);
            }
            Fault::RefuseConnections => {
                self.proxy.refuse_connections(true);
                self.proxy.cut_all();
                sleep(while_it_lasts).await;
                self.proxy.refuse_connections(false);
            }
            Fault::PauseServer => {
                let time = while_it_lasts.as_millis().to_string();
                self.command(&["CLIENT", "PAUSE", &time]);
                sleep(while_it_lasts).await;
            }
            Fault::KillConnections => {
                self.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
                self.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            }
            Fault::ForgetScripts => self.command(&["SCRIPT", "FLUSH"]),
            Fault::RestartServer => {
                self.server.kill();
                sleep(while_it_lasts).await;
                self.server.start_again();
            }
        }
    }

    fn command(&self, words: &[&str]) {
        redis::cmd(words[0]).arg(&words[1..]).exec(&mut self.server.connect()).unwrap();
    }
}
