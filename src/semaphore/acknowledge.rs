//! Permits that replicas must have before they are handed out.
//!
//! WAIT holds up its connection, and counts only what was written over it. So each semaphore that
//! wants this has a connection of its own, where a permit just granted is refreshed first: a
//! replica that has the refresh has the grant, since replicas get everything in order. (A refresh
//! is always sent to replicas, as it takes a number. Of one that wrote nothing Valkey would count
//! all replicas that have what was written over the connection before.)

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Cmd;
use redis::aio::MultiplexedConnection;
use tokio::sync::Mutex;

use crate::batching::{Lane, Lanes, Out, Request};
use crate::error::Error;
use crate::protocol::millis;
use crate::scripts::ScriptRegistry;
use crate::semaphore::claim::{self, Claim};
use crate::semaphore::gate::Gate;
use crate::semaphore::lease::Grant;
use crate::semaphore::requests::Refresh;
use crate::server::{Link, Unanswered};

/// How many replicas, and how long they may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Acknowledgement {
    pub(crate) replicas: u32,
    pub(crate) within: Duration,
}

/// Asks for a permit that was granted.
pub(crate) struct Acknowledge {
    claim: Arc<Claim>,
    duration: Duration,
    operation: &'static str,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Acknowledged {
    is_held: bool,
    /// That have it.
    replicas: u32,
}

impl Gate {
    /// Answers the grant when enough replicas have it, `None` when it was lost meanwhile.
    pub(crate) async fn acknowledge(
        self: &Arc<Self>,
        wanted: Acknowledgement,
        claim: &Arc<Claim>,
        grant: Grant,
        operation: &'static str,
        patience: Duration,
    ) -> Result<Option<Grant>, Error> {
        let Acknowledgement { replicas, within } = wanted;
        let duration = self.settings.first_lease();
        let request = Acknowledge { claim: claim.clone(), duration, operation };
        let patience = patience.saturating_add(within);
        let answer = self.ask(request, Instant::now(), patience).await?;
        match answer.reply {
            Acknowledged { is_held: false, .. } => Ok(None),
            Acknowledged { replicas: too_few, .. } if too_few < replicas => {
                Err(Error::NotAcknowledged {
                    semaphore: self.name.clone(),
                    replicas: too_few,
                    wanted: replicas,
                    within,
                })
            }
            Acknowledged { .. } => Ok(Some(Grant { since: answer.sent, ..grant })),
        }
    }
}

impl Request for Acknowledge {
    const SCRIPT: &'static str = Refresh::SCRIPT;
    const LANE: Lanes = claim::ACKNOWLEDGE;
    const AFTER: Lanes = claim::ACKNOWLEDGE;
    /// WAIT holds up what comes behind it on its connection.
    const MOST_CALLS: usize = 1;
    type Owner = Gate;
    type Reply = Acknowledged;

    fn lane(gate: &Gate) -> &Lane<Self> {
        &gate.acknowledges
    }

    fn operation(&self) -> &'static str {
        self.operation
    }

    fn out(&self) -> &Out {
        &self.claim.out
    }

    fn is_abandoned(&self) -> bool {
        self.claim.is_over()
    }

    fn is_over(&self, _gate: &Gate) -> bool {
        self.claim.is_over()
    }

    fn write_first(&self, _gate: &Gate, _cmd: &mut Cmd) {}

    fn write(&self, _gate: &Gate, cmd: &mut Cmd) {
        cmd.arg(&self.claim.word).arg(millis(self.duration));
    }

    /// The count of the replicas comes last.
    fn read(gate: &Arc<Gate>, reply: &[i64], count: usize) -> Vec<Acknowledged> {
        let Some((replicas, refreshed)) = reply.split_last() else {
            return Vec::new();
        };
        let replicas = u32::try_from(*replicas).unwrap_or_default();
        let held = Refresh::read(gate, refreshed, count);
        held.into_iter().map(|is_held| Acknowledged { is_held, replicas }).collect()
    }

    async fn attempt(
        gate: &Gate,
        write: impl Fn(&mut Cmd) + Send + Sync,
        limit: Duration,
    ) -> Result<Vec<i64>, Unanswered> {
        let Some(wanted) = gate.settings.acknowledgement else {
            unreachable!("only a semaphore that wants it asks for it");
        };
        let servers = &gate.shared().servers;
        let link = servers.link_of(gate.slot)?;
        let answer = gate.replicated.call(&link, wanted, write, limit).await;
        answer.inspect_err(|failure| servers.heed(gate.slot, &failure.error))
    }
}

/// The connection on which a semaphore waits for replicas.
#[derive(Default)]
pub(crate) struct Replicated(Mutex<Option<Connection>>);

struct Connection {
    /// To the same server as this one of that link.
    link: Arc<Link>,
    beside: u64,
    connection: MultiplexedConnection,
}

impl Replicated {
    async fn call(
        &self,
        link: &Arc<Link>,
        wanted: Acknowledgement,
        write: impl Fn(&mut Cmd),
        limit: Duration,
    ) -> Result<Vec<i64>, Unanswered> {
        let Acknowledgement { replicas, within } = wanted;
        let mut kept = self.0.lock().await;
        let call = async {
            let mut connection = connection(&mut kept, link, within).await?;
            let registry = ScriptRegistry::embedded();
            let mut reply: Vec<i64> =
                registry.run_with(&mut connection, link.call_by(), Refresh::SCRIPT, write).await?;
            let mut wait = redis::cmd("WAIT");
            wait.arg(replicas).arg(millis(within));
            reply.push(wait.query_async(&mut connection).await?);
            Ok(reply)
        };
        let limit = limit.min(link.response_timeout().saturating_add(within));
        let answer = crate::server::within(limit, call).await;
        if answer.is_err() {
            // What it answers from now on may be too late to know to whom.
            *kept = None;
        }
        answer.map_err(Unanswered::from)
    }
}

/// The one that is kept, as long as the link has the same server.
async fn connection(
    kept: &mut Option<Connection>,
    link: &Arc<Link>,
    within: Duration,
) -> Result<MultiplexedConnection, Error> {
    let main = link.connection().await?;
    if let Some(kept) = kept.as_ref()
        && Arc::ptr_eq(&kept.link, link)
        && kept.beside == main.number
    {
        return Ok(kept.connection.clone());
    }
    let dialer = link.dialer();
    let patience = dialer.response_timeout().saturating_add(within);
    let config = dialer.config().set_response_timeout(Some(patience));
    let connection = dialer.connect(&main.client, &config).await?;
    let (link, beside) = (link.clone(), main.number);
    *kept = Some(Connection { link, beside, connection: connection.clone() });
    Ok(connection)
}

impl fmt::Debug for Replicated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replicated").finish_non_exhaustive()
    }
}
