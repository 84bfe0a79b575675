//! `inspect`: shows one semaphore with all its holders and waiters.

use std::collections::HashSet;
use std::process::ExitCode;

use clap::Args;
use redis_semaphore::{Error, GroupInspection, Holder, Inspection, SemaphoreClient, Waiter};
use serde_json::{Value, json};

use super::must_exist;
use crate::escape::{argument, value};
use crate::failure::Failure;
use crate::format::Format;
use crate::group;
use crate::limits::{limit_of, with_existing_limit};
use crate::server::looking;
use crate::server::options::Server;
use crate::table::{millis, or_none, rounded, table};

#[derive(Debug, Args)]
#[command(after_help = "PROCESS shows whether a waiter's process is alive, judging by its last \
                  heartbeat.\n\nExit status: 0 if the semaphore exists, 1 if not.")]
pub struct Inspect {
    /// Name of the semaphore
    #[arg(value_parser = argument)]
    pub name: String,
    /// Show the groups instead of the holders and waiters
    #[arg(long)]
    pub groups: bool,
    #[command(flatten)]
    pub format: Format,
}

pub fn run(server: &Server, asked: &Inspect) -> Result<ExitCode, Failure> {
    let name = &asked.name;
    if asked.groups {
        let (now, groups) =
            looking(server, async |client: &SemaphoreClient| look_at_groups(client, name).await)?;
        must_exist(name, &now)?;
        let mut json = numbers(name, &now);
        json["groups"] = groups.iter().map(group::as_json).collect();
        let text = format!("{}\n\n{}", first_line(name, &now), group::as_table(&groups));
        asked.format.say(json, text)?;
    } else {
        let now = looking(server, async |client: &SemaphoreClient| look_at(client, name).await)?;
        must_exist(name, &now)?;
        asked.format.say(as_json(name, &now), as_text(name, &now))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn look_at_groups(
    client: &SemaphoreClient,
    name: &str,
) -> Result<(Inspection, Vec<GroupInspection>), Error> {
    let semaphore = with_existing_limit(client, name)?;
    Ok((semaphore.inspect_range(0..0, 0..0).await?, semaphore.inspect_groups().await?))
}

/// Returns all holders and waiters. Each call returns one page of them. A holder or waiter that
/// moves between two calls may be on two pages. The result contains it only once.
async fn look_at(client: &SemaphoreClient, name: &str) -> Result<Inspection, Error> {
    let semaphore = with_existing_limit(client, name)?;
    let mut all = semaphore.inspect().await?;
    loop {
        let (holders, waiters) = (all.holders.len() as u64, all.waiters.len() as u64);
        let page = semaphore.inspect_range(holders..u64::MAX, waiters..u64::MAX).await?;
        if page.holders.is_empty() && page.waiters.is_empty() {
            break;
        }
        all.holders.extend(page.holders);
        all.waiters.extend(page.waiters);
    }
    let mut seen = HashSet::new();
    all.holders.retain(|holder| seen.insert(holder.id.clone()));
    all.waiters.retain(|waiter| seen.insert(waiter.id.clone()));
    Ok(all)
}

fn numbers(name: &str, now: &Inspection) -> Value {
    json!({
        "name": name,
        "limit": limit_of(now),
        "declared_limit": now.declared_limit,
        "runtime_limit": now.runtime_limit,
        "held": now.held,
        "queued": now.queued,
        "last_token": now.last_token,
    })
}

fn as_json(name: &str, now: &Inspection) -> Value {
    let mut json = numbers(name, now);
    json["holders"] = now.holders.iter().map(holder_as_json).collect();
    json["waiters"] = now.waiters.iter().map(waiter_as_json).collect();
    json
}

fn holder_as_json(holder: &Holder) -> Value {
    json!({
        "id": holder.id,
        "client": holder.client_name(),
        "group": holder.group(),
        "weight": holder.weight,
        "expires_in_ms": millis(holder.expires_in),
    })
}

fn waiter_as_json(waiter: &Waiter) -> Value {
    json!({
        "id": waiter.id,
        "client": waiter.client_name(),
        "group": waiter.group(),
        "weight": waiter.weight,
        "position": waiter.position,
        "waited_ms": millis(waiter.waited),
        "alive_for_ms": waiter.alive_for.map(millis),
    })
}

fn first_line(name: &str, now: &Inspection) -> String {
    format!(
        "{}: limit {} (declared: {}, runtime: {}), held {}, queued {}",
        value(name),
        or_none(limit_of(now)),
        or_none(now.declared_limit),
        or_none(now.runtime_limit),
        now.held,
        now.queued,
    )
}

fn as_text(name: &str, now: &Inspection) -> String {
    let mut text = first_line(name, now);
    if !now.holders.is_empty() {
        let row = |holder: &Holder| {
            vec![
                holder.client_name().to_owned(),
                holder.weight.to_string(),
                rounded(holder.expires_in),
                holder.id.clone(),
            ]
        };
        let rows: Vec<_> = now.holders.iter().map(row).collect();
        let head = ["HOLDER", "WEIGHT", "EXPIRES IN", "ID"];
        text = format!("{text}\n\n{}", table(&head, &rows));
    }
    if !now.waiters.is_empty() {
        let row = |waiter: &Waiter| {
            vec![
                waiter.position.to_string(),
                waiter.client_name().to_owned(),
                waiter.weight.to_string(),
                rounded(waiter.waited),
                waiter.alive_for.map_or("dead", |_| "alive").to_owned(),
                waiter.id.clone(),
            ]
        };
        let rows: Vec<_> = now.waiters.iter().map(row).collect();
        let head = ["POSITION", "WAITER", "WEIGHT", "WAITED", "PROCESS", "ID"];
        text = format!("{text}\n\n{}", table(&head, &rows));
    }
    text
}
