//! What the facts about a server mean for a semaphore on it.

use std::time::Duration;

use super::facts::{Disk, Facts};
use super::finding::Finding;

/// Of memory and of connections: more is nearly all.
const NEARLY_ALL: u64 = 90;
/// Hosts whose clocks are kept by the network differ by far less.
const FAR_APART: Duration = Duration::from_secs(5);

pub(super) fn all(facts: &Facts, disk: Option<&Disk>) -> Vec<Finding> {
    let findings = [
        role(facts),
        eviction(facts),
        memory(facts),
        disk.and_then(|disk| persistence(facts, disk)),
        disk.and_then(|disk| saving(facts, disk)),
        replicas(facts),
        clients(facts),
    ];
    findings.into_iter().flatten().collect()
}

fn role(facts: &Facts) -> Option<Finding> {
    let primary = facts.primary.as_ref()?;
    Some(Finding::danger(
        "role",
        format!("it is a replica of {primary} and refuses all calls: connect to the primary"),
    ))
}

fn eviction(facts: &Facts) -> Option<Finding> {
    let Facts { policy, maxmemory, evicted_keys, .. } = facts;
    if policy == "noeviction" {
        return None;
    }
    let advice = "set maxmemory-policy to noeviction";
    if *maxmemory == 0 {
        return Some(Finding::hint(
            "eviction",
            format!(
                "maxmemory-policy is {policy}, which would drop keys of semaphores if there were a \
                 maxmemory: {advice} before you set one"
            ),
        ));
    }
    let expire = match policy.starts_with("volatile-") {
        true => " (they have an expiry)",
        false => "",
    };
    Some(Finding::danger(
        "eviction",
        format!(
            "maxmemory-policy is {policy}, so the server may drop keys of semaphores{expire} and \
             forget who holds; it has dropped {evicted_keys} keys since it started: {advice}"
        ),
    ))
}

/// Where keys are evicted memory is always nearly full, and that is said already.
fn memory(facts: &Facts) -> Option<Finding> {
    let Facts { policy, maxmemory, used_memory, .. } = facts;
    let percent = percent_of(*used_memory, *maxmemory).filter(|_| policy == "noeviction")?;
    Some(Finding::danger(
        "memory",
        format!(
            "{percent} % of maxmemory is used ({used_memory} of {maxmemory} bytes), and a full \
             server refuses acquires and renewals: raise maxmemory, or delete what nobody needs"
        ),
    ))
}

fn persistence(facts: &Facts, disk: &Disk) -> Option<Finding> {
    match (facts.has_append_only_file, disk.save.is_empty()) {
        (true, _) if disk.appendfsync == "no" => Some(Finding::hint(
            "persistence",
            "appendfsync is no, so a crash of the server's machine forgets the permits of the last \
             half minute or so: set appendfsync to everysec",
        )),
        (true, _) => None,
        (false, true) => Some(Finding::danger(
            "persistence",
            "nothing is written to disk, so a restart forgets who holds, and as many again are let \
             in: set appendonly to yes",
        )),
        (false, false) => Some(Finding::hint(
            "persistence",
            format!(
                "there are save points only ({}), so a crash forgets who came to hold since the \
                 last one, and as many again are let in: set appendonly to yes",
                disk.save
            ),
        )),
    }
}

fn saving(facts: &Facts, disk: &Disk) -> Option<Finding> {
    (facts.last_save_failed && !disk.save.is_empty()).then(|| {
        Finding::danger(
            "persistence",
            "the last save to disk failed, after which a server refuses all writes unless told \
             otherwise (stop-writes-on-bgsave-error): its log says why",
        )
    })
}

fn replicas(facts: &Facts) -> Option<Finding> {
    (facts.replicas > 0 && !facts.waits_for_replicas).then(|| {
        Finding::hint(
            "replicas",
            format!(
                "it has replicas ({}) but does not need them for a write, so after a failover more \
                 than the limit may hold; that is rarer with min-replicas-to-write: set it to 1",
                facts.replicas
            ),
        )
    })
}

fn clients(facts: &Facts) -> Option<Finding> {
    let Facts { clients, maxclients, .. } = facts;
    let percent = percent_of(*clients, *maxclients)?;
    Some(Finding::danger(
        "clients",
        format!(
            "{percent} % of maxclients are connected ({clients} of {maxclients}), and who comes \
             when it is full is refused, even to renew a permit after a cut: raise maxclients"
        ),
    ))
}

/// Where it is nearly all, or more.
fn percent_of(part: u64, whole: u64) -> Option<u64> {
    let percent = part.saturating_mul(100).checked_div(whole)?;
    (percent >= NEARLY_ALL).then_some(percent)
}

/// The server's time was read between these two of ours.
pub(super) fn clock(before: Duration, server: Duration, after: Duration) -> Option<Finding> {
    let (difference, how) = match server > after {
        true => (server - after, "ahead of"),
        false => (before.saturating_sub(server), "behind"),
    };
    (difference >= FAR_APART).then(|| {
        Finding::hint(
            "clock",
            format!(
                "the server's clock is {} s {how} the one here, which harms no semaphore (only the \
                 server's counts) until somebody sets it with a jump: have both kept by the network",
                difference.as_secs()
            ),
        )
    })
}
