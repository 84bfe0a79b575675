//! Checks a server for conditions that endanger semaphores.
//!
//! The facts come from `INFO`, `CONFIG GET` and `TIME`, and from trying every command that a client
//! uses. A check that the server or the user's permissions do not allow is reported, and is not an
//! error. If the server can report that a command is not permitted, the command is not tried.

mod check;
mod diagnosis;
mod facts;
mod judge;

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use redis::{FromRedisValue, InfoDict, RedisError};
use tokio::time::Instant;

use crate::diagnosis::connect::Access;
use crate::diagnosis::{Probe, permission};
use crate::error::{ConnectErrorKind as Kind, Error, lacks_right};
use crate::server::{Backoff, Cluster, Servers};

pub use check::{Check, Verdict};
pub use diagnosis::{Diagnosis, ServerReport};
use facts::{Config, Facts};

/// Checks the server, or every primary of a cluster.
pub(crate) async fn examine(
    servers: &Servers,
    prefix: &str,
    patience: Duration,
    access: Access,
) -> Result<Diagnosis, Error> {
    let probes = match servers {
        Servers::One(link) => vec![Probe::single(link, prefix)],
        Servers::Cluster(cluster) => {
            let at = |node| Probe::at_node(cluster, &node, prefix);
            cluster.nodes().into_iter().filter_map(at).collect()
        }
        #[cfg(feature = "local")]
        Servers::Local(_) => return Ok(of_local()),
    };
    let examined = probes.into_iter().map(|probe| examine_server(probe, patience, access));
    let examined = join_all(examined).await;
    let is_any_reached = examined.iter().any(Result::is_ok);
    let report = |examined| match examined {
        Err(Error::Connect { kind, address, reason, .. })
            if is_any_reached && kind.is_transient() =>
        {
            Ok(unreached(address, &reason))
        }
        examined => examined,
    };
    let mut reports = examined.into_iter().map(report).collect::<Result<Vec<_>, _>>()?;
    if let Servers::Cluster(cluster) = servers {
        reports.extend(unserved_slots(cluster));
    }
    Ok(Diagnosis { servers: reports })
}

/// Reports that a primary of a cluster is unreachable. The other primaries still serve semaphores.
fn unreached(address: String, reason: &str) -> ServerReport {
    let check = with_advice("connection", reason);
    ServerReport { address, version: String::new(), checks: vec![check] }
}

/// Reports slots without a node, as a report of the whole cluster.
fn unserved_slots(cluster: &Cluster) -> Option<ServerReport> {
    let slots = cluster.unserved_slots();
    let finding = format!(
        "{slots} of 16384 slots have no node, so the semaphores in these slots are unavailable"
    );
    let fix = "check CLUSTER INFO and CLUSTER SLOTS, then assign the slots to a node";
    let report = |check| ServerReport {
        address: cluster.to_string(),
        version: String::new(),
        checks: vec![check],
    };
    (slots > 0).then(|| report(Check::critical("slots", finding).fix(fix)))
}

/// Reports that the server is in memory, in case a program uses this test server in production.
#[cfg(feature = "local")]
fn of_local() -> Diagnosis {
    let finding = "the semaphores exist only in this process and are not saved: use them for \
                   tests only";
    let check = Check::critical("local", finding).fix("connect to Redis or Valkey");
    let (address, version) = ("local".to_owned(), String::new());
    Diagnosis { servers: vec![ServerReport { address, version, checks: vec![check] }] }
}

/// Checks one server. If the connection closes during the checks, the checks are repeated over a
/// new connection, until `patience` has passed.
async fn examine_server(
    mut probe: Probe,
    patience: Duration,
    access: Access,
) -> Result<ServerReport, Error> {
    let mut backoff = Backoff::of_connections(probe.link.response_timeout());
    let started = Instant::now();
    let mut is_separate = false;
    loop {
        let error = match look_at_all(&probe, access).await {
            Ok(examination) => return Ok(examination),
            Err(error) => error,
        };
        // After a server became a replica, the client's link repeats the old error for a while
        // without connecting again. So a separate link queries the server. Other errors need no
        // separate connection, which a full server would reject.
        if matches!(&error, Error::Connect { kind: Kind::Replica, .. }) && !is_separate {
            probe = probe.separate();
            is_separate = true;
            continue;
        }
        let may_pass = matches!(&error, Error::Connect { kind: Kind::Closed, .. });
        let pause = backoff.next();
        if !may_pass || started.elapsed() + pause >= patience {
            return Err(probe.inquire(error).await);
        }
        tokio::time::sleep(pause).await;
    }
}

async fn look_at_all(probe: &Probe, access: Access) -> Result<ServerReport, Error> {
    // An idle connection may have closed unnoticed.
    probe.link.check().await;
    let connected = probe.link.connection().await.map_err(|error| probe.explain(error))?;
    let client = probe.link.dialer().ready(&connected.client).await;
    let client = client.map_err(|error| probe.explain(error))?;
    let info = client.get_connection_info();
    let user = info.redis_settings().username().unwrap_or("default");
    let (address, version) = (info.addr().to_string(), probe.version().await?);
    let (facts, config) = (look_around(probe, user).await?, look_at_config(probe, user).await?);
    let mut checks = Vec::new();
    match &facts {
        Ok(facts) => checks.extend(judge::by_info(facts, config.as_ref().ok(), access)),
        Err(unchecked) => checks.extend(judge::BY_INFO.map(|name| unchecked.about(name))),
    }
    match (&facts, &config) {
        (Ok(facts), Ok(config)) => checks.extend(judge::by_config(facts, config)),
        (Err(unchecked), _) | (_, Err(unchecked)) => {
            checks.extend(judge::BY_CONFIG.map(|name| unchecked.about(name)));
        }
    }
    match access {
        Access::ReadOnly => checks.extend(try_looks(probe, user).await?),
        _ if facts.is_ok_and(|facts| facts.primary.is_some()) => {
            checks.extend(["commands", "messages"].map(|name| {
                Check::unchecked(name, "not checked, because a replica rejects writes")
            }))
        }
        _ => checks.extend(try_all(probe, user).await?),
    }
    checks.push(compare_clocks(probe, user).await?);
    checks.sort_by_key(|check| check.verdict);
    Ok(ServerReport { address, version, checks })
}

/// Returns the server's reply, or the error that the server returned.
async fn ask<T: FromRedisValue>(
    probe: &Probe,
    words: &[&str],
) -> Result<Result<T, RedisError>, Error> {
    if let Some(refusal) = permission::denial(&probe.link, words).await {
        return Ok(Err(refusal));
    }
    match probe.link.query(redis::cmd(words[0]).arg(&words[1..])).await {
        Err(error) if error.is_io_error() || error.is_unrecoverable_error() => {
            Err(probe.explain(error))
        }
        response => Ok(response),
    }
}

/// The reason why a check was not possible.
struct Unchecked {
    finding: String,
    fix: String,
}

impl Unchecked {
    fn refused(command: &str, right: &str, user: &str, refusal: &RedisError) -> Self {
        match lacks_right(&refusal.to_string()) {
            true => Self {
                finding: format!("the user may not call {command}, which this check requires"),
                fix: format!("ACL SETUSER {user} {right}"),
            },
            false => Self {
                finding: format!("the server rejects {command} ({refusal})"),
                fix: "check the server's configuration".to_owned(),
            },
        }
    }

    fn about(&self, name: &'static str) -> Check {
        Check::unchecked(name, &self.finding).fix(&self.fix)
    }
}

async fn look_around(probe: &Probe, user: &str) -> Result<Result<Facts, Unchecked>, Error> {
    Ok(match ask::<InfoDict>(probe, &["INFO"]).await? {
        Ok(info) => Facts::read(&info).map_err(|lacking| Unchecked {
            finding: format!("INFO does not report {lacking}"),
            fix: "check the server's configuration".to_owned(),
        }),
        Err(refusal) => Err(Unchecked::refused("INFO", "+info", user, &refusal)),
    })
}

async fn look_at_config(probe: &Probe, user: &str) -> Result<Result<Config, Unchecked>, Error> {
    let mut config = Config::default();
    // Redis 6.2 accepts one name at a time.
    for (name, value) in [
        ("save", &mut config.save),
        ("appendfsync", &mut config.appendfsync),
        ("min-replicas-to-write", &mut config.min_replicas),
    ] {
        match ask::<HashMap<String, String>>(probe, &["CONFIG", "GET", name]).await? {
            Ok(mut response) => *value = response.remove(name).unwrap_or_default(),
            Err(refusal) => {
                return Ok(Err(Unchecked::refused("CONFIG GET", "+config|get", user, &refusal)));
            }
        }
    }
    Ok(Ok(config))
}

/// Tries everything that a client does, on keys and a channel that no client uses.
async fn try_all(probe: &Probe, user: &str) -> Result<Vec<Check>, Error> {
    let refused = probe.refused_commands().await;
    let is_partial = refused.is_err();
    let refused = refused.unwrap_or_else(|error| vec![error]);
    let mut checks = of_refused("commands", user, refused, "all required commands are allowed")?;
    if is_partial {
        let finding = "other commands were not tried, because a command was rejected first";
        checks.push(
            Check::unchecked("commands", finding).fix("fix the rejected command, and check again"),
        );
    }
    checks.extend(try_to_listen(probe, user).await?);
    Ok(checks)
}

/// Tries everything that a read-only client does. In a cluster, such a client does not subscribe.
async fn try_looks(probe: &Probe, user: &str) -> Result<Vec<Check>, Error> {
    let refused = probe.try_looks().await.err().into_iter().collect();
    let fine = "all commands of a read-only user are allowed";
    let mut checks = of_refused("commands", user, refused, fine)?;
    if probe.node.is_none() {
        checks.extend(try_to_listen(probe, user).await?);
    }
    Ok(checks)
}

async fn try_to_listen(probe: &Probe, user: &str) -> Result<Vec<Check>, Error> {
    let unheard = match probe.ask_and_listen().await {
        Ok(()) => Vec::new(),
        Err(error) => vec![probe.inquire(error).await],
    };
    of_refused("messages", user, unheard, "the channels of grant messages can be subscribed to")
}

/// A rejected command is a finding. An unreachable server is an error.
fn of_refused(
    name: &'static str,
    user: &str,
    refused: Vec<Error>,
    fine: &str,
) -> Result<Vec<Check>, Error> {
    let mut checks: Vec<Check> = Vec::new();
    for error in refused {
        let check = match error {
            Error::Connect { right: Some(right), .. } => {
                Check::critical(name, format!("the user lacks the right {right}"))
                    .fix(format!("ACL SETUSER {user} {right}"))
            }
            Error::Connect {
                kind:
                    Kind::TimedOut | Kind::Closed | Kind::Refused | Kind::Unreachable | Kind::NoPrimary,
                ..
            } => return Err(error),
            Error::Connect { reason, .. } => with_advice(name, &reason),
            other => return Err(other),
        };
        // Several commands may be rejected for the same reason. A reason is reported once.
        if !checks.iter().any(|reported| reported.fix == check.fix) {
            checks.push(check);
        }
    }
    if checks.is_empty() {
        checks.push(Check::ok(name, fine));
    }
    Ok(checks)
}

/// Splits the reason of an error into the finding and the advice.
fn with_advice(name: &'static str, reason: &str) -> Check {
    match reason.rsplit_once(": ") {
        Some((finding, advice)) => Check::critical(name, finding).fix(advice),
        None => Check::critical(name, reason),
    }
}

/// Leases use only the server's clock, so a difference is only a notice.
async fn compare_clocks(probe: &Probe, user: &str) -> Result<Check, Error> {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let before = now();
    match ask::<(u64, u64)>(probe, &["TIME"]).await? {
        Ok((seconds, micros)) => {
            let server = Duration::from_secs(seconds) + Duration::from_micros(micros);
            Ok(judge::clock(before, server, now()))
        }
        Err(refusal) => Ok(Unchecked::refused("TIME", "+time", user, &refusal).about("clock")),
    }
}
