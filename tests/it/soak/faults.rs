//! What may happen to clients, connections and servers.

use std::time::{Duration, SystemTime};

use tokio::time::sleep;

use crate::support::proxy::{Flow, Proxy};
use crate::support::scripts::keys_of;
use crate::support::server::Server;

use super::campaign::WAY;
use super::crew::{Crew, Log};
use super::history::{ALL, Moment, What, now};
use super::{KINDS, LEASE};

/// A fault, and the undoing of it. What it was done to is chosen with `random`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    KillClient,
    StopClient,
    CutCommands,
    CutWakeups,
    CutAll,
    HoldCommands,
    SwallowReplies,
    DelayReplies,
    SwallowMessages,
    HoldMessages,
    RefuseConnections,
    PauseServer,
    KillConnections,
    ForgetScripts,
    RestartServer,
    ClockForward,
    ClockBack,
    LoseData,
}

impl Fault {
    /// What can be done to one server with append-only files.
    pub const ONE_SERVER: [Self; 18] = [
        Self::KillClient,
        Self::StopClient,
        Self::CutCommands,
        Self::CutWakeups,
        Self::CutAll,
        Self::HoldCommands,
        Self::SwallowReplies,
        Self::DelayReplies,
        Self::SwallowMessages,
        Self::HoldMessages,
        Self::RefuseConnections,
        Self::PauseServer,
        Self::KillConnections,
        Self::ForgetScripts,
        Self::RestartServer,
        Self::ClockForward,
        Self::ClockBack,
        Self::LoseData,
    ];

    pub fn name(self) -> String {
        format!("{self:?}")
    }

    /// Whether it takes longer than a lease now and then, so that permits are lost.
    fn may_last(self) -> bool {
        matches!(
            self,
            Self::StopClient
                | Self::HoldCommands
                | Self::SwallowReplies
                | Self::DelayReplies
                | Self::HoldMessages
                | Self::RefuseConnections
                | Self::PauseServer
                | Self::RestartServer
        )
    }

    /// Whether waiters other than those of the victim may lose their places or their turns.
    pub fn spoils_order(self) -> bool {
        !matches!(self, Self::KillClient | Self::StopClient | Self::ForgetScripts)
    }
}

pub struct Field {
    /// How many faults there were that may last: every other one does.
    pub lasted: u32,
    pub server: Server,
    pub clock: ServerClock,
    pub proxy: Proxy,
    pub crew: Crew,
    pub log: Log,
}

/// By how many µs the server's clock is ahead of the machine's, and was.
#[derive(Debug, Clone, Copy, Default)]
pub struct ServerClock {
    pub ahead: i64,
    pub most: i64,
    pub least: i64,
}

impl Field {
    /// Does it, and undoes it after a while.
    pub async fn inflict(&mut self, fault: Fault, random: &mut fastrand::Rng) {
        let while_it_lasts = match fault.may_last() && self.lasted.is_multiple_of(2) {
            // Longer than a lease, and for long enough to see that a loss is told in time.
            true => random.u64(2300..2800),
            false => random.u64(20..600),
        };
        self.lasted += u32::from(fault.may_last());
        let while_it_lasts = Duration::from_millis(while_it_lasts);
        match fault {
            Fault::KillClient | Fault::StopClient => {
                self.inflict_on_client(fault, while_it_lasts, random).await;
            }
            Fault::PauseServer
            | Fault::KillConnections
            | Fault::ForgetScripts
            | Fault::RestartServer
            | Fault::ClockForward
            | Fault::ClockBack
            | Fault::LoseData => self.inflict_on_server(fault, while_it_lasts, random).await,
            _ => self.inflict_on_way(fault, while_it_lasts).await,
        }
    }

    async fn inflict_on_client(
        &mut self,
        fault: Fault,
        while_it_lasts: Duration,
        random: &mut fastrand::Rng,
    ) {
        if fault == Fault::KillClient {
            self.kill_client(random);
            return;
        }
        let process = *random.choice(&self.crew.numbers()).unwrap();
        self.crew.stop(process);
        // Longer than its liveness, too.
        sleep(while_it_lasts * 3 / 2).await;
        self.crew.go_on(process);
    }

    fn kill_client(&mut self, random: &mut fastrand::Rng) {
        let process = *random.choice(&self.crew.numbers()).unwrap();
        self.crew.kill(process);
        self.crew.start_one();
    }

    async fn inflict_on_way(&mut self, fault: Fault, while_it_lasts: Duration) {
        let proxy = &self.proxy;
        match fault {
            Fault::CutCommands => proxy.cut_commands(),
            Fault::CutWakeups => proxy.cut_wakeups(),
            Fault::CutAll => proxy.cut_all(),
            Fault::HoldCommands => {
                proxy.commands(Flow::Hold);
                sleep(while_it_lasts).await;
                proxy.commands(Flow::Pass);
            }
            // What is lost of a stream is lost with its connection.
            Fault::SwallowReplies => {
                proxy.replies(Flow::Swallow);
                sleep(while_it_lasts).await;
                proxy.cut_commands();
                proxy.replies(Flow::Pass);
            }
            Fault::SwallowMessages => {
                proxy.messages(Flow::Swallow);
                sleep(while_it_lasts).await;
                proxy.cut_wakeups();
                proxy.messages(Flow::Pass);
            }
            Fault::DelayReplies => {
                proxy.replies(Flow::Hold);
                sleep(while_it_lasts).await;
                proxy.replies(Flow::Pass);
            }
            Fault::HoldMessages => {
                proxy.messages(Flow::Hold);
                sleep(while_it_lasts).await;
                proxy.messages(Flow::Pass);
            }
            Fault::RefuseConnections => {
                proxy.refuse_connections(true);
                proxy.cut_all();
                sleep(while_it_lasts).await;
                proxy.refuse_connections(false);
            }
            _ => unreachable!("{fault:?} is nothing on the way"),
        }
    }

    async fn inflict_on_server(
        &mut self,
        fault: Fault,
        while_it_lasts: Duration,
        random: &mut fastrand::Rng,
    ) {
        // Less than a lease, more than liveness, more than any expiry of keys.
        let step = *random.choice(&[700, 20_000, 10_000_000]).unwrap();
        let step = random.i64(step / 7..step) * 1000;
        match fault {
            Fault::PauseServer => {
                let time = while_it_lasts.as_millis().to_string();
                self.command::<()>(&["CLIENT", "PAUSE", &time]);
                sleep(while_it_lasts).await;
            }
            Fault::KillConnections => {
                self.command::<u32>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
                self.command::<u32>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            }
            Fault::ForgetScripts => self.command(&["SCRIPT", "FLUSH"]),
            Fault::RestartServer => {
                self.server.kill();
                sleep(while_it_lasts).await;
                self.server.start_again();
            }
            Fault::ClockForward => {
                let since = now();
                self.set_clock(self.clock.ahead + step);
                self.settle(since).await;
            }
            // Nothing may be lost, and the dead must not hold for longer.
            Fault::ClockBack => {
                self.kill_client(random);
                self.set_clock(self.clock.ahead - step);
            }
            Fault::LoseData => self.lose_data().await,
            _ => unreachable!("{fault:?} is nothing that a server does"),
        }
    }

    fn set_clock(&mut self, ahead: i64) {
        let most = ahead.max(self.clock.most);
        self.clock = ServerClock { ahead, most, least: ahead.min(self.clock.least) };
        self.server.clock.run_ahead_by(ahead);
        let machine = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let off = self.server_time() - (machine.as_micros() as i64 + ahead);
        assert!(off.abs() < 5_000_000, "the server's clock was not moved: it is {off} µs off");
    }

    /// Forgets everything, the limits set at run time, too.
    async fn lose_data(&mut self) {
        let since = now();
        // Without data tokens go on growing only if the clock is not behind the last one.
        self.set_clock(self.clock.most);
        let declared = KINDS.iter().enumerate().filter(|(_, kind)| kind.changes);
        for (semaphore, kind) in declared.clone() {
            self.log.say(ALL, What::SetsLimit { semaphore, limit: kind.limit.into() });
        }
        self.command::<()>(&["FLUSHALL"]);
        for (semaphore, kind) in declared {
            self.log.say(ALL, What::LimitIs { semaphore, limit: kind.limit.into() });
        }
        self.settle(since).await;
    }

    /// Permits may have been lost since then; waits until all holders must have heard of it.
    async fn settle(&self, since: Moment) {
        for (semaphore, kind) in KINDS.iter().enumerate() {
            let [.., state] = &keys_of(kind.name)[..] else { unreachable!("there are four") };
            let last = self.command::<Option<u64>>(&["HGET", state, "sequence"]);
            let token = last.unwrap_or(0).max(self.server_time() as u64);
            self.log.say(ALL, What::Unsettled { semaphore, since, token });
        }
        sleep(LEASE / 3 + Duration::from_nanos(WAY)).await;
    }

    fn server_time(&self) -> i64 {
        let (seconds, us) = self.command::<(i64, i64)>(&["TIME"]);
        seconds * 1_000_000 + us
    }

    fn command<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        redis::cmd(words[0]).arg(&words[1..]).query(&mut self.server.connect()).unwrap()
    }
}
