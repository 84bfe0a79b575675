//! Passwords do not belong among the arguments, which everybody on the machine can read.

use std::ffi::OsString;

use crate::failure::Failure;

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
            Some(url) if !begins_with_scheme(part) => url.push_str(part),
            _ => urls.push(part.to_owned()),
        }
    }
    urls.iter().filter_map(|url| url.split_once("://")).any(|(_, rest)| {
        let of_user = rest.split_once(':').is_some_and(|(_, password)| password.contains('@'));
        of_user || rest.contains("pass=")
    })
}

fn begins_with_scheme(text: &str) -> bool {
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| scheme.bytes().all(|b| b.is_ascii_alphabetic() || b == b'+'))
}
