//! Explains errors of redis-rs in this crate's words. The error of redis-rs is the source of this
//! crate's error, so the explanation must not repeat its text.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use redis::{ErrorKind, RedisError, ServerError};

use super::ConnectErrorKind as Kind;
use super::response::says;

/// The finding, and advice on what to do.
pub(crate) struct Cause {
    pub(crate) kind: Kind,
    pub(crate) found: Cow<'static, str>,
    /// Contains no ": ", because the doctor separates the finding from the advice at the last ": ".
    pub(crate) advice: &'static str,
}

impl Cause {
    pub(crate) fn reason(&self) -> String {
        format!("{}: {}", self.found, self.advice)
    }
}

type Known = (&'static str, Kind, &'static str, &'static str);

const TAKES_LONG: (&str, &str) = (
    "the server is running a long script (BUSY)",
    "wait, or end the script with SCRIPT KILL or FUNCTION KILL",
);

const GIVE_PASSWORD: &str = "add one to the URL, as in redis://user:password@host:6379/";

/// Errors of servers, by code.
const CODES: [Known; 13] = [
    (
        "OOM",
        Kind::Unusable,
        "the server's memory is full (OOM)",
        "raise maxmemory, or delete unused keys",
    ),
    (
        "MISCONF",
        Kind::Unusable,
        "the server cannot save its data and accepts no writes (MISCONF)",
        "see the server's log for the cause",
    ),
    (
        "NOREPLICAS",
        Kind::NotReady,
        "too few replicas are connected, so the server accepts no writes (NOREPLICAS)",
        "start more replicas, or lower min-replicas-to-write",
    ),
    (
        "LOADING",
        Kind::NotReady,
        "the server is loading its data (LOADING)",
        "retry when the data is loaded",
    ),
    ("BUSY", Kind::NotReady, TAKES_LONG.0, TAKES_LONG.1),
    ("CLUSTERDOWN", Kind::NotReady, "the cluster is down (CLUSTERDOWN)", SEE_CLUSTER),
    (
        "MASTERDOWN",
        Kind::NotReady,
        "the server is a replica that lost its primary (MASTERDOWN)",
        "check the primary",
    ),
    ("TRYAGAIN", Kind::NotReady, "a cluster slot is being migrated (TRYAGAIN)", "call again"),
    (
        "READONLY",
        Kind::Replica,
        "the server is a replica and accepts no writes (READONLY)",
        "connect to the primary",
    ),
    (
        "NOAUTH",
        Kind::Authentication,
        "the server requires a password for the default user, but none was sent (NOAUTH)",
        GIVE_PASSWORD,
    ),
    (
        "WRONGPASS",
        Kind::Authentication,
        "the server rejects this user with this password (WRONGPASS)",
        "check both, and whether the user is enabled; in a URL, write @ as %40 and / as %2F",
    ),
    (
        "DENIED",
        Kind::Authentication,
        "the server is in protected mode and accepts only local connections (DENIED)",
        "set a password on the server",
    ),
    (
        "SEM_VERSION",
        Kind::Unusable,
        "the keys were written by another version of the protocol (SEM_VERSION)",
        "use clients of the same version, or another prefix",
    ),
];

/// Errors whose code does not name the cause, by text.
const DETAILS: [Known; 8] = [
    (NO_NODE, Kind::NotReady, NO_NODE, SEE_CLUSTER),
    (
        SENTINEL_WANTS_PASSWORD,
        Kind::Authentication,
        "the sentinel requires a password, but none was sent (NOAUTH)",
        "add one to the URL of each sentinel, as in redis://user:password@host:26379/",
    ),
    // The error for a long command without authentication, in place of NOAUTH.
    (
        "unauthenticated",
        Kind::Authentication,
        "the server requires a password, but none was sent",
        GIVE_PASSWORD,
    ),
    (
        "without any password configured",
        Kind::Authentication,
        "a password was sent without a user, but the default user has none",
        "name the user of the password, remove the password, or set it on the server (requirepass)",
    ),
    (
        "max number of clients",
        Kind::NotReady,
        "the server has reached its maximum number of connections",
        "raise maxclients, or close other connections",
    ),
    (
        "DB index is out of range",
        Kind::Unusable,
        "the server has no database with that number",
        "use an existing one (0 to 15, unless the server's setting `databases` differs; in a \
         cluster of Valkey 9, `cluster-databases`)",
    ),
    (
        "not allowed in cluster mode",
        Kind::Unusable,
        "a cluster has only database 0",
        "remove the number from the URL (Valkey 9 has more databases with its setting \
         `cluster-databases`)",
    ),
    // If only redis-rs can make the connection, its error for SELECT lacks the server's code BUSY.
    ("is busy running", Kind::NotReady, TAKES_LONG.0, TAKES_LONG.1),
];

pub(crate) fn of(error: &RedisError) -> Cause {
    // The error of redis-rs for SELECT contains the text of the server's error.
    let of_select = || by_detail(error).filter(|_| matches!(error.kind(), ErrorKind::Server(_)));
    let found = of_network(error).or_else(|| of_server(error)).or_else(of_select);
    found.unwrap_or_else(|| of_client(error))
}

/// The text of redis-rs for a reply to AUTH that is neither OK nor an error.
const STRANGE_AUTH: &str = "Redis server refused to authenticate, returns";
/// The text of `server/source/mod.rs` for a list of servers. The detail contains the error of each
/// server.
const NONE_IS_PRIMARY: &str = "no server in the list is a primary";
/// The text of `server/source/mod.rs` for two primaries in a list. The detail contains both.
pub(crate) const TWO_PRIMARIES: &str = "two addresses in the list lead to primaries";
/// The text of `server/link/mod.rs` for an attempt to connect whose runtime has ended.
pub(crate) const RUNTIME_ENDED: &str = "the runtime ended while the client connected";
/// The text of `server/source/mod.rs` for a replica that must be a primary.
pub(crate) const IS_REPLICA: &str = "it is a replica";
/// The texts of `server/source/sentinel.rs` for a sentinel. redis-rs has the first text, too.
pub(crate) const NO_SENTINEL: &str = "Address does not point to a sentinel node";
pub(crate) const PRIMARY_DOWN: &str = "the primary is down";
pub(crate) const SENTINEL_WANTS_PASSWORD: &str = "Authentication required by a sentinel.";
/// The text of `server/replies.rs`.
pub(crate) const TOO_LARGE: &str = "a reply is larger than any reply of a semaphore script";
/// The text of `server/cluster.rs` for a slot without a node.
pub(crate) const NO_NODE: &str = "no node of the cluster serves the slot of this semaphore";
/// The text of `server/cluster.rs` for an empty map.
pub(crate) const NO_SLOTS: &str = "no node of the cluster has a slot yet";
const SEE_STRANGER: &str = "check which program listens there";
const SEE_NETWORK: &str = "check that the server runs and that the network reaches it";
const SEE_FAILOVER: &str = "a failover may be in progress; otherwise check each server";
const SEE_CLUSTER: &str = "check CLUSTER INFO for failed nodes and uncovered slots";
const SEE_SOURCE: &str = "see the source of this error for details";

fn of_network(error: &RedisError) -> Option<Cause> {
    let io_error = io_error(error)?;
    #[cfg(feature = "tls")]
    if let Some((found, advice)) = super::tls::trouble(io_error) {
        return Some(Cause { kind: Kind::Tls, found: found.into(), advice });
    }
    if lacks_files(error) {
        let advice = "raise `ulimit -n`, or close files";
        return Some(Cause {
            kind: Kind::Unreachable,
            found: "the process or the system has too many open files".into(),
            advice,
        });
    }
    let (kind, found, advice) = match io_error.kind() {
        io::ErrorKind::ConnectionAborted if error.to_string().contains(TOO_LARGE) => {
            (Kind::NotRedis, TOO_LARGE, SEE_STRANGER)
        }
        io::ErrorKind::ConnectionRefused => {
            (Kind::Refused, "nothing listens there", "start the server, or correct the address")
        }
        io::ErrorKind::NotFound => {
            (Kind::Refused, "the socket does not exist", "start the server, or correct the path")
        }
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => (
            Kind::TimedOut,
            "no reply in time",
            "check whether the server is stopped or overloaded, and whether the network is down \
             or too slow for the response timeout (and for a sixth of the lease)",
        ),
        io::ErrorKind::InvalidData => (
            Kind::Tls,
            "the TLS handshake failed",
            "check the certificates, and that both sides use TLS",
        ),
        io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::NotConnected
        | io::ErrorKind::UnexpectedEof => {
            (Kind::Closed, "the connection was lost", "the server's log may show the cause")
        }
        _ if error.to_string().contains("lookup address") => (
            Kind::Unreachable,
            "the host name cannot be resolved",
            "correct the name, or check the DNS",
        ),
        _ => (Kind::Unreachable, "the connection fails", SEE_NETWORK),
    };
    Some(Cause { kind, found: found.into(), advice })
}

/// Explains an error that Redis is known to return.
pub(crate) fn of_redis(error: &RedisError) -> Option<Cause> {
    if lacks_right(&error.to_string()) {
        return Some(Cause {
            kind: Kind::Permission,
            found: "the user lacks a right".into(),
            advice: "grant the rights that docs/production.md lists under \"Permissions\"",
        });
    }
    let by_code = || CODES.iter().find(|(code, ..)| says(error, code)).map(known);
    by_detail(error).or_else(by_code)
}

fn of_server(error: &RedisError) -> Option<Cause> {
    // An error that redis-rs created itself may also have the kind of a server's error.
    error.source()?.downcast_ref::<ServerError>()?;
    if let Some(cause) = of_redis(error) {
        return Some(cause);
    }
    let detail = error.detail().unwrap_or_default();
    let (found, advice) = match error.code()? {
        "SEM_TYPE" => {
            let (key, wanted) =
                detail.strip_prefix("the key ")?.split_once(" exists and is not ")?;
            let found = format!("the key {key} is not {wanted} (SEM_TYPE)");
            (found, "delete the key, or use another name or prefix")
        }
        code => (format!("the server returned the error {code}"), SEE_SOURCE),
    };
    Some(Cause { kind: Kind::Unusable, found: found.into(), advice })
}

fn by_detail(error: &RedisError) -> Option<Cause> {
    let detail = error.detail()?;
    DETAILS.iter().find(|(words, ..)| detail.contains(words)).map(known)
}

fn known((_, kind, found, advice): &Known) -> Cause {
    Cause { kind: *kind, found: (*found).into(), advice }
}

/// Whether the error means a missing permission. The text differs between servers, and between
/// commands and scripts.
pub(crate) fn lacks_right(refusal: &str) -> bool {
    let words = ["no permissions", "the user executing the script can't"];
    let lower = refusal.to_lowercase();
    // `NOPERM` is matched in its exact case, because the error may contain names of keys.
    refusal.contains("NOPERM") || words.iter().any(|words| lower.contains(words))
}

/// Explains an error that redis-rs or this crate created. Such an error has no source, so its text
/// is part of the explanation.
fn of_client(error: &RedisError) -> Cause {
    let text = error.to_string();
    let what = text.split(" - ").next().unwrap_or_default();
    let text = || match error.detail() {
        Some(detail) => format!("{what}: {detail}"),
        None => what.to_owned(),
    };
    let (kind, found, advice) = match error.kind() {
        _ if what.starts_with(STRANGE_AUTH) => {
            (Kind::NotRedis, "the reply to AUTH is not a reply of Redis".into(), SEE_STRANGER)
        }
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => {
            (Kind::NotRedis, "the reply is not a reply of Redis".into(), SEE_STRANGER)
        }
        ErrorKind::AuthenticationFailed if error.detail().is_none() => (
            Kind::Authentication,
            "the server rejects the password".into(),
            "check whether it requires a password, and which one",
        ),
        ErrorKind::AuthenticationFailed => {
            (Kind::Authentication, text().into(), "check the provider and its source")
        }
        _ if what == NO_SENTINEL => (
            Kind::Unusable,
            "the server that was given as a sentinel is not a sentinel".into(),
            "use the sentinels' addresses (usually port 26379), or connect to the server directly",
        ),
        ErrorKind::MasterNameNotFoundBySentinel => (
            Kind::NoPrimary,
            error
                .detail()
                .unwrap_or("no sentinel knows a primary with that name")
                .to_owned()
                .into(),
            match what == PRIMARY_DOWN {
                true => {
                    "a failover may be in progress; otherwise check the primary and SENTINEL CKQUORUM"
                }
                false => "check the name against the reply of SENTINEL MASTERS",
            },
        ),
        ErrorKind::Io if what == TWO_PRIMARIES => {
            let advice = "if both are the same server, list it once; otherwise make one of them a \
                          replica of the other (REPLICAOF)";
            (Kind::NoPrimary, text().into(), advice)
        }
        ErrorKind::Io if what.starts_with(NONE_IS_PRIMARY) => (
            Kind::NoPrimary,
            format!("{what} ({})", error.detail().unwrap_or_default()).into(),
            SEE_FAILOVER,
        ),
        ErrorKind::Io if what == IS_REPLICA => (Kind::NoPrimary, IS_REPLICA.into(), SEE_FAILOVER),
        ErrorKind::Io if what == NO_SLOTS => (
            Kind::NotReady,
            NO_SLOTS.into(),
            "assign all slots to nodes, for example with redis-cli --cluster create",
        ),
        ErrorKind::Io if what == RUNTIME_ENDED => {
            (Kind::Unreachable, text().into(), "keep that runtime running, or connect again")
        }
        ErrorKind::Io if what.starts_with("no reply") => {
            (Kind::TimedOut, text().into(), SEE_NETWORK)
        }
        ErrorKind::Io => (Kind::Unreachable, text().into(), SEE_NETWORK),
        _ => (Kind::Unusable, text().into(), "check the connection settings"),
    };
    Cause { kind, found, advice }
}

/// Whether the process or the system has too many open files (EMFILE, ENFILE).
pub(crate) fn lacks_files(error: &RedisError) -> bool {
    let code = io_error(error).and_then(io::Error::raw_os_error);
    cfg!(unix) && matches!(code, Some(24 | 23))
}

/// Whether the runtime of an attempt to connect has ended, which says nothing about the server.
pub(crate) fn is_end_of_runtime(error: &RedisError) -> bool {
    error.to_string().starts_with(RUNTIME_ENDED)
}

fn io_error(error: &RedisError) -> Option<&io::Error> {
    let inner: &Arc<dyn StdError + Send + Sync> = error.source()?.downcast_ref()?;
    inner.downcast_ref()
}
