//! Permits that are returned only after replicas have acknowledged them.

use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;

use super::batching::{Batcher, Request};
use super::{Core, Refresh, refresh};
use crate::error::Error;
use crate::runtime::Deadline;
use crate::semaphore::lease::Grant;
use crate::semaphore::ledger::{self, Acquisition, Calls, Kinds};
use crate::semaphore::settings::Acknowledgement;
use crate::server::CallError;

/// A request for acknowledgements of a permit that was granted.
pub(crate) struct Acknowledge {
    acquisition: Arc<Acquisition>,
    duration: Duration,
    operation: &'static str,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Acknowledged {
    is_held: bool,
    /// The number of replicas that have the permit.
    replicas: u32,
}

impl Core {
    /// Returns the grant when enough replicas have acknowledged it. Returns `None` if the permit
    /// was lost.
    pub(crate) async fn acknowledge(
        self: &Arc<Self>,
        wanted: Acknowledgement,
        acquisition: &Arc<Acquisition>,
        grant: Grant,
        operation: &'static str,
        patience: Duration,
    ) -> Result<Option<Grant>, Error> {
        let Acknowledgement { replicas, within } = wanted;
        let duration = self.settings.first_lease();
        let request = Acknowledge { acquisition: acquisition.clone(), duration, operation };
        let patience = patience.saturating_add(within);
        let response = self.ask(request, Deadline::after(patience)).await?;
        match response.reply {
            Acknowledged { is_held: false, .. } => Ok(None),
            Acknowledged { replicas: too_few, .. } if too_few < replicas => {
                Err(Error::NotAcknowledged {
                    semaphore: self.name.clone(),
                    replicas: too_few,
                    wanted: replicas,
                    within,
                })
            }
            Acknowledged { .. } => Ok(Some(Grant { since: response.sent, ..grant })),
        }
    }
}

impl Request for Acknowledge {
    const SCRIPT: &'static str = Refresh::SCRIPT;
    const KIND: Kinds = ledger::REFRESH;
    /// WAIT blocks all later commands on its connection.
    const MAX_CALLS: usize = 1;
    const CALLED: &'static str = "acknowledge";
    type Reply = Acknowledged;

    fn batcher(core: &Core) -> &Batcher<Self> {
        &core.acknowledge_batcher
    }

    fn operation(&self) -> &'static str {
        self.operation
    }

    fn calls(&self) -> &Calls {
        &self.acquisition.calls
    }

    fn is_unneeded(&self, _core: &Core) -> bool {
        self.acquisition.is_ended()
    }

    fn write(&self, _core: &Core, cmd: &mut Cmd) {
        refresh::write(cmd, &self.acquisition, self.duration);
    }

    /// The number of replicas comes last in the reply.
    fn read(core: &Arc<Core>, reply: &[i64], count: usize) -> Vec<Acknowledged> {
        let Some((replicas, refreshed)) = reply.split_last() else {
            return Vec::new();
        };
        let replicas = u32::try_from(*replicas).unwrap_or_default();
        let held = Refresh::read(core, refreshed, count);
        held.into_iter().map(|is_held| Acknowledged { is_held, replicas }).collect()
    }

    fn longest_call(core: &Core) -> Duration {
        let within = core.settings.acknowledgement.map_or(Duration::ZERO, |wanted| wanted.within);
        core.context.settings.response_timeout.saturating_add(within)
    }

    async fn attempt(
        core: &Core,
        mark: u64,
        write: impl Fn(&mut Cmd) + Send + Sync,
        limit: Duration,
    ) -> Result<Vec<i64>, CallError> {
        let Some(wanted) = core.settings.acknowledgement else {
            unreachable!("only semaphores with acknowledged_by request acknowledgements");
        };
        let servers = &core.context.servers;
        let Some(link) = servers.link_of(core.slot)? else {
            // A server in memory behaves like a server without replicas.
            let mut reply = core.attempt(mark, Self::SCRIPT, write, limit).await?;
            tokio::time::sleep(wanted.within).await;
            reply.push(0);
            return Ok(reply);
        };
        let response = core.replication.call(&link, wanted, write, limit).await;
        response.inspect_err(|failure| servers.note_failure(core.slot, &failure.error))
    }
}
