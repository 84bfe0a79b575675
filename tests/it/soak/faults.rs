//! The faults of clients, connections and servers.

use std::time::Duration;

use tokio::time::sleep;

use super::crew::{Crew, Log};
use super::topology::{Nemesis, Topology};

/// A fault, which is undone after some time. The target of the fault is chosen at random.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    // These faults occur in all topologies.
    KillClient,
    StopClient,
    KillConnections,
    ForgetScripts,
    // These faults concern a single server, or the network between the server and the clients.
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
    RestartServer,
    ClockForward,
    ClockBack,
    LoseData,
    // These faults concern a primary with sentinels.
    KillPrimary,
    StopPrimary,
    FailOver,
    // These faults concern a cluster.
    KillNode,
    StopNode,
    TakeOver,
    MoveSlot,
    /// After a failover, the old primary, which was killed or stopped, runs again and becomes a
    /// replica.
    Rejoin,
}

impl Fault {
    pub const CLIENTS: [Self; 2] = [Self::KillClient, Self::StopClient];

    pub fn name(self) -> String {
        format!("{self:?}")
    }

    /// Returns whether the fault sometimes lasts longer than a lease, so that permits are lost.
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

    /// Returns whether waiters of processes other than the target may lose their positions in the
    /// queue, or may be skipped.
    pub fn spoils_order(self) -> bool {
        !matches!(self, Self::KillClient | Self::StopClient | Self::ForgetScripts)
    }
}

pub struct Field<T> {
    /// The number of faults so far that may last longer than a lease. Half of these faults actually
    /// last longer than a lease.
    pub lasted: u32,
    pub topology: T,
    pub crew: Crew,
    pub log: Log,
}

impl<T: Topology> Field<T> {
    /// Injects the fault, and undoes it after some time.
    pub async fn inflict(&mut self, fault: Fault, random: &mut fastrand::Rng) {
        let while_it_lasts = match fault.may_last() && self.lasted.is_multiple_of(2) {
            // This time is longer than a lease, so that the test sees whether a loss is reported in
            // time.
            true => random.u64(2300..2800),
            false => random.u64(20..600),
        };
        self.lasted += u32::from(fault.may_last());
        let while_it_lasts = Duration::from_millis(while_it_lasts);
        match fault {
            Fault::KillClient => self.crew.kill_one(random),
            Fault::StopClient => {
                let process = *random.choice(&self.crew.numbers()).unwrap();
                self.crew.stop(process);
                // A long pause also exceeds the heartbeat timeout.
                sleep(while_it_lasts * 3 / 2).await;
                self.crew.go_on(process);
            }
            _ => {
                let (crew, log) = (&mut self.crew, &self.log);
                let mut nemesis = Nemesis { crew, log, random, while_it_lasts };
                self.topology.inflict(fault, &mut nemesis).await;
            }
        }
    }
}
