//! Connecting fails fast and says why: what would fail half-way through a script later is looked
//! for first.

use std::sync::Arc;

use redis::{ConnectionAddr, ErrorKind, InfoDict, RedisError, ServerErrorKind};

use crate::keys::Keys;
use crate::link::Link;
use crate::{Error, ScriptRegistry, permission, tls};

/// Loads the scripts, and lets the server try every command that they use.
pub(crate) async fn check_server(
    link: &Arc<Link>,
    prefix: &str,
    channel: &str,
) -> Result<(), Error> {
    let refused = try_commands(link, prefix, channel).await?;
    refused.into_iter().next().map_or(Ok(()), Err)
}

/// As `check_server`, with an error for each command of the scripts that is refused.
pub(crate) async fn try_commands(
    link: &Arc<Link>,
    prefix: &str,
    channel: &str,
) -> Result<Vec<Error>, Error> {
    let (_, mut connection) =
        link.connection().await.map_err(|error| explain(link, prefix, error))?;
    // Before anything large: a server that wants a password closes the connection on that.
    let ping = redis::cmd("PING").exec_async(&mut connection).await;
    ping.map_err(|error| explain(link, prefix, error))?;
    // Only needed when the server has forgotten a script, which is no time to find it refused.
    let eval = redis::cmd("EVAL").arg("return 1").arg(0).exec_async(&mut connection).await;
    eval.map_err(|error| explain(link, prefix, error))?;
    let registry = ScriptRegistry::embedded();
    let explain_registry = |error| match error {
        Error::Redis(error) => explain(link, prefix, error),
        other => other,
    };
    registry.load(&mut connection).await.map_err(explain_registry)?;

    let name = format!("probe-{}", uuid::Uuid::new_v4().simple());
    let keys = Keys::new(prefix, &name);
    let failed: Vec<(String, String)> = registry
        .run(&mut connection, "probe", &keys.0, &[channel, "publish"])
        .await
        .map_err(explain_registry)?;
    if failed.is_empty() {
        return Ok(Vec::new());
    }
    let info: Result<InfoDict, _> =
        redis::cmd("INFO").arg("server").query_async(&mut connection).await;
    let version = info.ok().and_then(|info| info.get::<String>("redis_version"));
    let version = version.as_deref().unwrap_or("unknown");
    let error = |(command, reason)| explain_refusal(prefix, version, command, reason);
    Ok(failed.into_iter().map(error).collect())
}

/// Says what it means that a command of the scripts was refused.
fn explain_refusal(prefix: &str, version: &str, command: String, reason: String) -> Error {
    let reason = reason.trim_end().to_owned();
    // Servers put it in different words.
    let words = reason.to_lowercase();
    if words.contains("readonly") || words.contains("read only replica") {
        return Error::Unsupported(format!("it is a replica, not a primary ({reason})"));
    }
    if words.contains("unknown") && words.contains("command") {
        return Error::Unsupported(format!(
            "its version is {version}, which has no {command}; Redis 6.2 or newer, or Valkey, is needed"
        ));
    }
    if permission::is_refusal(&reason) {
        return permission::lacking(prefix, command, reason);
    }
    Error::Unsupported(format!("{command} failed: {reason}"))
}

/// Says what an error on the way to a working connection means.
pub(crate) fn explain(link: &Link, prefix: &str, error: RedisError) -> Error {
    let reason = error.to_string();
    if error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) {
        // Redis names a command in quotes, unless it is the keys that are refused: all that is sent
        // with keys are scripts.
        let command = reason.split('\'').nth(1).unwrap_or("evalsha").to_owned();
        return permission::lacking(prefix, command, reason);
    }
    if error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly) {
        return Error::Unsupported(format!("it is a replica, not a primary ({reason})"));
    }
    let reason = tls::explain(link.client().get_connection_info().addr(), &error);
    Error::Connect { address: address(link), reason }
}

fn address(link: &Link) -> String {
    match link.client().get_connection_info().addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            format!("{host}:{port}")
        }
        ConnectionAddr::Unix(path) => path.display().to_string(),
        other => other.to_string(),
    }
}
