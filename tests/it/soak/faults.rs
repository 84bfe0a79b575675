//! What may happen to clients, connections and servers.

use std::time::Duration;

use tokio::time::sleep;

use super::crew::{Crew, Log};
use super::topology::{Nemesis, Topology};

/// A fault, and the undoing of it. What it was done to is chosen with `random`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    // Anywhere.
    KillClient,
    StopClient,
    KillConnections,
    ForgetScripts,
    // On the way to a single server, and there.
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
    // Where sentinels watch a primary.
    KillPrimary,
    StopPrimary,
    FailOver,
    // In a cluster.
    KillNode,
    StopNode,
    TakeOver,
    MoveSlot,
    /// Whoever was killed or stopped before a failover comes back, and becomes a replica.
    Rejoin,
}

impl Fault {
    /// What can be done to the clients of any topology.
    pub const CLIENTS: [Self; 2] = [Self::KillClient, Self::StopClient];

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

pub struct Field<T> {
    /// How many faults there were that may last: every other one does.
    pub lasted: u32,
    pub topology: T,
    pub crew: Crew,
    pub log: Log,
}

impl<T: Topology> Field<T> {
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
            Fault::KillClient => self.crew.kill_one(random),
            Fault::StopClient => {
                let process = *random.choice(&self.crew.numbers()).unwrap();
                self.crew.stop(process);
                // Longer than its heartbeat timeout, too.
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
