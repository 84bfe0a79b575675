//! `revoke`: takes away what somebody holds or waits for.

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
The holder hears at its next renewal, after a third of its lease at most. Until then it and whoever was \
let in work at the same time. End its process first where that must not be. Of a \
start that was left nobody hears: its place is free at once.

A request leaves the queue, but if its process lives, that asks again and gets its old place. End the \
process to keep it out.

Exit status: 0 taken away, 1 nobody holds or waits by that id, others as for all commands.")]
pub struct Revoke {
    /// The name of the semaphore
    #[arg(value_parser = argument)]
    pub name: String,
    /// The id, as `inspect` shows it
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

/// Whose it was, as `inspect` shows it: an id that was found has it in it.
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
                "{name}: the permit was revoked. Its holder{client_name} hears of it at its next renewal: for up to {} it \
                 and whoever was let in work at the same time (for up to {} where it cannot reach \
                 Redis)",
                at_most(usual),
                at_most(longest)
            ))
        }
        Revoked::Request => Ok(format!(
            "{name}: the request was taken out of the queue. If its process{client_name} lives, it asks again and \
             gets its old place: end the process to keep it out"
        )),
        _ => Err(Failure::new(
            NO,
            format!(
                "{name}: nobody holds or waits by that id: it was given back, its lease has ended, or an \
                 earlier attempt took it; `inspect` shows who is there now"
            ),
        )),
    }
}
