//! What an error of redis-rs is about, in words of our own. Its own text is the source of ours, and
//! must not be told twice.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use redis::{ErrorKind, RedisError, ServerError};

use super::ConnectErrorKind as Kind;
use super::answer::says;
use crate::runtime::clock::PAUSED;

/// What was found, and what to do.
pub(crate) struct Cause {
    pub(crate) kind: Kind,
    pub(crate) found: Cow<'static, str>,
    /// Without ": ", since the doctor parts the two there.
    pub(crate) advice: &'static str,
}

impl Cause {
    pub(crate) fn reason(&self) -> String {
        format!("{}: {}", self.found, self.advice)
    }
}

type Known = (&'static str, Kind, &'static str, &'static str);

const TAKES_LONG: (&str, &str) = (
    "the server runs a script that takes long (BUSY)",
    "wait, or end that one with SCRIPT KILL or FUNCTION KILL",
);

const GIVE_PASSWORD: &str = "give one, as in redis://user:password@host:6379/";

/// Errors of servers, by their codes. What is looked for in the texts of scripts comes first.
const CODES: [Known; 13] = [
    (
        "OOM",
        Kind::Unusable,
        "the server's memory is full (OOM)",
        "raise maxmemory, or delete what nobody needs",
    ),
    (
        "MISCONF",
        Kind::Unusable,
        "the server cannot save its data, and takes no writes (MISCONF)",
        "its log says why",
    ),
    (
        "NOREPLICAS",
        Kind::NotReady,
        "too few replicas follow the server, so it takes no writes (NOREPLICAS)",
        "start them, or lower min-replicas-to-write",
    ),
    (
        "LOADING",
        Kind::NotReady,
        "the server is loading its data (LOADING)",
        "call again when it has them",
    ),
    ("BUSY", Kind::NotReady, TAKES_LONG.0, TAKES_LONG.1),
    (
        "CLUSTERDOWN",
        Kind::NotReady,
        "the cluster is down (CLUSTERDOWN)",
        "see CLUSTER INFO for nodes that fail and slots without a node",
    ),
    (
        "MASTERDOWN",
        Kind::NotReady,
        "the server is a replica that lost its primary (MASTERDOWN)",
        "see what became of the primary",
    ),
    ("TRYAGAIN", Kind::NotReady, "a slot of the cluster is moving (TRYAGAIN)", "call again"),
    (
        "READONLY",
        Kind::Replica,
        "the server is a replica, and takes no writes (READONLY)",
        "connect to the primary",
    ),
    (
        "NOAUTH",
        Kind::Authentication,
        "the server wants a password of the default user, and got none (NOAUTH)",
        GIVE_PASSWORD,
    ),
    (
        "WRONGPASS",
        Kind::Authentication,
        "the server does not know this user with this password, or the user is off (WRONGPASS)",
        "look at both, also at special characters (in a URL @ is %40, and / is %2F)",
    ),
    (
        "DENIED",
        Kind::Authentication,
        "the server is in protected mode, and serves only its own machine (DENIED)",
        "set a password there",
    ),
    (
        "SEM_VERSION",
        Kind::Unusable,
        "another version of the protocol wrote the keys (SEM_VERSION)",
        "use clients of one version, or another prefix",
    ),
];

/// Errors of servers that have no code of their own, by their words.
const DETAILS: [Known; 3] = [
    // As a server says NOAUTH to a long call.
    (
        "unauthenticated",
        Kind::Authentication,
        "the server wants a password, and got none",
        GIVE_PASSWORD,
    ),
    (
        "without any password configured",
        Kind::Authentication,
        "the server has no password, and was given one",
        "leave it out, or set it there (requirepass)",
    ),
    (
        "max number of clients",
        Kind::NotReady,
        "the server has as many connections as it takes",
        "raise maxclients, or have others connect less",
    ),
];

pub(crate) fn of(error: &RedisError) -> Cause {
    of_network(error).or_else(|| of_server(error)).unwrap_or_else(|| of_client(error))
}

/// What redis-rs says of an answer that is neither OK nor an error.
const STRANGE_AUTH: &str = "Redis server refused to authenticate, returns";
/// What `source.rs` says of a list of servers; the detail is what each of them said.
const NONE_IS_PRIMARY: &str = "none of the servers is a primary";
/// What redis-rs says of SELECT, with what the server said as the detail; and of a sentinel.
const NOT_SELECTED: &str = "Redis server refused to switch database";
const NO_SENTINEL: &str = "Address does not point to a sentinel node";
/// What `server/replies.rs` says.
pub(crate) const TOO_LARGE: &str = "a reply is larger than any reply to a semaphore can be";
const SEE_STRANGER: &str = "see what listens there";
const SEE_NETWORK: &str = "see whether the server runs, and whether the network leads there";
const SEE_SOURCE: &str = "the source of this error says more";

fn of_network(error: &RedisError) -> Option<Cause> {
    let io_error = io_error(error)?;
    #[cfg(feature = "tls")]
    if let Some((found, advice)) = super::tls::trouble(io_error) {
        return Some(Cause { kind: Kind::Tls, found: found.into(), advice });
    }
    if lacks_files(error) {
        let advice = "raise `ulimit -n`, or close some";
        return Some(Cause {
            kind: Kind::Unreachable,
            found: "this process or system has too many open files".into(),
            advice,
        });
    }
    let (kind, found, advice) = match io_error.kind() {
        io::ErrorKind::ConnectionAborted if error.to_string().contains(TOO_LARGE) => {
            (Kind::NotRedis, TOO_LARGE, SEE_STRANGER)
        }
        io::ErrorKind::ConnectionRefused => {
            (Kind::Refused, "nothing listens there", "start the server, or mend the address")
        }
        io::ErrorKind::NotFound => {
            (Kind::Refused, "there is no such socket", "start the server, or mend the path")
        }
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => (
            Kind::TimedOut,
            "nothing was answered in time",
            "see whether the server is stopped or overloaded, and whether the network leads there, or is \
             slower than the response timeout",
        ),
        io::ErrorKind::InvalidData => (
            Kind::Tls,
            "the two sides do not agree on TLS",
            "look at the certificates, and whether both sides use TLS",
        ),
        io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::NotConnected
        | io::ErrorKind::UnexpectedEof => {
            (Kind::Closed, "the connection was cut", "the server's log may say why")
        }
        _ if error.to_string().contains("lookup address") => {
            (Kind::Unreachable, "the name cannot be resolved", "mend the name, or look at the DNS")
        }
        _ => (Kind::Unreachable, "the connection fails", SEE_NETWORK),
    };
    Some(Cause { kind, found: found.into(), advice })
}

fn of_server(error: &RedisError) -> Option<Cause> {
    // What redis-rs says itself may have such a kind, too.
    error.source()?.downcast_ref::<ServerError>()?;
    if lacks_right(&error.to_string()) {
        return Some(Cause {
            kind: Kind::Permission,
            found: "the user lacks a right".into(),
            advice: "grant what docs/protocol.md lists under \"Permissions\"",
        });
    }
    let detail = error.detail().unwrap_or_default();
    let by_code = CODES.iter().find(|(code, ..)| says(error, code));
    let known = by_code.or_else(|| DETAILS.iter().find(|(words, ..)| detail.contains(words)));
    if let Some((_, kind, found, advice)) = known {
        return Some(Cause { kind: *kind, found: (*found).into(), advice });
    }
    let (found, advice) = match error.code()? {
        "SEM_TYPE" => {
            let (key, wanted) =
                detail.strip_prefix("the key ")?.split_once(" exists and is not ")?;
            let found = format!("the key {key} holds something else than {wanted} (SEM_TYPE)");
            (found, "delete it, or take another name or prefix")
        }
        code => (format!("the server answered with the error {code}"), SEE_SOURCE),
    };
    Some(Cause { kind: Kind::Unusable, found: found.into(), advice })
}

/// Whether a server says that the user may not do something. Servers put it in different words, and
/// in others when it is a script that tries.
pub(crate) fn lacks_right(refusal: &str) -> bool {
    let words = ["no permissions", "the user executing the script can't"];
    let told = refusal.to_lowercase();
    // Names of keys may be told, too.
    refusal.contains("NOPERM") || words.iter().any(|words| told.contains(words))
}

/// What redis-rs or this crate found out. Such an error has no source, so its text is told here.
fn of_client(error: &RedisError) -> Cause {
    let text = error.to_string();
    let what = text.split(" - ").next().unwrap_or_default();
    let told = || match error.detail() {
        Some(detail) => format!("{what}: {detail}"),
        None => what.to_owned(),
    };
    let (kind, found, advice) = match error.kind() {
        _ if what.starts_with(STRANGE_AUTH) => {
            (Kind::NotRedis, "to AUTH it answers what Redis never does".into(), SEE_STRANGER)
        }
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => {
            (Kind::NotRedis, "what was answered is no answer of Redis".into(), SEE_STRANGER)
        }
        ErrorKind::AuthenticationFailed if error.detail().is_none() => (
            Kind::Authentication,
            "the server refuses the password".into(),
            "see whether it wants one, and which",
        ),
        ErrorKind::AuthenticationFailed => {
            (Kind::Authentication, told().into(), "mend the provider, or what it asks")
        }
        _ if what == NOT_SELECTED && text.contains("out of range") => (
            Kind::Unusable,
            "the server has no database of that number".into(),
            "take one that it has (0 to 15, unless its setting `databases` says otherwise)",
        ),
        _ if what == NOT_SELECTED && text.contains("cluster mode") => (
            Kind::Unusable,
            "the cluster has no databases but 0".into(),
            "leave the number out of the URL (Valkey 9 has more with its setting `cluster-databases`)",
        ),
        // Without its code, unlike elsewhere.
        _ if what == NOT_SELECTED && text.contains("is busy running") => {
            (Kind::NotReady, TAKES_LONG.0.into(), TAKES_LONG.1)
        }
        _ if what == NO_SENTINEL => (
            Kind::Unusable,
            "an address is not that of a sentinel".into(),
            "give those of sentinels (port 26379, unless set otherwise), or connect to the server \
             itself",
        ),
        ErrorKind::MasterNameNotFoundBySentinel => (
            Kind::NoPrimary,
            error.detail().unwrap_or("no sentinel knows a primary of that name").to_owned().into(),
            "a failover may be under way; else look at the name, and at what SENTINEL MASTERS answers",
        ),
        ErrorKind::Io if what.starts_with(NONE_IS_PRIMARY) => (
            Kind::NoPrimary,
            format!("{what} ({})", error.detail().unwrap_or_default()).into(),
            "a failover may be under way; else see each of them",
        ),
        ErrorKind::Io if what == PAUSED => (
            Kind::Unreachable,
            told().into(),
            "resume it (tokio::time::resume), since calls need time that passes",
        ),
        ErrorKind::Io if what.starts_with("the runtime") => {
            (Kind::Unreachable, told().into(), "keep it running, or connect anew")
        }
        ErrorKind::Io if what.starts_with("no answer") => {
            (Kind::TimedOut, told().into(), SEE_NETWORK)
        }
        ErrorKind::Io => (Kind::Unreachable, told().into(), SEE_NETWORK),
        _ => (Kind::Unusable, told().into(), "look at the settings of the connection"),
    };
    Cause { kind, found, advice }
}

/// What the network said, where it is about that.
/// Whether this process, or its system, may not open another file (EMFILE, ENFILE).
pub(crate) fn lacks_files(error: &RedisError) -> bool {
    let code = io_error(error).and_then(io::Error::raw_os_error);
    cfg!(unix) && matches!(code, Some(24 | 23))
}

fn io_error(error: &RedisError) -> Option<&io::Error> {
    let inner: &Arc<dyn StdError + Send + Sync> = error.source()?.downcast_ref()?;
    inner.downcast_ref()
}
