//! Finds out more exactly why a server is unusable, with further requests. redis-rs drops the
//! replies of servers that are not Redis, and some errors of Redis.

use std::io;
use std::time::Duration;

use redis::{Client, Cmd, ConnectionAddr, RedisConnectionInfo, RedisError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::error::ConnectErrorKind as Kind;
use crate::error::{Error, Rounded, cause_of};
use crate::server::credentials::{who, without_password};
use crate::server::{Dialer, Duplex, is_tls};

/// The timeout for a silent server is short, because the user has already waited for one timeout.
const LONGEST: Duration = Duration::from_millis(500);
/// The number of bytes that are read from a server that is not Redis.
const MAX_BYTES: usize = 80;
const TLS_ATTEMPTS: u32 = 5;
const LOOK: &str = "check which program listens there";

/// Makes an error more exact, if the server that caused it can be queried. `client_at` returns a
/// client for the address of that server, or `None` if the server cannot be queried.
pub(crate) async fn inquire<'a>(
    dialer: &Dialer,
    client_at: impl FnOnce(&str) -> Option<&'a Client>,
    error: Error,
) -> Error {
    let Error::Connect { address, kind, reason, source: Some(source), right: None } = &error else {
        return error;
    };
    let Some(client) = client_at(address) else {
        return error;
    };
    let patience = dialer.response_timeout();
    let found = match kind {
        Kind::TimedOut => silence(client, patience).await,
        Kind::NotRedis | Kind::Closed => stranger(dialer, client, *kind).await,
        // An error with a detail comes from the credentials provider.
        Kind::Authentication if source.code().is_none() && source.detail().is_none() => {
            refusal(dialer, client).await
        }
        _ => None,
    };
    let known = || Found { kind: *kind, reason: reason.clone(), source: None };
    let Found { kind, reason, source: its } = found.unwrap_or_else(known);
    let source = its.unwrap_or_else(|| source.clone());
    let reason = match source.code() {
        Some("WRONGPASS") => with_user(&reason, dialer, client).await,
        _ => reason,
    };
    Error::Connect { address: address.clone(), kind, reason, right: None, source: Some(source) }
}

/// Adds the name of the rejected user, which may come from the URL, a provider or an option.
async fn with_user(reason: &str, dialer: &Dialer, client: &Client) -> String {
    match dialer.ready(client).await {
        Ok(ready) => reason.replace(
            "this user with this password",
            &who(ready.get_connection_info().redis_settings()),
        ),
        Err(_) => reason.to_owned(),
    }
}

struct Found {
    kind: Kind,
    reason: String,
    source: Option<RedisError>,
}

impl Found {
    fn new(kind: Kind, reason: impl Into<String>) -> Option<Self> {
        Some(Self { kind, reason: reason.into(), source: None })
    }

    fn said(error: RedisError) -> Option<Self> {
        let cause = cause_of(&error);
        Some(Self { kind: cause.kind, reason: cause.reason(), source: Some(error) })
    }
}

/// Finds out whether the server accepts connections.
async fn silence(client: &Client, patience: Duration) -> Option<Found> {
    let waited = Rounded(patience);
    let address = client.get_connection_info().addr();
    let is_open = matches!(timeout(patience.min(LONGEST), open(address)).await, Ok(Ok(_)));
    let reason = match (address, is_open) {
        (_, false) => format!(
            "no connection within {waited}: check that the name of the host can be resolved, that \
             the host is up, and that no firewall drops packets to it; a slow network needs a \
             longer response_timeout"
        ),
        (ConnectionAddr::TcpTls { .. }, true) => format!(
            "the server accepts connections but did not reply within {waited}: check whether it \
             is stopped or overloaded; if it does not use TLS, try redis:// instead of rediss://; \
             a slow network needs a longer response_timeout"
        ),
        (_, true) => format!(
            "the server accepts connections but did not reply within {waited}: check whether it \
             is stopped or overloaded, and whether it is Redis; a slow network needs a longer \
             response_timeout"
        ),
    };
    Found::new(Kind::TimedOut, reason)
}

/// Opens a connection without TLS and login.
async fn open(address: &ConnectionAddr) -> io::Result<Box<dyn Duplex>> {
    Ok(match address {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Box::new(TcpStream::connect((host.as_str(), *port)).await?)
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => Box::new(UnixStream::connect(path).await?),
        _ => return Err(io::ErrorKind::Unsupported.into()),
    })
}

/// Explains the server's reply to a PING.
async fn stranger(dialer: &Dialer, client: &Client, kind: Kind) -> Option<Found> {
    let address = client.get_connection_info().addr();
    if is_tls(address) {
        return tls_stranger(dialer, client, kind).await;
    }
    match timeout(dialer.response_timeout(), ping(address)).await.ok()? {
        Ok(said) if said.starts_with(&[0x15, 3]) => wants_tls(Kind::Tls),
        Ok(said) if said.starts_with(b"+PONG") => None,
        Ok(said) if said.starts_with(b"-") => Found::said(error_of_text(&printable(&said[1..]))),
        Ok(said) if !said.is_empty() => {
            let said = printable(&said);
            Found::new(
                Kind::NotRedis,
                format!("the server is not Redis; its reply was {said:?}: {LOOK}"),
            )
        }
        // The server may be stopping, or may have stopped.
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset => Found::said(error.into()),
        _ if kind == Kind::Closed => wants_tls(kind),
        _ => None,
    }
}

async fn tls_stranger(dialer: &Dialer, client: &Client, kind: Kind) -> Option<Found> {
    let ready = dialer.ready(client).await.ok()?;
    // The reason for rejecting a certificate may be lost when the connection closes. Another
    // attempt may receive it.
    for _ in 0..TLS_ATTEMPTS {
        if let Some(found) = replied(dialer, &ready, &redis::cmd("PING")).await {
            return Some(found);
        }
    }
    Found::new(
        kind,
        "the TLS connection was closed: check the server's log, and whether this port uses TLS; \
         if not, try redis:// instead of rediss://",
    )
}

fn wants_tls(kind: Kind) -> Option<Found> {
    Found::new(
        kind,
        "the server closed the connection without a reply: check its log; if it requires TLS, \
         use rediss:// instead of redis://",
    )
}

async fn ping(address: &ConnectionAddr) -> io::Result<Vec<u8>> {
    let mut stream = open(address).await?;
    stream.write_all(b"*1\r\n$4\r\nPING\r\n").await?;
    let mut said = vec![0; MAX_BYTES];
    let length = stream.read(&mut said).await?;
    said.truncate(length);
    Ok(said)
}

/// Returns the first line. Each unprintable character is replaced by a dot.
fn printable(said: &[u8]) -> String {
    let line = said.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let shown =
        |byte: &u8| if byte.is_ascii_graphic() || *byte == b' ' { *byte as char } else { '.' };
    line.iter().map(shown).collect()
}

/// Creates an error from the text of a server's error.
pub(crate) fn error_of_text(text: &str) -> RedisError {
    let is_code = |word: &str| word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let (code, detail) = match text.split_once(' ') {
        Some((code, detail)) if is_code(code) => (code, detail),
        _ => ("ERR", text),
    };
    redis::make_extension_error(code.to_owned(), Some(detail.to_owned()))
}

/// Finds out why the server rejects the password, because redis-rs drops the server's error.
async fn refusal(dialer: &Dialer, client: &Client) -> Option<Found> {
    // If a provider is set, `ready` requests the current password.
    let info = dialer.ready(client).await.ok()?.get_connection_info().clone();
    let login = info.redis_settings().clone();
    let mut auth = redis::cmd("AUTH");
    auth.arg(login.username()).arg(login.password()?);
    let settings = RedisConnectionInfo::default().set_skip_set_lib_name();
    let nobody = info.set_redis_settings(settings);
    let nobody = Client::open(nobody).ok()?;
    match replied(dialer, &nobody, &auth).await {
        // A server without free connections sends its error before any command, and disconnects.
        None => stranger(dialer, client, Kind::Authentication).await,
        Some(Found { source: Some(error), .. }) => Found::said(without_password(error, &login)),
        found => found,
    }
}

/// Returns the server's error for a command.
async fn replied(dialer: &Dialer, client: &Client, command: &Cmd) -> Option<Found> {
    let ask = async {
        let config = dialer.config();
        let dialed = dialer.open(client, &config).await?;
        command.exec_async(&mut dialed.connection()).await
    };
    match timeout(dialer.response_timeout(), ask).await.ok()? {
        Err(error) if error.code().is_some() || cause_of(&error).kind == Kind::Tls => {
            Found::said(error)
        }
        _ => None,
    }
}
