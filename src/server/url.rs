//! Parses URLs of servers, for the library and the CLI. An error does not repeat the rejected part,
//! because any part of a URL may be a misplaced password.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::str::FromStr;

use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo,
};

const DEFAULT_PORT: u16 = 6379;
const LOOK: &str = "a URL looks like redis://host:6379/0 (rediss:// for TLS), or \
                    redis+unix:///path/of/socket";
const UNREADABLE: &str = "host, port or password cannot be read (in a password @ is %40, / is %2F, \
                          : is %3A, # is %23, ? is %3F, % is %25, and a comma is %2C)";
const NO_HOST: &str = "a host is a name or an IP address without brackets: if you have a user, a \
                       password or a port, too, write a URL such as redis://user:password@host:6379/";
const NO_LOGIN_IN_PATH: &str = "write user and password of a socket after \"?\", as in \
                                redis+unix:///path/of/socket?user=USER&pass=PASSWORD (write @ in \
                                the path as %40)";
const THREE_SLASHES: &str =
    "the path of a socket begins with a slash, as in redis+unix:///path/of/socket";
const INSECURE: &str = "#insecure, which accepts any certificate, is not supported: pass the \
                        signing authority to the client (for a self-signed certificate: the \
                        certificate itself, made with basicConstraints=CA:FALSE)";
/// Parameters that other programs accept in a URL. Errors may print these names, because they are
/// not secret.
const FAMILIAR: [&str; 16] = [
    "client_name",
    "database",
    "db",
    "host",
    "max_connections",
    "pass",
    "password",
    "port",
    "protocol",
    "socket_timeout",
    "ssl",
    "ssl_cert_reqs",
    "timeout",
    "tls",
    "user",
    "username",
];
const SCHEMES: [&str; 7] =
    ["redis", "rediss", "valkey", "valkeys", "redis+unix", "valkey+unix", "unix"];
const FOREIGN_SCHEMES: [&str; 7] =
    ["http", "https", "postgres", "redis-sentinel", "redis-socket", "tcp", "tls"];

/// The problem, and advice.
pub(super) struct Wrong(pub(super) String);

impl Wrong {
    /// Adds the correct form of a URL.
    fn shown(reason: impl fmt::Display) -> Self {
        Self(format!("{reason}: {LOOK}"))
    }
}

pub(super) fn read(url: &str) -> Result<ConnectionInfo, Wrong> {
    // A text from a file or an environment variable may end with a line break.
    let url = url.trim_matches(|c: char| c.is_whitespace() || c.is_control());
    if url.is_empty() {
        return Err(Wrong::shown("it is empty"));
    }
    if url.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(Wrong::shown(
            "it contains white space or a control character (in a password, write a space as %20)",
        ));
    }
    let (scheme, rest) = url.split_once(':').ok_or_else(|| without_scheme(url))?;
    let scheme = scheme.to_ascii_lowercase();
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    match &*scheme {
        "rediss" | "valkeys" if fragment == "insecure" => Err(Wrong(INSECURE.to_owned())),
        _ if !fragment.is_empty() && SCHEMES.contains(&&*scheme) => {
            Err(Wrong::shown(format!("nothing may follow \"#\", or {UNREADABLE}")))
        }
        "redis" | "valkey" => of_tcp(rest, query, false),
        "rediss" | "valkeys" => of_tcp(rest, query, true),
        "redis+unix" | "valkey+unix" | "unix" => of_socket(rest, query),
        _ => Err(without_scheme(url)),
    }
}

fn without_scheme(url: &str) -> Wrong {
    let (scheme, _) = url.split_once("://").unwrap_or_default();
    match FOREIGN_SCHEMES.iter().find(|foreign| scheme.eq_ignore_ascii_case(foreign)) {
        Some(foreign) => {
            Wrong::shown(format!("it begins with {foreign}://, which is not a Redis scheme"))
        }
        None if scheme.is_empty() => Wrong::shown(
            "it begins with neither redis:// nor unix:// (for a socket): add one of them",
        ),
        None => Wrong::shown("it begins with a scheme that is not for Redis, instead of redis://"),
    }
}

fn of_tcp(rest: &str, query: &str, is_tls: bool) -> Result<ConnectionInfo, Wrong> {
    let Some(rest) = rest.strip_prefix("//") else {
        return Err(Wrong::shown("two slashes must follow the colon"));
    };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, place) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let (user, password) = (decoded(user)?, decoded(password)?);
    // If the password contains a slash that is not encoded, the URL is split at this slash. The
    // port or the path is then invalid.
    let (host, port) = host_and_port(place)?;
    if path.contains(['@', ':']) || query.contains('@') {
        return Err(Wrong::shown(UNREADABLE));
    }
    let database = path.strip_suffix('/').unwrap_or(path);
    let mut settings = RedisConnectionInfo::default().set_db(number_of(database)?);
    for (name, value) in parameters(query)? {
        match &*name {
            "protocol" => settings = settings.set_protocol(protocol(&value)?),
            "db" | "database" => {
                return Err(unknown(&name, "write a database as in redis://host:6379/3"));
            }
            "user" | "username" | "pass" | "password" => {
                let place = "write user and password before the host, as in \
                             redis://user:password@host:6379/";
                return Err(unknown(&name, place));
            }
            _ => return Err(unknown(&name, LOOK)),
        }
    }
    let address = match is_tls {
        true => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
        false => ConnectionAddr::Tcp(host, port),
    };
    if !address.is_supported() {
        let reason = "it requires TLS: build with the feature \"tls\" of redis-semaphore";
        return Err(Wrong(reason.to_owned()));
    }
    info(address, settings, &user, &password)
}

fn host_and_port(place: &str) -> Result<(String, u16), Wrong> {
    let unreadable = || Wrong::shown(UNREADABLE);
    // A port or an interface may follow the address.
    let address = place.split('%').next().unwrap_or_default();
    let is_of_ipv6 = |c: char| c.is_ascii_hexdigit() || c == ':' || c == '.';
    if address.matches(':').count() > 1 && address.chars().all(is_of_ipv6) {
        return Err(Wrong::shown("write an IPv6 address in brackets, as in redis://[::1]:6379/"));
    }
    let (host, port) = match place.strip_prefix('[') {
        Some(place) => {
            let (host, port) = place.split_once(']').ok_or_else(unreadable)?;
            // The text after `%` is the interface of a link-local address.
            let (address, zone) = host.split_once('%').unwrap_or((host, ""));
            address.parse::<Ipv6Addr>().map_err(|_| unreadable())?;
            let zone = zone.strip_prefix("25").filter(|zone| !zone.is_empty()).unwrap_or(zone);
            let zone = if zone.is_empty() { String::new() } else { format!("%{zone}") };
            (format!("{address}{zone}"), port)
        }
        None => {
            let (host, port) = place.split_at(place.find(':').unwrap_or(place.len()));
            (host.to_owned(), port)
        }
    };
    if host.is_empty() {
        return Err(Wrong::shown(format!("the host is missing, or {UNREADABLE}")));
    }
    if place.contains(',') {
        return Err(Wrong::shown(format!("only one server is allowed here, or {UNREADABLE}")));
    }
    if !is_host(&host) {
        return Err(unreadable());
    }
    check_is_no_wildcard(&host)?;
    let port = match port {
        "" | ":" => Some(DEFAULT_PORT),
        port => port.strip_prefix(':').and_then(number).filter(|port| *port > 0),
    };
    Ok((host, port.ok_or_else(unreadable)?))
}

/// Whether the text is a name or an address. Anything else may contain a password.
fn is_host(text: &str) -> bool {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    let (address, zone) = text.split_once('%').unwrap_or((text, ""));
    let is_ipv6 = address.parse::<Ipv6Addr>().is_ok() && zone.chars().all(is_of_name);
    is_ipv6 || (!text.is_empty() && text.chars().all(is_of_name))
}

fn check_is_no_wildcard(host: &str) -> Result<(), Wrong> {
    if matches!(host, "0.0.0.0" | "::") {
        let reason = "0.0.0.0 and [::] are addresses to listen on, not to connect to: use the \
                      host's name or address, such as 127.0.0.1";
        return Err(Wrong(reason.to_owned()));
    }
    Ok(())
}

/// Checks the host of an address that is not part of a URL.
pub(super) fn check_host(address: &ConnectionAddr) -> Result<(), Wrong> {
    match address {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => {
            if !is_host(host) {
                return Err(Wrong(NO_HOST.to_owned()));
            }
            check_is_no_wildcard(host)
        }
        _ => Ok(()),
    }
}

fn of_socket(rest: &str, query: &str) -> Result<ConnectionInfo, Wrong> {
    if rest.contains('@') {
        return Err(Wrong(NO_LOGIN_IN_PATH.to_owned()));
    }
    let path = match rest.strip_prefix("//") {
        Some(place) => place.strip_prefix("localhost").unwrap_or(place),
        None => rest,
    };
    if path.starts_with("/:") {
        return Err(Wrong(NO_LOGIN_IN_PATH.to_owned()));
    }
    if !path.starts_with('/') || path.len() < 2 {
        return Err(Wrong(THREE_SLASHES.to_owned()));
    }
    let path = decoded(path)?;
    let mut settings = RedisConnectionInfo::default();
    let (mut user, mut password) = (String::new(), String::new());
    for (name, value) in parameters(query)? {
        match &*name {
            "db" => settings = settings.set_db(number_of(&value)?),
            "user" => user = value,
            "pass" => password = value,
            "protocol" => settings = settings.set_protocol(protocol(&value)?),
            "database" => return Err(unknown(&name, "write db")),
            "username" => return Err(unknown(&name, "write user")),
            "password" => return Err(unknown(&name, "write pass")),
            _ => return Err(unknown(&name, LOOK)),
        }
    }
    let address = ConnectionAddr::Unix(PathBuf::from(path));
    if !address.is_supported() {
        return Err(Wrong("this system has no Unix sockets: use host and port".to_owned()));
    }
    info(address, settings, &user, &password)
}

fn info(
    address: ConnectionAddr,
    mut settings: RedisConnectionInfo,
    user: &str,
    password: &str,
) -> Result<ConnectionInfo, Wrong> {
    if !user.is_empty() {
        settings = settings.set_username(user);
    }
    // A user without a password logs in with an empty password. If no password were set, redis-rs
    // would not log in, and would use the default user.
    if !user.is_empty() || !password.is_empty() {
        settings = settings.set_password(password);
    }
    let info = address.into_connection_info();
    info.map(|info| info.set_redis_settings(settings)).map_err(|_| Wrong::shown(UNREADABLE))
}

/// The parameters after "?", in order.
fn parameters(query: &str) -> Result<Vec<(String, String)>, Wrong> {
    let mut found: Vec<(String, String)> = Vec::new();
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let Some((name, value)) = part.split_once('=').filter(|(_, value)| !value.is_empty())
        else {
            return Err(Wrong::shown("a parameter after \"?\" has no value"));
        };
        // Some programs read + as a space.
        if part.contains('+') {
            let reason = "after \"?\", write a plus as %2B and a space as %20";
            return Err(Wrong(reason.to_owned()));
        }
        let (name, value) = (decoded(name)?, decoded(value)?);
        if found.iter().any(|(other, _)| *other == name) {
            return Err(Wrong::shown("a parameter after \"?\" occurs twice"));
        }
        found.push((name, value));
    }
    Ok(found)
}

fn unknown(name: &str, advice: &str) -> Wrong {
    match FAMILIAR.contains(&name) {
        true => Wrong(format!("{name:?} after \"?\" is not supported: {advice}")),
        false => Wrong(format!("a parameter after \"?\" is not supported: {advice}")),
    }
}

fn protocol(value: &str) -> Result<ProtocolVersion, Wrong> {
    match value {
        "2" | "resp2" => Ok(ProtocolVersion::RESP2),
        "3" | "resp3" => Ok(ProtocolVersion::RESP3),
        _ => Err(Wrong("write the protocol as protocol=2 or protocol=3".to_owned())),
    }
}

/// Returns the number of a database, or 0 if the text is empty.
fn number_of(text: &str) -> Result<i64, Wrong> {
    match text {
        "" => Ok(0),
        digits => number(digits).ok_or_else(|| Wrong::shown("invalid database number")),
    }
}

/// Returns the number if the text contains only digits. `parse` also accepts a sign.
fn number<T: FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Decodes percent-encoded characters such as %40.
fn decoded(text: &str) -> Result<String, Wrong> {
    let bad = || Wrong::shown("two hexadecimal digits must follow a % (write % itself as %25)");
    let mut parts = text.split('%');
    let mut bytes = Vec::from(parts.next().unwrap_or_default());
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).ok_or_else(bad)?;
        // `from_str_radix` also accepts a plus sign.
        let byte = u8::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'));
        bytes.push(byte.ok_or_else(bad)?);
        bytes.extend(rest.as_bytes());
    }
    let text =
        String::from_utf8(bytes).map_err(|_| Wrong("the %-encoded text is not UTF-8".into()))?;
    match text.contains('\0') {
        true => Err(Wrong::shown("it contains %00")),
        false => Ok(text),
    }
}
