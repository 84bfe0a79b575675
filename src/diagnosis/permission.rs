//! What a refusal of the server's access control is about: the rule of `ACL SETUSER` that is
//! missing.

use std::sync::Arc;

use redis::RedisError;

use crate::diagnosis::inquiry::server_error;
use crate::error::{ConnectErrorKind, Error, cause_of, lacks_right};
use crate::scripts::CallBy;
use crate::server::Link;

/// Redis 7.0 and newer tell a script what its user may do. Of an older one nothing is known.
const MAY: &str = "if not redis.acl_check_cmd then return 1 end
return redis.acl_check_cmd(unpack(ARGV)) and 1 or 0";

/// What the server would say to refuse a command, asked without calling it: a command that is
/// denied is written to the server's list of them (ACL LOG), and sets off alarms. None where the
/// user may call it, or that cannot be known.
pub(crate) async fn denial(link: &Arc<Link>, words: &[&str]) -> Option<RedisError> {
    if matches!(link.call_by(), CallBy::Function(_)) {
        return None; // whose user need not have the right to ask
    }
    let may = async |words: &[&str]| {
        let mut ask = redis::cmd("EVAL");
        link.query::<i64>(ask.arg(MAY).arg(0).arg(words)).await.unwrap_or(1) == 1
    };
    if may(words).await {
        return None;
    }
    let name = words[0].to_lowercase();
    let command = match &*name {
        "config" => words[..2].join("|").to_lowercase(),
        _ => name,
    };
    let is_channel = command.ends_with("subscribe") && may(&words[..1]).await;
    let refusal = match is_channel {
        true => "NOPERM this user has no permissions to access one of the channels".to_owned(),
        false => format!("NOPERM this user has no permissions to run the '{command}' command"),
    };
    Some(server_error(&refusal))
}

/// Says what an error means that a command had.
pub(crate) fn explain(
    address: String,
    prefix: &str,
    is_sharded: bool,
    command: &str,
    error: RedisError,
) -> Error {
    if lacks_right(&error.to_string()) {
        return lacking(address, prefix, is_sharded, command, error);
    }
    let cause = cause_of(&error);
    let (kind, reason) = (cause.kind, cause.reason());
    Error::Connect { address, kind, reason, right: None, source: Some(error) }
}

/// Says which right is missing. `is_sharded`: as in a cluster.
pub(crate) fn lacking(
    address: String,
    prefix: &str,
    is_sharded: bool,
    command: &str,
    refusal: RedisError,
) -> Error {
    let right = right(prefix, is_sharded, command, &refusal.to_string());
    let advice = "grant it with ACL SETUSER, see docs/protocol.md";
    Error::Connect {
        address,
        kind: ConnectErrorKind::Permission,
        reason: format!("the user lacks the right {right}, so {command} is refused: {advice}"),
        right: Some(right),
        source: Some(refusal),
    }
}

fn right(prefix: &str, is_sharded: bool, command: &str, reason: &str) -> String {
    let is_about_command = ["to run the", "run this command"];
    if is_about_command.iter().any(|words| reason.contains(words)) {
        let command = command.to_lowercase();
        return match command.as_str() {
            // Redis 6.2 names no subcommands.
            "script" => "+script|load".to_owned(),
            "pubsub" if is_sharded => "+pubsub|shardnumsub".to_owned(),
            "pubsub" => "+pubsub|numsub".to_owned(),
            _ => format!("+{command}"),
        };
    }
    match reason.contains("channel") {
        true if is_sharded => format!("&{prefix}:{{*"),
        true => format!("&{prefix}:wake:*"),
        false => format!("~{prefix}:{{*"),
    }
}
