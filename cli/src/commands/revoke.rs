//! `revoke`: takes away what somebody holds or waits for.

use std::process::ExitCode;
use std::time::Duration;

use redis_semaphore::{Revoked, Semaphores};
use serde_json::json;

use crate::failure::{Failure, NO};
use crate::options::{Revoke, Server};
use crate::output::say;
use crate::server::with;
use crate::table::{millis, rounded};

pub fn run(server: &Server, asked: &Revoke) -> Result<ExitCode, Failure> {
    let revoked = with(server, async |semaphores: &Semaphores| {
        let semaphore = semaphores.semaphore(&*asked.name).limit_in_force().build()?;
        semaphore.revoke(&asked.id).await
    })?;
    let (was, overlap) = match revoked {
        Revoked::Permit { lease, .. } => ("permit", Some((lease / 3, lease))),
        Revoked::Request => ("request", None),
        _ => ("nothing", None),
    };
    match asked.json {
        true => say(json!({
            "name": asked.name,
            "id": asked.id,
            "was": was,
            "overlap_ms": overlap.map(|(usual, _)| millis(usual)),
            "longest_overlap_ms": overlap.map(|(_, longest)| millis(longest)),
        }))?,
        false => say(as_text(asked, was, overlap)?)?,
    }
    Ok(ExitCode::from(if was == "nothing" { NO } else { 0 }))
}

fn as_text(
    asked: &Revoke,
    was: &str,
    overlap: Option<(Duration, Duration)>,
) -> Result<String, Failure> {
    let name = &asked.name;
    match (was, overlap) {
        (_, Some((usual, longest))) => Ok(format!(
            "{name}: it was a permit. Its holder hears of it at its next renewal: for up to {} it and \
             whoever was let in work at the same time (for up to {} where it cannot reach Redis)",
            rounded(usual),
            rounded(longest)
        )),
        ("request", _) => Ok(format!(
            "{name}: it was a request that waited. If its process lives, it asks again and gets its \
             old place: end the process to keep it out"
        )),
        _ => Err(Failure::new(
            NO,
            format!(
                "{name}: nobody holds or waits by that id: it was given back, or its lease has \
                 ended; `inspect` shows who is there now"
            ),
        )),
    }
}
