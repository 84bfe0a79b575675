//! Finds the missing rule of `ACL SETUSER` when the server denies a permission.

use std::sync::Arc;

use redis::RedisError;

use crate::diagnosis::inquiry::error_of_text;
use crate::diagnosis::unknown::renamed;
use crate::error::{ConnectErrorKind, Error, cause_of, is_unknown_command, lacks_right};
use crate::scripts::CallBy;
use crate::server::Link;

/// Redis 7.0 and newer let a script check the user's permissions. On older servers, the script
/// reports every command as permitted.
const MAY: &str = "if not redis.acl_check_cmd then return 1 end
return redis.acl_check_cmd(unpack(ARGV)) and 1 or 0";

/// Returns the error with which the server would reject a command, without calling the command. A
/// rejected command would appear in the server's `ACL LOG`, and might set off alarms. Returns
/// `None` if the command is permitted or its permission is unknown.
pub(crate) async fn denial(link: &Arc<Link>, words: &[&str]) -> Option<RedisError> {
    if matches!(link.call_by(), CallBy::Function) {
        return None; // the user may lack the permission for EVAL
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
    Some(error_of_text(&refusal))
}

/// Explains the error of a command: the permission is missing, the command was renamed, or there is
/// another cause. `is_sharded`: whether channels are sharded.
pub(crate) fn explain(
    address: String,
    prefix: &str,
    is_sharded: bool,
    command: &str,
    error: RedisError,
) -> Error {
    let text = error.to_string();
    let (kind, reason, right) = if lacks_right(&text) {
        let right = right(prefix, is_sharded, command, &text);
        let reason = format!(
            "the user lacks the right {right}, so the server rejects {command}: grant it with ACL \
             SETUSER, see docs/production.md"
        );
        (ConnectErrorKind::Permission, reason, Some(right))
    } else if is_unknown_command(&text) {
        (ConnectErrorKind::Unusable, renamed(&command.to_uppercase()), None)
    } else {
        let cause = cause_of(&error);
        (cause.kind, cause.reason(), None)
    };
    Error::Connect { address, kind, reason, right, source: Some(error) }
}

fn right(prefix: &str, is_sharded: bool, command: &str, reason: &str) -> String {
    let is_about_command = ["to run the", "run this command"];
    if is_about_command.iter().any(|words| reason.contains(words)) {
        let command = command.to_lowercase();
        return match command.as_str() {
            // Redis 6.2 does not name subcommands.
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
