//! A single server with an append-only file, and a proxy between the server and the clients.

use std::time::{Duration, SystemTime};

use redis::Connection;
use tokio::time::sleep;

use test_support::proxy::{Flow, Proxy};
use test_support::scripts::keys_of;
use test_support::server::Server;

use super::super::checker::Bounds;
use super::super::crew::Log;
use super::super::faults::Fault;
use super::super::history::{ALL, Moment, What, now};
use super::super::{KINDS, LEASE, Special};
use super::{Address, Names, Nemesis, Topology, command, forget_scripts, kill_connections};

pub struct Single {
    server: Server,
    clock: ServerClock,
    proxy: Proxy,
}

/// The lead of the server's clock over the machine's clock, in µs, and its maximum and minimum so
/// far.
#[derive(Debug, Clone, Copy, Default)]
struct ServerClock {
    ahead: i64,
    most: i64,
    least: i64,
}

impl Topology for Single {
    const NAME: &str = "single";
    const FAULTS: &[Fault] = &[
        Fault::CutCommands,
        Fault::CutWakeups,
        Fault::CutAll,
        Fault::HoldCommands,
        Fault::SwallowReplies,
        Fault::DelayReplies,
        Fault::SwallowMessages,
        Fault::HoldMessages,
        Fault::RefuseConnections,
        Fault::PauseServer,
        Fault::KillConnections,
        Fault::ForgetScripts,
        Fault::RestartServer,
        Fault::ClockForward,
        Fault::ClockBack,
        Fault::LoseData,
    ];
    const BOUNDS: Bounds = super::BOUNDS;
    const RECOVERY: Duration = Duration::from_secs(20);

    fn names(&self) -> Names {
        KINDS.each_ref().map(|kind| kind.name.to_owned())
    }

    fn address(&self) -> Address {
        Address::Server(self.proxy.url())
    }

    fn direct_address(&self) -> Address {
        Address::Server(self.server.url())
    }

    fn servers(&self) -> Vec<String> {
        vec![self.server.admin_url()]
    }

    fn home_of(&self, _semaphore: usize) -> Connection {
        self.server.connect()
    }

    fn clock_moved(&self) -> Duration {
        Duration::from_micros(self.clock.most.abs_diff(self.clock.least))
    }

    async fn inflict(&mut self, fault: Fault, nemesis: &mut Nemesis<'_>) {
        match fault {
            Fault::PauseServer
            | Fault::KillConnections
            | Fault::ForgetScripts
            | Fault::RestartServer
            | Fault::ClockForward
            | Fault::ClockBack
            | Fault::LoseData => self.inflict_on_server(fault, nemesis).await,
            _ => self.inflict_on_way(fault, nemesis.while_it_lasts).await,
        }
    }
}

impl Single {
    pub async fn start() -> Self {
        // Data that was written survives SIGKILL. Syncing the data would only delay the server, by
        // seconds on a busy machine.
        let server = Server::start_with(&["--appendonly", "yes", "--appendfsync", "no"]);
        let proxy = Proxy::start(server.port).await;
        Self { server, clock: ServerClock::default(), proxy }
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
            // TCP loses data only with the whole connection.
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

    async fn inflict_on_server(&mut self, fault: Fault, nemesis: &mut Nemesis<'_>) {
        let while_it_lasts = nemesis.while_it_lasts;
        // The largest steps in ms: less than a lease, more than the heartbeat timeout, and more
        // than the longest time for which keys are kept.
        let step = *nemesis.random.choice(&[700, 20_000, 10_000_000]).unwrap();
        let step = nemesis.random.i64(step / 7..step) * 1000;
        match fault {
            Fault::PauseServer => {
                let time = while_it_lasts.as_millis().to_string();
                self.command::<()>(&["CLIENT", "PAUSE", &time]);
                sleep(while_it_lasts).await;
            }
            Fault::KillConnections => kill_connections(&mut self.server.connect()),
            Fault::ForgetScripts => forget_scripts(&mut self.server.connect()),
            Fault::RestartServer => {
                self.server.kill();
                sleep(while_it_lasts).await;
                self.server.start_again();
            }
            Fault::ClockForward => {
                let since = now();
                self.set_clock(nemesis.log, self.clock.ahead + step);
                self.settle(nemesis.log, since).await;
            }
            // No permit may be lost, and a dead holder must not hold longer than a lease.
            Fault::ClockBack => {
                nemesis.crew.kill_one(nemesis.random);
                self.set_clock(nemesis.log, self.clock.ahead - step);
            }
            Fault::LoseData => self.lose_data(nemesis.log).await,
            _ => unreachable!("{fault:?} is nothing that a server does"),
        }
    }

    fn set_clock(&mut self, log: &Log, ahead: i64) {
        let since = now();
        let most = ahead.max(self.clock.most);
        self.clock = ServerClock { ahead, most, least: ahead.min(self.clock.least) };
        self.server.clock.run_ahead_by(ahead);
        let machine = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let off = self.server_time() - (machine.as_micros() as i64 + ahead);
        assert!(off.abs() < 5_000_000, "the server's clock was not moved: it is {off} µs off");
        log.say(ALL, What::ClockIs { since, ahead: ahead * 1000 });
    }

    /// Removes all data, including the runtime limits.
    async fn lose_data(&mut self, log: &Log) {
        let since = now();
        // Without data, tokens increase only if the clock is not behind the last token.
        self.set_clock(log, self.clock.most);
        let declared =
            KINDS.iter().enumerate().filter(|(_, kind)| kind.special == Special::Changes);
        for (semaphore, kind) in declared.clone() {
            log.say(ALL, What::SetsLimit { semaphore, limit: kind.limit.into() });
        }
        self.command::<()>(&["FLUSHALL"]);
        for (semaphore, kind) in declared {
            log.say(ALL, What::LimitIs { semaphore, limit: kind.limit.into() });
        }
        self.settle(log, since).await;
    }

    /// Records that permits may have been lost since `since`, and waits until all holders must know
    /// of their losses.
    async fn settle(&self, log: &Log, since: Moment) {
        for (semaphore, kind) in KINDS.iter().enumerate() {
            let state = &keys_of(kind.name)[3];
            let last = match self.command::<bool>(&["EXISTS", state]) {
                true => self.command::<u64>(&["HGET", state, "last_number"]),
                false => 0,
            };
            let token = last.max(self.server_time() as u64);
            log.say(ALL, What::Unsettled { semaphore, since, token });
        }
        sleep(LEASE / 3 + Duration::from_nanos(Self::BOUNDS.way)).await;
    }

    fn server_time(&self) -> i64 {
        let (seconds, us) = self.command::<(i64, i64)>(&["TIME"]);
        seconds * 1_000_000 + us
    }

    fn command<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        command(&mut self.server.connect(), words)
    }
}
