//! What the facts about a server mean for a semaphore on it.

use std::time::Duration;

use super::Check;
use super::facts::{Disk, Facts};

/// Of memory and of connections: more is nearly all.
const NEARLY_ALL: u64 = 90;
/// Hosts whose clocks are kept by the network differ by far less.
const FAR_APART: Duration = Duration::from_secs(5);

/// The checks for which `INFO` is asked, and no more than that.
pub(super) const BY_INFO: [&str; 5] = ["role", "eviction", "memory", "replicas", "clients"];
/// Those for which `CONFIG GET` is asked besides.
pub(super) const BY_CONFIG: [&str; 2] = ["persistence", "saves"];

pub(super) fn by_info(facts: &Facts) -> [Check; 5] {
    [role(facts), eviction(facts), memory(facts), replicas(facts), clients(facts)]
}

pub(super) fn by_config(facts: &Facts, disk: &Disk) -> [Check; 2] {
    [persistence(facts, disk), saves(facts, disk)]
}

fn role(facts: &Facts) -> Check {
    match &facts.primary {
        None => Check::ok("role", "it is a primary"),
        Some(primary) => {
            Check::critical("role", format!("it is a replica of {primary} and refuses all calls"))
                .fix(format!("connect to {primary}, or promote this one: REPLICAOF NO ONE"))
        }
    }
}

fn eviction(facts: &Facts) -> Check {
    let Facts { policy, maxmemory, evicted_keys, .. } = facts;
    if policy == "noeviction" {
        return Check::ok("eviction", "maxmemory-policy is noeviction, so no keys are dropped");
    }
    let expire = match policy.starts_with("volatile-") {
        true => " (they have an expiry)",
        false => "",
    };
    let check = match maxmemory {
        0 => Check::notice(
            "eviction",
            format!(
                "maxmemory-policy is {policy}, which would drop keys of semaphores{expire} if there \
                 were a maxmemory"
            ),
        ),
        _ => Check::critical(
            "eviction",
            format!(
                "maxmemory-policy is {policy}, so the server may drop keys of semaphores{expire} and \
                 forget who holds; it has dropped {evicted_keys} keys since it started"
            ),
        ),
    };
    check.fix("CONFIG SET maxmemory-policy noeviction")
}

fn memory(facts: &Facts) -> Check {
    let Facts { policy, maxmemory, used_memory, .. } = facts;
    match percent_of(*used_memory, *maxmemory) {
        _ if *maxmemory == 0 => Check::ok("memory", "there is no maxmemory"),
        // Memory is always nearly full then, and it is said already that keys are dropped.
        _ if policy != "noeviction" => Check::ok("memory", "keys are dropped before it is full"),
        None => Check::ok("memory", format!("less than {NEARLY_ALL} % of maxmemory is used")),
        Some(percent) => Check::critical(
            "memory",
            format!(
                "{percent} % of maxmemory is used ({used_memory} of {maxmemory} bytes); a full server \
                 refuses new acquires and new limits, while holders renew and release: it needs \
                 more, or less in it"
            ),
        )
        .fix(format!("CONFIG SET maxmemory {}", used_memory.saturating_mul(2))),
    }
}

fn persistence(facts: &Facts, disk: &Disk) -> Check {
    const NAME: &str = "persistence";
    match (facts.has_append_only_file, disk.save.is_empty()) {
        (true, _) if disk.appendfsync == "no" => Check::notice(
            NAME,
            "appendfsync is no, so a crash of the server's machine forgets the permits of the last \
             half minute or so",
        )
        .fix("CONFIG SET appendfsync everysec"),
        (true, _) => Check::ok(
            NAME,
            format!("writes go to an append-only file (appendfsync is {})", disk.appendfsync),
        ),
        (false, true) => Check::critical(
            NAME,
            "nothing is written to disk, so a restart forgets who holds, and as many again are let \
             in",
        )
        .fix("CONFIG SET appendonly yes"),
        (false, false) => Check::notice(
            NAME,
            format!(
                "there are save points only ({}), so a crash forgets who came to hold since the \
                 last one, and as many again are let in",
                disk.save
            ),
        )
        .fix("CONFIG SET appendonly yes"),
    }
}

fn saves(facts: &Facts, disk: &Disk) -> Check {
    match (disk.save.is_empty(), facts.last_save_failed) {
        (true, _) => Check::ok("saves", "there are no save points, so none can fail"),
        (false, false) => Check::ok("saves", "the last one did not fail"),
        (false, true) => Check::critical(
            "saves",
            "the last one failed, after which a server refuses all writes by default \
             (stop-writes-on-bgsave-error)",
        )
        .fix("see why in the server's log, then BGSAVE"),
    }
}

fn replicas(facts: &Facts) -> Check {
    match (facts.replicas, facts.waits_for_replicas) {
        (0, false) => Check::ok("replicas", "it has none, so there is no failover"),
        (_, true) => Check::ok("replicas", "a write needs some (min-replicas-to-write)"),
        (number, false) => Check::notice(
            "replicas",
            format!(
                "it has replicas ({number}) but does not need them for a write, so after a failover \
                 more than the limit may hold; that is rarer with min-replicas-to-write"
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
            "{percent} % of maxclients are connected ({clients} of {maxclients}), and who comes \
             when it is full is refused, even to renew a permit after a cut"
        ),
    )
    .fix(format!("CONFIG SET maxclients {}", maxclients.saturating_mul(2)))
}

/// Where it is nearly all, or more.
fn percent_of(part: u64, whole: u64) -> Option<u64> {
    let percent = part.saturating_mul(100).checked_div(whole)?;
    (percent >= NEARLY_ALL).then_some(percent)
}

/// The server's time was read between these two of ours.
pub(super) fn clock(before: Duration, server: Duration, after: Duration) -> Check {
    let (difference, how) = match server > after {
        true => (server - after, "ahead of"),
        false => (before.saturating_sub(server), "behind"),
    };
    if difference < FAR_APART {
        return Check::ok("clock", format!("it is within {FAR_APART:?} of the one here"));
    }
    Check::notice(
        "clock",
        format!(
            "the server's clock is {} s {how} the one here, which harms no semaphore (only the \
             server's counts) until somebody sets it with a jump",
            difference.as_secs()
        ),
    )
    .fix("have both kept by the network (NTP)")
}
