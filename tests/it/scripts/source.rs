//! Checks the rules for the text of the scripts. A script that keeps the rules runs on every
//! server.

use std::collections::BTreeSet;
use std::path::PathBuf;

use redis_semaphore::ScriptRegistry;

use test_support::head::folder;
use test_support::scripts::KEYS;

fn files() -> Vec<(String, String)> {
    let read = |folder: PathBuf| {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let is_code = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "lua");
        let files: Vec<_> =
            entries.filter(is_code).filter(|path| !path.ends_with("functions.lua")).collect();
        files
    };
    let mut files = [read(folder()), read(folder().join("lib"))].concat();
    files.sort();
    let text = |path: &PathBuf| std::fs::read_to_string(path).unwrap();
    files.iter().map(|path| (path.display().to_string(), text(path))).collect()
}

/// Returns the lines without comments, each with its number.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(number, line)| {
        let line = line.split_once("--").map_or(line, |(code, _)| code);
        (number + 1, line.trim())
    })
}

#[test]
fn all_script_files_are_checked() {
    assert_eq!(files().len(), 18);
}

/// An author of a client should be able to read each file in one sitting.
#[test]
fn the_scripts_and_the_protocol_page_stay_short() {
    let lines = |text: &str| text.lines().count();
    let acquire = std::fs::read_to_string(folder().join("acquire.lua")).unwrap();
    assert!(lines(&acquire) <= 180, "acquire.lua has {} lines", lines(&acquire));
    let sent = lines(ScriptRegistry::embedded().script("acquire").unwrap().source());
    assert!(sent <= 800, "a server gets {sent} lines of acquire");
    let all: usize = files().iter().map(|(_, text)| lines(text)).sum();
    assert!(all <= 1485, "all scripts have {all} lines");
    let protocol = std::fs::read_to_string(folder().join("../docs/protocol.md")).unwrap();
    let words = protocol.split_whitespace().count();
    assert!(words <= 4800, "protocol.md has {words} words");
}

#[test]
fn no_script_file_uses_a_feature_that_some_servers_lack() {
    let banned = [
        "#!",
        "cjson",
        "cmsgpack",
        "struct.",
        "bit.",
        "os.",
        "loadstring",
        "setfenv",
        "_G.",
        "_G[",
        "goto",
        "redis.setresp",
        "redis.replicate_commands",
        "redis.set_repl",
        "redis.register_function",
        "redis.acl_check_cmd(", // An old server lacks this function: use `pcall`.
        "redis.REDIS_VERSION",
        "math.random",
        "SORT",
        "KEYS *",
        "'SCAN",
        "'SMEMBERS",
        "'HGETALL",
        "'HKEYS",
        "'HVALS",
    ];
    for (path, text) in files() {
        // Comments must be ASCII, too: in another encoding, a script would have another SHA-1.
        assert!(text.is_ascii(), "{path}");
        for (number, line) in code(&text) {
            for word in banned {
                assert!(!line.contains(word), "{path}:{number} has {word}");
            }
        }
    }
}

/// Returns the names that a line declares: locals, functions, parameters and loop variables.
fn declared(line: &str) -> Vec<&str> {
    let line = line.strip_prefix("local ").unwrap_or(line);
    let mut names = Vec::new();
    if let Some(signature) = line.split_once("function ").map(|(_, rest)| rest) {
        let (name, parameters) = signature.split_once('(').unwrap();
        names.push(name);
        names.extend(parameters.split(')').next().unwrap().split(','));
    } else if let Some(loop_names) = line.strip_prefix("for ") {
        names
            .extend(loop_names.split(" in ").next().unwrap().split('=').next().unwrap().split(','));
    } else {
        names.extend(line.split('=').next().unwrap().split(','));
    }
    names.into_iter().map(str::trim).filter(|name| is_name(name)).collect()
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[test]
fn no_script_sets_a_global() {
    for script in ScriptRegistry::embedded().scripts() {
        let mut locals = BTreeSet::new();
        for (number, line) in code(script.source()) {
            let place = format!("{}:{number}: {line}", script.name());
            let is_field = line.starts_with("function groups.");
            assert!(!line.starts_with("function ") || is_field, "{place} is a global function");
            if is_field {
                continue;
            }
            if line.starts_with("local ") || line.starts_with("for ") {
                locals.extend(declared(line));
                continue;
            }
            // A line that ends with a comma belongs to a table and sets a field.
            let Some((names, _)) = line.split_once(" = ").filter(|_| !line.ends_with(',')) else {
                continue;
            };
            for name in names.split(',').map(str::trim).filter(|name| is_name(name)) {
                assert!(locals.contains(name), "{place} sets the global {name}");
            }
        }
        assert!(locals.contains("stem") && locals.contains("index"), "{locals:?}");
    }
}

/// Returns the first two arguments of each call of `function` in a text.
fn calls<'a>(text: &'a str, function: &str) -> Vec<(&'a str, &'a str)> {
    let opening = format!("{function}(");
    let call = |(start, _): (usize, &str)| {
        let rest = &text[start + opening.len()..];
        let rest = rest.split_once(')').unwrap().0;
        let mut arguments = rest.split(',').map(str::trim);
        (arguments.next().unwrap(), arguments.next().unwrap_or_default())
    };
    let is_call = |(start, _): &(usize, &str)| {
        let before = text[..*start].chars().next_back();
        !before.is_some_and(|before| before.is_alphanumeric() || before == '_')
            && !text[..*start].ends_with("function ")
    };
    text.match_indices(&opening).filter(is_call).map(call).collect()
}

/// Returns whether an expression is one of the six keys: a field of the state, a local variable of
/// `groups_of` or `probe`, or an element of `keys`.
fn is_own_key(expression: &str) -> bool {
    let field = expression.strip_prefix("s.").unwrap_or(expression);
    KEYS.contains(&field.strip_suffix("_key").unwrap_or(field))
        || (1..=6).any(|number| expression == format!("keys[{number}]"))
}

/// In a cluster, and with ACL rules, a script may access only the keys that the call declares.
#[test]
fn every_command_uses_a_declared_key() {
    let (mut counted, mut tried) = (0, 0);
    for (path, text) in files() {
        for (command, key) in [calls(&text, "redis.call"), calls(&text, "redis.pcall")].concat() {
            let is_known = match (command, key) {
                ("'TIME'", "") => true,
                // The first form is in `probe`, whose lists are checked below. The second form
                // publishes a message.
                ("unpack(call", "") | ("command", "channel") => true,
                ("'PUBSUB'", subcommand) => subcommand.ends_with("'NUMSUB'"),
                // The calls of `each` and the loops provide the key, and are checked below.
                (_, "key") => true,
                (_, key) => is_own_key(key),
            };
            assert!(is_known, "{path}: {command} {key}");
            counted += 1;
        }
        for (key, _) in calls(&text, "each") {
            assert!(is_own_key(key), "{path}: each {key}");
        }
        for (number, line) in code(&text) {
            let place = format!("{path}:{number}: {line}");
            if let Some((_, keys)) =
                line.split_once("for _, key in ipairs({").and_then(|_| line.split_once('{'))
            {
                let mut keys = keys.split('}').next().unwrap().split(", ");
                assert!(keys.all(is_own_key), "{place}");
            } else if let Some((_, key)) = line.split_once("local key = ") {
                assert!(is_own_key(key), "{place}");
            } else if let Some((key, _)) =
                line.strip_prefix('[').and_then(|rest| rest.split_once("] = "))
            {
                assert!(is_own_key(key), "{place}");
            }
            if let Some(command) = line.strip_prefix("{'").filter(|_| path.ends_with("probe.lua")) {
                let (name, rest) = command.split_once('\'').unwrap();
                let key = rest.trim_matches([',', ' ', '}']).split(',').next().unwrap();
                assert!(name == "TIME" || is_own_key(key), "{place}");
                tried += 1;
            }
        }
    }
    assert!(counted > 25 && tried > 15, "{counted} calls and {tried} of `probe` seen");
}

/// Scripts pass KEYS on, and build no key names: `check_keys` compares the names of keys, and
/// `channel_of` finds their beginning.
#[test]
fn no_script_builds_key_names() {
    for (path, text) in files() {
        for (number, line) in code(&text) {
            let place = format!("{path}:{number}: {line}");
            assert!(!line.replace("' as KEYS['", "").contains("KEYS["), "{place}");
            let ends = KEYS.map(|key| format!(":{key}"));
            let is_check = path.ends_with("arguments.lua") || path.ends_with("channel.lua");
            assert!(is_check || !ends.iter().any(|end| line.contains(end)), "{place}");
        }
    }
}
