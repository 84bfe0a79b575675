//! Where passwords come from, and where they must not stand: among the arguments, which everybody
//! on the machine can read.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use super::files;
use super::options::Server;
use crate::failure::Failure;

const SCHEMES: [&str; 7] =
    ["redis", "rediss", "valkey", "valkeys", "redis+unix", "valkey+unix", "unix"];

/// Before anything repeats an argument that is wrong.
pub fn refuse(arguments: impl Iterator<Item = OsString>) -> Result<(), Failure> {
    // What comes after that is the command that `run` runs.
    let mut ours = arguments.take_while(|argument| argument != "--");
    match ours.any(|argument| has_password(&argument.to_string_lossy())) {
        false => Ok(()),
        true => Err(Failure::usage(
            "an argument has a password in it, which everybody on this machine could read: put the \
             URL into REDIS_URL in the environment, or the password into --password-file",
        )),
    }
}

/// By its looks: a password that is not escaped makes a URL that cannot be read.
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

/// Also behind the name of an option: `--url=redis://...`.
fn behind_scheme(text: &str) -> Option<&str> {
    let (before, rest) = text.split_once(':')?;
    let scheme = before.rsplit('=').next().unwrap_or_default().to_ascii_lowercase();
    let is_any = !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphabetic() || b == b'+');
    match rest.strip_prefix("//") {
        Some(rest) if is_any => Some(rest),
        None if rest.starts_with('/') && SCHEMES.contains(&&*scheme) => Some(rest),
        _ => None,
    }
}

/// Its name may be escaped, too.
fn is_password(parameter: &str) -> bool {
    let (name, value) = parameter.split_once('=').unwrap_or_default();
    let name = name.to_ascii_lowercase();
    let may_be_one = name.contains("pass") || name.contains("pw") || name.contains('%');
    may_be_one && !value.is_empty()
}

/// The one that does not stand in a URL.
pub fn read(server: &Server) -> Result<Option<String>, Failure> {
    match &server.password_file {
        Some(file) => {
            let option = "--password-file";
            let content = files::read(option, file)?;
            let place = format!("{option}: {}", file.display());
            only_line(content, &place).map(Some)
        }
        None => of_environment(),
    }
}

/// That, where there are two of them that are not the same.
pub fn check_places(server: &Server) -> Result<(), Failure> {
    let Some(other) = of_environment()?.filter(|_| server.password_file.is_some()) else {
        return Ok(());
    };
    match read(server)?.is_some_and(|password| password == other) {
        true => Ok(()),
        false => Err(Failure::usage(
            "--password-file and REDIS_PASSWORD have different passwords: leave out one of the two",
        )),
    }
}

fn of_environment() -> Result<Option<String>, Failure> {
    let told = std::env::var_os("REDIS_PASSWORD").filter(|told| !told.is_empty());
    told.map(|told| only_line(told.into_vec(), "REDIS_PASSWORD")).transpose()
}

/// What is odd about it is told: the server would say no more than that it is wrong.
fn only_line(content: Vec<u8>, place: &str) -> Result<String, Failure> {
    let wrong = |reason| Failure::usage(format!("{place}: {reason}"));
    if content.starts_with(b"\xef\xbb\xbf") {
        return Err(wrong(
            "it begins with a byte-order mark, as some editors write: save it without",
        ));
    }
    if content.starts_with(b"\xff\xfe") || content.starts_with(b"\xfe\xff") {
        return Err(wrong("it is UTF-16: save it as UTF-8"));
    }
    let text = String::from_utf8(content)
        .map_err(|_| wrong("it is not UTF-8, so it cannot be the password as it stands there"))?;
    let text = text.trim_end_matches(['\n', '\r']);
    if text.is_empty() {
        return Err(wrong("no password is in it: it is empty"));
    }
    if text.contains(['\n', '\r']) {
        return Err(wrong("it has more than one line: the password is to be its only one"));
    }
    if text.contains(char::is_control) {
        return Err(wrong("there is a control character in it, such as a tabulator"));
    }
    Ok(text.to_owned())
}
