//! The connection on which a semaphore waits for replicas.
//!
//! WAIT blocks its connection, and counts only writes that were sent over this connection.
//! Therefore each semaphore that uses WAIT has an additional connection. Before WAIT, the semaphore
//! refreshes the new permit over this connection. A replica that has the refresh also has the
//! grant, because replicas apply all writes in order. A refresh always writes, because it takes a
//! number from the sequence of tickets and tokens. If a refresh wrote nothing, Valkey would count
//! every replica that has the earlier writes of the connection.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, RedisError};
use tokio::sync::Mutex;

use crate::protocol::millis;
use crate::scripts::ScriptRegistry;
use crate::semaphore::settings::Acknowledgement;
use crate::server::{self, CallError, Dialed, Link};

#[derive(Default)]
pub(crate) struct Replication(Mutex<Option<Box<Connection>>>);

struct Connection {
    /// This connection goes to the same server as connection number `beside` of the link.
    link: Arc<Link>,
    beside: u64,
    dialed: Dialed,
}

impl Replication {
    /// Calls the script `refresh`, and then the command WAIT.
    pub(super) async fn call(
        &self,
        link: &Arc<Link>,
        wanted: Acknowledgement,
        write: impl Fn(&mut Cmd),
        limit: Duration,
    ) -> Result<Vec<i64>, CallError> {
        let Acknowledgement { replicas, within } = wanted;
        let mut kept = self.0.lock().await;
        let call = async {
            let connected = connection(&mut kept, link).await;
            let dialed = connected.map_err(CallError::unsent)?;
            let mut connection = dialed.unlimited();
            let registry = ScriptRegistry::embedded();
            let mut reply: Vec<i64> =
                registry.run_with(&mut connection, link.call_by(), "refresh", write).await?;
            let mut wait = redis::cmd("WAIT");
            wait.arg(replicas).arg(millis(within));
            reply.push(wait.query_async(&mut connection).await?);
            Ok(reply)
        };
        let limit = limit.min(link.response_timeout().saturating_add(within));
        let response = server::within(limit, call).await;
        if response.is_err() {
            // A late reply could be mistaken for the reply to a later call.
            *kept = None;
        }
        response
    }
}

/// Returns the kept connection. Creates a new connection if none is kept, if the semaphore has
/// another link now, or if the link has reconnected.
async fn connection(
    kept: &mut Option<Box<Connection>>,
    link: &Arc<Link>,
) -> Result<Dialed, RedisError> {
    let main = link.connection().await?;
    if let Some(kept) = kept.as_ref()
        && Arc::ptr_eq(&kept.link, link)
        && kept.beside == main.number
    {
        return Ok(kept.dialed.clone());
    }
    let dialer = link.dialer();
    let dialed = dialer.connect(&main.client, &dialer.config()).await?;
    let (link, beside) = (link.clone(), main.number);
    *kept = Some(Box::new(Connection { link, beside, dialed: dialed.clone() }));
    Ok(dialed)
}
