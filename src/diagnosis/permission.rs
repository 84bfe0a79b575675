//! What a refusal of the server's access control is about: the rule of `ACL SETUSER` that is
//! missing.

use redis::RedisError;

use crate::error::{ConnectErrorKind, Error, cause_of, lacks_right};

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
