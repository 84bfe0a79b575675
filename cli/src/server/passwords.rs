//! The sources of passwords. Arguments are not accepted, because every user of the machine can read
//! them.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;

use super::files;
use super::options::Server;
use crate::failure::Failure;

const SCHEMES: [&str; 7] =
    ["redis", "rediss", "valkey", "valkeys", "redis+unix", "valkey+unix", "unix"];
/// The length of the longest password. A server closes a connection that sends a longer argument
/// before the login.
const MAX_BYTES: usize = 16 << 10;

/// Rejects arguments with a password, before an error message repeats the password.
pub fn refuse(arguments: impl Iterator<Item = OsString>) -> Result<(), Failure> {
    // After `--` comes the command of `run`.
    let mut ours = arguments.take_while(|argument| argument != "--");
    match ours.any(|argument| has_password(&argument.to_string_lossy())) {
        false => Ok(()),
        true => Err(Failure::usage(
            "an argument contains a URL with a password, which every user of this machine could \
             read: put the URL of Redis into the environment variable REDIS_URL, or the password \
             into --password-file, and use names without passwords",
        )),
    }
}

/// Rejects the variables whose value contains a user or a password, before an error message repeats
/// the value. Only REDIS_URL may contain them.
pub fn refuse_in_variables<'a>(names: impl Iterator<Item = &'a OsStr>) -> Result<(), Failure> {
    let contains_login = |name: &&OsStr| {
        std::env::var_os(name).is_some_and(|value| has_login(&value.to_string_lossy()))
    };
    match { names }.find(contains_login) {
        None => Ok(()),
        Some(name) => Err(Failure::usage(format!(
            "{}: it contains a URL with a user or a password: put the URL into the environment \
             variable REDIS_URL",
            name.display()
        ))),
    }
}

/// Returns whether a value contains a URL with a user or a password. The user may be a password by
/// mistake.
pub fn has_login(value: &str) -> bool {
    let has_user = value.split_once("://").is_some_and(|(_, rest)| rest.contains('@'));
    has_user || has_password(value)
}

/// Returns the value of an option for an error message. The value of a variable is replaced by the
/// variable's name, because it may be a password that was put into the wrong variable.
pub fn shown(value: &str) -> Cow<'_, str> {
    if has_login(value) {
        return "[a URL with a user or a password]".into();
    }
    let holds_it = |(name, its): &(OsString, OsString)| {
        its == value && name.to_string_lossy().starts_with("REDIS_")
    };
    match std::env::vars_os().find(holds_it) {
        Some((name, _)) => format!("[the value of {}]", name.display()).into(),
        None => value.into(),
    }
}

/// Returns whether an argument contains a URL with a password. Guesses from the text, because a URL
/// with an unescaped password cannot be parsed.
fn has_password(argument: &str) -> bool {
    let mut urls: Vec<String> = Vec::new();
    for part in argument.split(',') {
        match urls.last_mut() {
            // A part without a scheme may be the rest of a password with a comma in it.
            Some(url) if behind_scheme(part).is_none() => url.push_str(part),
            _ => urls.push(part.to_owned()),
        }
    }
    urls.iter().filter_map(|url| behind_scheme(url)).any(|rest| {
        let of_user = rest.split_once(':').is_some_and(|(_, password)| password.contains('@'));
        of_user || rest.split(['?', '&', '#']).skip(1).any(is_password)
    })
}

/// Returns the text after the scheme of a URL. The URL may follow other text: the name of an
/// option, as in `--url=redis://...`, or white space.
fn behind_scheme(text: &str) -> Option<&str> {
    let (before, rest) = text.split_once(':')?;
    let is_of_scheme = |c: char| c.is_ascii_alphabetic() || c == '+';
    let scheme = before.rsplit(|c| !is_of_scheme(c)).next().unwrap_or_default();
    let scheme = scheme.to_ascii_lowercase();
    match rest.strip_prefix("//") {
        Some(rest) if !scheme.is_empty() => Some(rest),
        None if rest.starts_with('/') && SCHEMES.contains(&&*scheme) => Some(rest),
        _ => None,
    }
}

/// Returns whether a parameter of a URL may be a password. The parameter's name may be escaped.
fn is_password(parameter: &str) -> bool {
    let (name, value) = parameter.split_once('=').unwrap_or_default();
    let name = name.to_ascii_lowercase();
    let may_be_one = name.contains("pass") || name.contains("pw") || name.contains('%');
    may_be_one && !value.is_empty()
}

/// Returns the password from the file or the environment variable, and not from a URL.
pub fn read(server: &Server) -> Result<Option<String>, Failure> {
    match &server.password_file {
        Some(file) => {
            let option = "--password-file";
            let content = files::read(option, file)?;
            let place = format!("{option}: {}", shown(&file.to_string_lossy()));
            only_line(content, &place).map(Some)
        }
        None => of_environment(),
    }
}

/// Fails if --password-file and REDIS_PASSWORD contain different passwords.
pub fn check_places(server: &Server) -> Result<(), Failure> {
    let Some(other) = of_environment()?.filter(|_| server.password_file.is_some()) else {
        return Ok(());
    };
    match read(server)?.is_some_and(|password| password == other) {
        true => Ok(()),
        false => Err(Failure::usage(
            "--password-file and REDIS_PASSWORD have different passwords: remove one of them",
        )),
    }
}

fn of_environment() -> Result<Option<String>, Failure> {
    let given = std::env::var_os("REDIS_PASSWORD").filter(|given| !given.is_empty());
    given.map(|given| only_line(given.into_vec(), "REDIS_PASSWORD")).transpose()
}

/// Rejects content that is probably a mistake. If such content were sent, the server would report
/// only a wrong password.
fn only_line(content: Vec<u8>, place: &str) -> Result<String, Failure> {
    let wrong = |reason| Failure::usage(format!("{place}: {reason}"));
    if content.len() > MAX_BYTES {
        return Err(wrong("it is longer than 16 KiB, so it is probably no password"));
    }
    if content.starts_with(b"\xef\xbb\xbf") {
        return Err(wrong("it begins with a byte-order mark: save it without one"));
    }
    if content.starts_with(b"\xff\xfe") || content.starts_with(b"\xfe\xff") {
        return Err(wrong("it is UTF-16: save it as UTF-8"));
    }
    let text =
        String::from_utf8(content).map_err(|_| wrong("it is not UTF-8: save it as UTF-8"))?;
    let text = text.trim_end_matches(['\n', '\r']);
    if text.is_empty() {
        return Err(wrong("it is empty: write the password into it"));
    }
    if text.contains(['\n', '\r']) {
        return Err(wrong("it has more than one line: the password must be its only line"));
    }
    if text.contains(char::is_control) {
        return Err(wrong("it contains a control character, such as a tab: remove it"));
    }
    Ok(text.to_owned())
}
