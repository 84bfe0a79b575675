//! Looks at a server for what endangers the semaphores on it.
//!
//! What it finds comes from `INFO`, `CONFIG GET`, `TIME`, and from trying all that a client does.
//! A server or a user that does not allow the first two is no error: that is a finding itself.

mod facts;
mod finding;
mod judge;

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::try_join_all;
use redis::{Cmd, FromRedisValue, InfoDict, RedisError};

use crate::client::Shared;
use crate::probe::Probe;
use crate::servers::Servers;
use crate::{Error, permission};

use facts::{Disk, Facts};
pub use finding::{Finding, Severity};

/// Everything that is found, the worst first. Of a cluster all primaries are looked at.
pub(crate) async fn examine(shared: &Shared) -> Result<Vec<Finding>, Error> {
    let probes = match &shared.servers {
        Servers::One(link) => vec![Probe::single(link, &shared.prefix)],
        Servers::Cluster(cluster) => {
            let at = |node| Probe::at_node(cluster, &node, &shared.prefix);
            cluster.nodes().into_iter().filter_map(at).collect()
        }
    };
    let examined = try_join_all(probes.iter().map(examine_server)).await?;
    let mut findings = examined.concat();
    findings.sort_by_key(|finding| finding.severity);
    Ok(findings)
}

async fn examine_server(probe: &Probe) -> Result<Vec<Finding>, Error> {
    // Nobody may have noticed that an idle connection was cut.
    probe.link.check().await;
    let (facts, disk) = (look_around(probe).await?, look_at_disk(probe).await?);
    let mut findings = match &facts {
        Ok(facts) => judge::all(facts, disk.as_ref().ok()),
        Err(_) => Vec::new(),
    };
    // A replica refuses whatever writes.
    if !facts.as_ref().is_ok_and(|facts| facts.primary.is_some()) {
        findings.extend(try_rights(probe).await?);
    }
    findings.extend(facts.err());
    findings.extend(disk.err());
    findings.extend(compare_clocks(probe).await?);
    if let Some((_, node)) = &probe.node {
        findings.iter_mut().for_each(|finding| finding.text = format!("{node}: {}", finding.text));
    }
    Ok(findings)
}

/// The server's answer, or what it says to refuse one.
async fn ask<T: FromRedisValue>(probe: &Probe, cmd: &Cmd) -> Result<Result<T, RedisError>, Error> {
    let unreachable = |error| probe.explain(error);
    match probe.link.query(cmd).await {
        Err(error) if error.is_io_error() || error.is_unrecoverable_error() => {
            Err(unreachable(error))
        }
        answer => Ok(answer),
    }
}

/// For what the server does not tell.
fn untold(what: &'static str, about: &str, right: &str, refusal: &RedisError) -> Finding {
    let refusal = refusal.to_string();
    let advice = match permission::is_refusal(&refusal) {
        true => format!("the user lacks the right {right}: grant it, at least for this check"),
        false => format!("the server refuses {what} ({refusal}): look into its configuration"),
    };
    Finding::unchecked(what, format!("{about} could not be looked at, as {advice}"))
}

async fn look_around(probe: &Probe) -> Result<Result<Facts, Finding>, Error> {
    let about = "role, eviction, memory, persistence, replicas and clients";
    Ok(match ask::<InfoDict>(probe, &redis::cmd("INFO")).await? {
        Ok(info) => Facts::read(&info).map_err(|lacking| {
            let text =
                format!("INFO does not tell {lacking}: look into the server's configuration");
            Finding::unchecked("INFO", text)
        }),
        Err(refusal) => Err(untold("INFO", about, "+info", &refusal)),
    })
}

async fn look_at_disk(probe: &Probe) -> Result<Result<Disk, Finding>, Error> {
    let mut disk = Disk::default();
    // Redis 6.2 takes one name at a time.
    for (name, value) in [("save", &mut disk.save), ("appendfsync", &mut disk.appendfsync)] {
        let mut get = redis::cmd("CONFIG");
        get.arg("GET").arg(name);
        match ask::<HashMap<String, String>>(probe, &get).await? {
            Ok(mut answer) => *value = answer.remove(name).unwrap_or_default(),
            Err(refusal) => {
                let about = "the settings save and appendfsync";
                return Ok(Err(untold("CONFIG GET", about, "+config|get", &refusal)));
            }
        }
    }
    Ok(Ok(disk))
}

/// Tries all that a client does, on keys and a channel that nobody has.
async fn try_rights(probe: &Probe) -> Result<Vec<Finding>, Error> {
    let mut refused = match probe.refused_commands().await {
        Ok(refused) => refused,
        Err(error) => vec![answered("commands are refused", error)],
    };
    if let Err(error) = probe.listen().await {
        refused.push(answered("wake-ups cannot be listened for", error));
    }
    let mut findings: Vec<Finding> = Vec::new();
    for error in refused {
        let finding = match error {
            Error::Connect { right: Some(right), reason, .. } => {
                let text = format!("the user lacks the right {right} ({reason}): grant it");
                Finding::danger("rights", text)
            }
            Error::Connect { reason, .. } => Finding::danger("server", reason),
            other => return Err(other),
        };
        if !findings.contains(&finding) {
            findings.push(finding);
        }
    }
    Ok(findings)
}

/// The server has just answered, so this is not about reaching it. (If it has gone meanwhile, the
/// next question says so.)
fn answered(what: &str, error: Error) -> Error {
    match error {
        Error::Connect { address, kind, reason, right: None, source } => {
            let reason = format!("{what}: {reason}");
            Error::Connect { address, kind, reason, right: None, source }
        }
        other => other,
    }
}

/// Leases go by the server's clock alone, so a difference is only worth a hint.
async fn compare_clocks(probe: &Probe) -> Result<Option<Finding>, Error> {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let before = now();
    let Ok((seconds, micros)) = ask::<(u64, u64)>(probe, &redis::cmd("TIME")).await? else {
        // A right that the scripts need as well.
        return Ok(None);
    };
    let server = Duration::from_secs(seconds) + Duration::from_micros(micros);
    Ok(judge::clock(before, server, now()))
}
