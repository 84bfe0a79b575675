//! Explains why a server does not know a command: the server is too old, or the command was renamed
//! or disabled. The server's error is omitted, because it repeats everything that was sent.

use crate::error::ConnectErrorKind as Kind;
use crate::scripts::CallBy;

/// The unknown command, as the server's error names it.
pub(super) fn command_in(reason: &str) -> Option<String> {
    let quoted = reason.split(['\'', '`', '"']).nth(1)?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '|';
    let is_command = !quoted.is_empty() && quoted.len() < 40 && quoted.chars().all(is_name);
    is_command.then(|| quoted.to_owned())
}

pub(super) fn explain(
    command: &str,
    version: &str,
    is_cluster: bool,
    call_by: CallBy,
) -> (Kind, String) {
    let command = command.to_uppercase();
    let by_function = matches!(call_by, CallBy::Function);
    let needed = if is_cluster || by_function { (7, 0) } else { (6, 2) };
    let purpose = if is_cluster { "for a cluster, " } else { "" };
    let otherwise = if by_function { ", or connect without use_functions()" } else { "" };
    let newer =
        format!("{purpose}use Redis {}.{} or newer, or Valkey{otherwise}", needed.0, needed.1);
    let renamed = renamed(&command);
    match parsed(version) {
        Some(parsed) if parsed >= needed => {
            (Kind::Unusable, format!("its version is {version}, and {renamed}"))
        }
        Some(_) => (
            Kind::TooOld,
            format!("its version {version} does not support {command} as needed: {newer}"),
        ),
        None => (
            Kind::Unusable,
            format!(
                "the server does not know {command} and does not report its version: {newer}; or \
                 {renamed}"
            ),
        ),
    }
}

/// `command` in capital letters.
pub(super) fn renamed(command: &str) -> String {
    format!(
        "the server has renamed or disabled {command}: check its configuration for \
         rename-command, or ask its operator to allow {command}"
    )
}

/// The first two numbers of a version.
fn parsed(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_server_is_distinguished_from_a_renamed_command() {
        for (version, is_cluster, kind, words) in [
            ("7.0.15", false, Kind::Unusable, "has renamed or disabled PUBLISH"),
            ("6.2.0", false, Kind::Unusable, "renamed"),
            ("6.0.16", false, Kind::TooOld, "version 6.0.16 does not support PUBLISH"),
            ("6.2.14", true, Kind::TooOld, "for a cluster, use Redis 7.0 or newer"),
            ("unknown", false, Kind::Unusable, "does not report its version"),
        ] {
            let (its, text) = explain("publish", version, is_cluster, CallBy::Sha1);
            assert_eq!(its, kind, "{text}");
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn the_unknown_command_is_read_from_the_error_message() {
        let said = "ERR unknown command 'SCRIPT', with args beginning with: 'LOAD' 'local x = \"'";
        assert_eq!(command_in(said).as_deref(), Some("SCRIPT"));
        assert_eq!(command_in("ERR unknown command `evalsha`, with").as_deref(), Some("evalsha"));
        assert_eq!(command_in("ERR unknown command"), None);
    }
}
