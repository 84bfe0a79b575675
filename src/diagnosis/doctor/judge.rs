//! Judges what the facts about a server mean for its semaphores.

use std::time::Duration;

use super::Check;
use super::facts::{Config, Facts};
use crate::diagnosis::connect::Access;

/// The finding of a check that judges only primaries.
const REPLICA: &str = "not checked, because the server is a replica";
/// From this percentage on, memory or connections count as nearly used up.
const NEARLY_ALL: u64 = 90;
/// Clocks that are synchronized over the network differ by far less than this.
const FAR_APART: Duration = Duration::from_secs(5);

/// The checks that require only `INFO`.
pub(super) const BY_INFO: [&str; 5] = ["role", "eviction", "memory", "replicas", "clients"];
/// The checks that also require `CONFIG GET`.
pub(super) const BY_CONFIG: [&str; 2] = ["persistence", "saves"];

pub(super) fn by_info(facts: &Facts, config: Option<&Config>, access: Access) -> [Check; 5] {
    [role(facts, access), eviction(facts), memory(facts), replicas(facts, config), clients(facts)]
}

pub(super) fn by_config(facts: &Facts, config: &Config) -> [Check; 2] {
    [persistence(facts, config), saves(facts, config)]
}

fn role(facts: &Facts, access: Access) -> Check {
    match &facts.primary {
        None => Check::ok("role", "the server is a primary"),
        Some(primary) if access == Access::ReadOnly => Check::notice(
            "role",
            format!("the server is a replica of {primary}, so its data may be out of date"),
        ),
        Some(primary) => Check::critical(
            "role",
            format!("the server is a replica of {primary} and rejects all writes"),
        )
        .fix(format!("connect to {primary}, or promote the replica: REPLICAOF NO ONE")),
    }
}

fn eviction(facts: &Facts) -> Check {
    let Facts { policy, maxmemory, evicted_keys, .. } = facts;
    if policy == "noeviction" {
        return Check::ok("eviction", "maxmemory-policy is noeviction, so no keys are evicted");
    }
    let expire = match policy.starts_with("volatile-") {
        true => " (because they have an expiry)",
        false => "",
    };
    let check = match maxmemory {
        0 => Check::notice(
            "eviction",
            format!(
                "maxmemory-policy is {policy}: if maxmemory is set, the server evicts keys of \
                 semaphores{expire}"
            ),
        ),
        _ => Check::critical(
            "eviction",
            format!(
                "maxmemory-policy is {policy}, so the server can evict keys of semaphores{expire} \
                 and lose permits; it has evicted {evicted_keys} keys since it started"
            ),
        ),
    };
    check.fix("CONFIG SET maxmemory-policy noeviction")
}

fn memory(facts: &Facts) -> Check {
    let Facts { policy, maxmemory, used_memory, .. } = facts;
    match percent_of(*used_memory, *maxmemory) {
        _ if *maxmemory == 0 => Check::ok("memory", "maxmemory is not set"),
        // A server that evicts keys may run with nearly full memory. The check `eviction` reports
        // the risk.
        _ if policy != "noeviction" => {
            Check::ok("memory", "keys are evicted before the memory is full")
        }
        None => Check::ok("memory", format!("less than {NEARLY_ALL} % of maxmemory is used")),
        Some(percent) => Check::critical(
            "memory",
            format!(
                "{percent} % of maxmemory is used ({used_memory} of {maxmemory} bytes); a full \
                 server rejects new acquires and new limits, while holders can still refresh and \
                 release: raise maxmemory, or delete keys"
            ),
        )
        .fix(format!("CONFIG SET maxmemory {}", used_memory.saturating_mul(2))),
    }
}

fn persistence(facts: &Facts, config: &Config) -> Check {
    const NAME: &str = "persistence";
    if facts.primary.is_some() {
        return Check::unchecked(NAME, REPLICA);
    }
    match (facts.has_append_only_file, config.save.is_empty()) {
        (true, _) if facts.last_append_failed => Check::critical(
            NAME,
            "the last write to the append-only file failed, so the server rejects all writes",
        )
        .fix("find the cause in the server's log: the disk may be full"),
        (true, _) if config.appendfsync == "no" => Check::notice(
            NAME,
            "appendfsync is no, so a crash of the server's machine loses the permits of about the \
             last 30 seconds",
        )
        .fix("CONFIG SET appendfsync everysec"),
        (true, _) => Check::ok(
            NAME,
            format!(
                "writes are saved to an append-only file (appendfsync is {})",
                config.appendfsync
            ),
        ),
        (false, true) => Check::critical(
            NAME,
            "nothing is written to disk, so a restart loses all permits and grants new ones \
             beside them",
        )
        .fix("CONFIG SET appendonly yes"),
        (false, false) => Check::notice(
            NAME,
            format!(
                "only save points are set ({}), so a crash loses the permits granted since the \
                 last save, and grants new ones beside them",
                config.save
            ),
        )
        .fix("CONFIG SET appendonly yes"),
    }
}

fn saves(facts: &Facts, config: &Config) -> Check {
    match (config.save.is_empty(), facts.last_save_failed) {
        (true, _) => Check::ok("saves", "no save points are set, so no save can fail"),
        (false, false) => Check::ok("saves", "the last save succeeded"),
        (false, true) => Check::critical(
            "saves",
            "the last save failed; by default, the server then rejects all writes \
             (stop-writes-on-bgsave-error)",
        )
        .fix("find the cause in the server's log, then run BGSAVE"),
    }
}

fn replicas(facts: &Facts, config: Option<&Config>) -> Check {
    let required = config.and_then(|config| config.min_replicas.parse().ok()).unwrap_or(1);
    match (facts.replicas, facts.good_replicas) {
        _ if facts.primary.is_some() => Check::unchecked("replicas", REPLICA),
        (_, Some(good)) if good < required => Check::critical(
            "replicas",
            format!(
                "fewer replicas keep up ({good}) than writes require \
                 (min-replicas-to-write), so the server rejects all writes"
            ),
        )
        .fix("repair the replicas, or lower min-replicas-to-write"),
        (0, None) => Check::ok("replicas", "the server has no replicas, so there is no failover"),
        (_, Some(_)) => {
            Check::ok("replicas", "every write requires replicas (min-replicas-to-write)")
        }
        (number, None) => Check::notice(
            "replicas",
            format!(
                "the server has replicas ({number}), but writes do not require them, so a \
                 failover can lose permits and grant more than the limit; \
                 min-replicas-to-write makes that less likely"
            ),
        )
        .fix("CONFIG SET min-replicas-to-write 1"),
    }
}

fn clients(facts: &Facts) -> Check {
    let Facts { clients, maxclients, .. } = facts;
    let Some(percent) = percent_of(*clients, *maxclients) else {
        let finding = format!("less than {NEARLY_ALL} % of maxclients are connected");
        return Check::ok("clients", finding);
    };
    Check::critical(
        "clients",
        format!(
            "{percent} % of maxclients are connected ({clients} of {maxclients}); a full server \
             rejects new connections, even of a holder that reconnects to refresh its permit"
        ),
    )
    .fix(format!("CONFIG SET maxclients {}", maxclients.saturating_mul(2)))
}

/// Returns the percentage if it is at least [`NEARLY_ALL`].
fn percent_of(part: u64, whole: u64) -> Option<u64> {
    let percent = part.saturating_mul(100).checked_div(whole)?;
    (percent >= NEARLY_ALL).then_some(percent)
}

/// Compares the server's time with the local clock. The server's time was read between the local
/// times `before` and `after`.
pub(super) fn clock(before: Duration, server: Duration, after: Duration) -> Check {
    let (difference, how) = match server > after {
        true => (server - after, "ahead of"),
        false => (before.saturating_sub(server), "behind"),
    };
    if difference < FAR_APART {
        return Check::ok(
            "clock",
            format!("the server's clock is within {FAR_APART:?} of the local clock"),
        );
    }
    Check::notice(
        "clock",
        format!(
            "the server's clock is {} s {how} the local clock; this is harmless (only the \
             server's clock counts) until the server's clock is stepped",
            difference.as_secs()
        ),
    )
    .fix("synchronize both clocks (NTP)")
}
