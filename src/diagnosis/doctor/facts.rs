//! The facts that a server reports about itself, before they are judged.

use std::str::FromStr;

use redis::InfoDict;

/// The facts from `INFO`.
#[derive(Debug)]
pub(super) struct Facts {
    /// The address of the primary. `None` if the server is the primary.
    pub(super) primary: Option<String>,
    pub(super) replicas: u64,
    /// The number of replicas whose lag is at most `min-replicas-max-lag`. `None` if writes do not
    /// require replicas.
    pub(super) good_replicas: Option<u64>,
    pub(super) policy: String,
    /// The limit in bytes. 0 means no limit.
    pub(super) maxmemory: u64,
    /// The memory that counts toward the limit, in bytes.
    pub(super) used_memory: u64,
    pub(super) evicted_keys: u64,
    pub(super) has_append_only_file: bool,
    pub(super) last_append_failed: bool,
    pub(super) last_save_failed: bool,
    pub(super) clients: u64,
    pub(super) maxclients: u64,
}

/// The settings that only `CONFIG GET` returns.
#[derive(Debug, Default)]
pub(super) struct Config {
    /// The save points. Each is a number of seconds and a number of changes. The text is empty if
    /// no save point is set.
    pub(super) save: String,
    pub(super) appendfsync: String,
    /// How many replicas writes require.
    pub(super) min_replicas: String,
}

impl Facts {
    /// Returns the name of a missing field as the error.
    pub(super) fn read(info: &InfoDict) -> Result<Self, &'static str> {
        let text = |name| info.get::<String>(name).ok_or(name);
        let primary = match text("role")?.as_str() {
            "master" => None,
            _ => Some(format!("{}:{}", text("master_host")?, text("master_port")?)),
        };
        let used: u64 = number(info, "used_memory")?;
        Ok(Self {
            primary,
            replicas: number(info, "connected_slaves")?,
            good_replicas: info.get("min_slaves_good_slaves"),
            policy: text("maxmemory_policy")?,
            maxmemory: number(info, "maxmemory")?,
            used_memory: used.saturating_sub(number(info, "mem_not_counted_for_evict")?),
            evicted_keys: number(info, "evicted_keys")?,
            has_append_only_file: text("aof_enabled")? != "0",
            last_append_failed: text("aof_last_write_status")? != "ok",
            last_save_failed: text("rdb_last_bgsave_status")? != "ok",
            clients: number(info, "connected_clients")?,
            maxclients: number(info, "maxclients")?,
        })
    }
}

fn number<T: FromStr>(info: &InfoDict, name: &'static str) -> Result<T, &'static str> {
    info.get::<String>(name).and_then(|text| text.parse().ok()).ok_or(name)
}
