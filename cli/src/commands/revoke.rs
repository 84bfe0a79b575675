//! `revoke`: revokes a permit, or removes a request from the queue.

use std::process::ExitCode;

use clap::Args;
use redis_semaphore::{Revoked, SemaphoreClient};
use serde_json::{Value, json};

use crate::escape::{argument, value};
use crate::failure::{Failure, NO};
use crate::format::Format;
use crate::limits::with_existing_limit;
use crate::output::{say, say_json};
use crate::overlap::overlap;
use crate::server::options::Server;
use crate::server::with;
use crate::table::{at_most, millis};

#[derive(Debug, Args)]
#[command(after_help = "\
The old holder finds out at its next refresh, after at most a third of its lease, or at the end of \
its lease if it cannot reach Redis. Until then, the old and the next holder may work at the same \
time. To prevent that, end the old holder's process instead.

A removed request returns to its old position with the next heartbeat of its process, within 5 s by \
default. To keep the request out, end the process.

Exit status: 0 if revoked, 1 if no permit or request has this ID.")]
pub struct Revoke {
    /// Name of the semaphore
    #[arg(value_parser = argument)]
    pub name: String,
    /// ID, as `inspect` shows it
    pub id: String,
    #[command(flatten)]
    pub format: Format,
}

pub fn run(server: &Server, asked: &Revoke) -> Result<ExitCode, Failure> {
    let revoked = with(server, async |client: &SemaphoreClient| {
        let semaphore = with_existing_limit(client, &asked.name)?;
        semaphore.revoke(&asked.id).await.map_err(Failure::of_change)
    })?;
    match asked.format.json {
        true => say_json(&as_json(asked, &revoked))?,
        false => say(as_text(asked, &revoked)?)?,
    }
    Ok(match revoked {
        Revoked::Permit { .. } | Revoked::Request => ExitCode::SUCCESS,
        _ => ExitCode::from(NO),
    })
}

fn as_json(asked: &Revoke, revoked: &Revoked) -> Value {
    let (was, overlap) = match revoked {
        Revoked::Permit { lease, .. } => ("permit", Some(overlap(*lease))),
        Revoked::Request => ("request", None),
        _ => ("nothing", None),
    };
    json!({
        "name": asked.name,
        "id": asked.id,
        "revoked": was,
        "overlap_ms": overlap.map(|(usual, _)| millis(usual)),
        "longest_overlap_ms": overlap.map(|(_, longest)| millis(longest)),
    })
}

/// Returns the client name, as `inspect` shows it. Every ID that was found contains the client
/// name.
fn client_name_of<'a>(asked: &'a Revoke, revoked: &Revoked) -> Option<&'a str> {
    let was_found = matches!(revoked, Revoked::Permit { .. } | Revoked::Request);
    let client = asked.id.split(':').nth(1).filter(|_| was_found)?;
    client.rsplit_once('.').map(|(client_name, _)| client_name)
}

fn as_text(asked: &Revoke, revoked: &Revoked) -> Result<String, Failure> {
    let name = value(&asked.name);
    let client_name = client_name_of(asked, revoked)
        .map(|client_name| format!(", {client_name},"))
        .unwrap_or_default();
    match revoked {
        Revoked::Permit { lease, .. } => {
            let (usual, longest) = overlap(*lease);
            Ok(format!(
                "{name}: the permit was revoked. If its holder{client_name} still refreshes it, the \
                 holder finds out at the next refresh. Until then, for up to {}, it and the next \
                 holder may work at the same time (for up to {} if it cannot reach Redis)",
                at_most(usual),
                at_most(longest)
            ))
        }
        Revoked::Request => Ok(format!(
            "{name}: the request was removed from the queue. If its process{client_name} is \
             alive, the request returns to its old position with the next heartbeat: end the \
             process to keep it out"
        )),
        _ => Err(Failure::new(
            NO,
            format!(
                "semaphore {name}: no permit or request has this ID: it was released or revoked, \
                 or its lease expired; `redis-semaphore inspect {name}` shows the current IDs"
            ),
        )),
    }
}
