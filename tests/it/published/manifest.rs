//! Generates `lua/manifest.json` from the head comments of the scripts. The manifest contains the
//! arguments, replies, errors and costs of each script. Clients in other languages read the
//! manifest.

use redis_semaphore::{Script, ScriptRegistry};
use serde::Serialize;

use test_support::head::{Head, Section, range};

#[derive(Serialize)]
struct Manifest {
    description: &'static str,
    protocol: u32,
    servers: &'static str,
    prefix: &'static str,
    name: &'static str,
    id: Id,
    keys: Vec<Key>,
    errors: Vec<Named>,
    grant_message: GrantMessage,
    functions: Functions,
    scripts: Vec<Entry>,
}

#[derive(Serialize)]
struct Named {
    name: String,
    description: String,
}

#[derive(Serialize)]
struct Key {
    name: String,
    key: String,
    description: String,
}

/// The ID of a request and of its permit.
#[derive(Serialize)]
struct Id {
    format: &'static str,
    parts: Vec<Named>,
    idempotency_key: &'static str,
}

#[derive(Serialize)]
struct GrantMessage {
    channels: Vec<Named>,
    first_line: &'static str,
    other_lines: &'static str,
    token_0: &'static str,
}

#[derive(Serialize)]
struct Functions {
    file: &'static str,
    library: &'static str,
    prefix: &'static str,
}

#[derive(Serialize)]
struct Entry {
    name: String,
    summary: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    details: String,
    sha1: String,
    keys: Vec<String>,
    arguments: Vec<Argument>,
    reply: Reply,
    errors: Vec<String>,
    cost: Cost,
    function_flags: Vec<String>,
    source: String,
}

#[derive(Serialize, Default)]
struct Argument {
    /// The position in `ARGV`. For `requests`, the position of the first request.
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<usize>,
    name: String,
    /// "integer", "string", "choice" (one of `values`), "choice or integer", "id",
    /// "integer or id", or "requests".
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    values: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max: Option<u64>,
    description: String,
    /// The forms of an argument whose value decides which arguments follow.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    formats: Vec<Named>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    of: Vec<Argument>,
}

#[derive(Serialize)]
struct Reply {
    description: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cases: Vec<Named>,
    /// The values after the server's time and, if the reply has it, `wake_in`, in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fields: Vec<Named>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wake_in: Option<String>,
}

#[derive(Serialize)]
struct Cost {
    description: String,
    commands: Vec<Count>,
}

#[derive(Serialize)]
struct Count {
    count: i64,
    case: String,
}

fn named(name: &str, text: &str) -> Named {
    Named { name: name.to_owned(), description: text.to_owned() }
}

fn all_named(parts: &[(String, String)]) -> Vec<Named> {
    parts.iter().map(|(name, text)| named(name, text)).collect()
}

/// Reads the type, the range and the unit of an argument from the text of the header.
fn argument(name: &str, text: &str) -> Argument {
    let is_choice = text.starts_with('"');
    let is_id = ["id", "idempotency_key"].contains(&name);
    // For `wait_mode`, this is the range of tickets.
    let range = range(text.split(" or the ").last().unwrap());
    let units = ["ms", "bytes"].into_iter();
    let mut units = units
        .filter(|unit| range.is_some_and(|(_, most)| text.contains(&format!(" to {most} {unit}"))));
    let unit = units.next();
    let kind = match (is_choice, range, unit) {
        _ if is_id => "id",
        _ if name == "next" => "integer or id",
        (true, None, _) => "choice",
        (true, Some(_), _) => "choice or integer",
        (false, Some(_), Some("bytes")) => "string",
        (false, Some(_), _) => "integer",
        (false, None, _) => panic!("the range of {name} is missing: {text}"),
    };
    let range = range.filter(|_| !is_id);
    let ids = text.split('"').skip(1).step_by(2).map(str::to_owned);
    Argument {
        name: name.to_owned(),
        kind,
        values: ids.filter(|_| is_choice).collect(),
        unit,
        min: range.map(|(least, _)| least),
        max: range.map(|(_, most)| most),
        description: text.to_owned(),
        ..Argument::default()
    }
}

fn argument_of(section: &Section) -> Argument {
    let number = section.label.trim_start_matches("ARGV[").trim_end_matches([']', '+']);
    let position = Some(number.parse().unwrap());
    if section.label.ends_with("+]") {
        let (min, max) = range(&section.text).unwrap();
        return Argument {
            position,
            name: section.name.clone(),
            kind: "requests",
            min: Some(min),
            max: Some(max),
            description: section.text.clone(),
            of: section.parts.iter().map(|(name, text)| argument(name, text)).collect(),
            ..Argument::default()
        };
    }
    if section.parts.is_empty() {
        return Argument { position, ..argument(&section.name, &section.text) };
    }
    let action = |(form, _): &(String, String)| form.split('"').nth(1).unwrap().to_owned();
    Argument {
        position,
        name: section.name.clone(),
        kind: "choice",
        values: section.parts.iter().map(action).collect(),
        description: section.text.clone(),
        formats: all_named(&section.parts),
        ..Argument::default()
    }
}

/// A part is a case if its name begins with a digit or is `expires_at`. All other parts are fields.
fn reply_of(section: &Section) -> Reply {
    let is_case =
        |name: &str| name.starts_with(|c: char| c.is_ascii_digit()) || name == "expires_at";
    let (cases, fields): (Vec<_>, Vec<_>) =
        section.parts.iter().cloned().partition(|(name, _)| is_case(name));
    let (wake_in, fields): (Vec<_>, Vec<_>) =
        fields.into_iter().partition(|(name, _)| name == "wake_in");
    Reply {
        description: section.text.clone(),
        cases: all_named(&cases),
        fields: all_named(&fields),
        wake_in: wake_in.into_iter().map(|(_, text)| text).next(),
    }
}

fn entry(script: &Script) -> Entry {
    let head = Head::read(script.name());
    let (reply, cost) = (head.section("Reply"), head.section("Cost"));
    let counted = head.counted_cases().into_iter();
    Entry {
        name: head.script.clone(),
        summary: head.summary.clone(),
        details: head.details.clone(),
        sha1: script.sha1().to_owned(),
        keys: script.keys().to_owned(),
        arguments: head.arguments().map(argument_of).collect(),
        reply: reply_of(reply),
        errors: head.section("Errors").text.split(", ").map(str::to_owned).collect(),
        cost: Cost {
            description: cost.text.clone(),
            commands: counted.map(|(count, case)| Count { count, case: case.to_owned() }).collect(),
        },
        function_flags: script.flags().to_owned(),
        source: script.source().to_owned(),
    }
}

fn manifest() -> Manifest {
    let registry = ScriptRegistry::embedded();
    let acquire = Head::read("acquire");
    let keys = acquire.sections.iter().filter(|section| section.label.starts_with("KEYS["));
    let key = |section: &Section| Key {
        name: section.name.clone(),
        key: format!("sem:{{NAME}}:{}", section.name),
        description: section.text.clone(),
    };
    Manifest {
        description: "The scripts of a fair counting semaphore in Redis, with their arguments, \
                      replies, errors and costs. README.md in this directory describes how to \
                      write a client.",
        protocol: 1,
        servers: "Redis 6.2 or newer, Valkey; functions and sharded channels: Redis 7.0 or newer, \
                  Valkey",
        id: Id {
            format: "NOTIFY:CLIENT:WEIGHT:LEASE:NONCE or \
                     NOTIFY:CLIENT:WEIGHT:LEASE:GROUP,SHARE,CAP:NONCE",
            parts: vec![
                named("NOTIFY", "P, S or N: how the client is notified, see grant_message"),
                named(
                    "CLIENT",
                    "1 to 100 letters, digits, \".\", \"_\" or \"-\", with a random part: one for \
                     each process",
                ),
                named("WEIGHT", "1 to 4294967295, without leading zeros"),
                named("LEASE", "1 to 604800000 ms, without leading zeros"),
                named("GROUP", "1 to 64 letters, digits, \".\", \"_\" or \"-\""),
                named("SHARE", "1 to 1000, without leading zeros"),
                named("CAP", "0 for no cap, or from WEIGHT to 4294967295, without leading zeros"),
                named(
                    "NONCE",
                    "16 to 64 letters, digits, \"_\" or \"-\", with 128 random bits: new for each \
                     acquire",
                ),
            ],
            idempotency_key: "an ID of weight 0: a change of the limit that is repeated with it \
                              within its lease counts once",
        },
        prefix: "default: sem; 1 to 200 bytes, without braces and white space",
        name: "of the semaphore: 1 to 512 bytes of UTF-8, without braces and control characters",
        keys: keys.map(key).collect(),
        errors: vec![
            named(
                "SEM_KEYS",
                "the keys are not the first four, or all six, keys of one semaphore in their order",
            ),
            named(
                "SEM_ARG",
                "an argument is invalid: the error contains its name, the valid values, and its \
                 value",
            ),
            named("SEM_TYPE", "one of the keys exists with another type"),
            named("SEM_GROUPS", "the semaphore has groups: call again with all six keys"),
            named("SEM_VERSION", "the semaphore was written by another version of the protocol"),
            named(
                "SEM_TOO_HEAVY",
                "a request weighs more than the limit, and no runtime limit is set",
            ),
        ],
        grant_message: GrantMessage {
            channels: vec![
                named("P", "SUBSCRIBE PREFIX:wake:CLIENT"),
                named("S", "SSUBSCRIBE PREFIX:{NAME}:wake:CLIENT"),
                named("N", "no message: call acquire again with the same IDs"),
            ],
            first_line: "the name of the semaphore",
            other_lines: "ID token expires_at: this request is granted",
            token_0: "this request left the queue, because it weighs more than the limit; \
                      expires_at is 0",
        },
        functions: Functions { file: "functions.lua", library: "redis_semaphore", prefix: "sem_" },
        scripts: registry.scripts().map(entry).collect(),
    }
}

#[test]
fn manifest_json_matches_the_scripts() {
    let text = serde_json::to_string_pretty(&manifest()).unwrap() + "\n";
    super::assert_is_published("manifest.json", &text);
}
