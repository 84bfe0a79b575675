//! Checks that the public names of the manifest, the CLI's JSON and the clients are terms of
//! `docs/concepts.md`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;
use serde_json::Value;

/// Names in the clients that are not terms.
const ORDINARY: &[&str] = &[
    "MissingPermission",
    "SemaphoreError",
    "Unsupported",
    "cause",
    "check",
    "code",
    "connect",
    "initialize",
    "is_own",
    "now",
    "operation",
    "own",
    "signal",
    "socket",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// Returns the name without case and separators, so that `fencingToken` equals `fencing_token`.
fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase()
}

fn matches(text: &str, pattern: &str) -> Vec<String> {
    let pattern = Regex::new(pattern).unwrap();
    pattern.captures_iter(text).map(|found| found[1].to_owned()).collect()
}

/// Returns the names in backticks in the last column of the table of terms.
fn terms() -> BTreeSet<String> {
    let page = read("docs/concepts.md");
    let (_, table) = page.split_once("## Terms").unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(2);
    let cells = rows.map(|row| row.trim_matches('|').rsplit(" | ").next().unwrap().to_owned());
    let names: Vec<String> = cells.flat_map(|cell| matches(&cell, "`([^`]+)`")).collect();
    assert!(names.len() > 100, "{names:?}");
    names.iter().map(String::as_str).chain(ORDINARY.iter().copied()).map(plain).collect()
}

fn assert_terms(source: &str, names: &[String]) {
    let terms = terms();
    assert!(names.len() > 5, "{source}: {names:?}");
    let unknown: BTreeSet<_> = names.iter().filter(|name| !terms.contains(&plain(name))).collect();
    assert!(unknown.is_empty(), "{source} has names that docs/concepts.md lacks: {unknown:?}");
}

/// Collects the names of all objects below `value`, and the values that an argument may have.
fn names_in(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| names_in(item, names)),
        Value::Object(fields) => {
            if let Some(Value::String(name)) = fields.get("name") {
                names.extend(matches(name, r"([A-Za-z]\w*)"));
            }
            if let Some(Value::Array(values)) = fields.get("values") {
                let words = values.iter().filter_map(Value::as_str);
                names.extend(words.flat_map(|word| matches(word, r"^([a-z]\w*)")));
            }
            fields.values().for_each(|field| names_in(field, names));
        }
        _ => {}
    }
}

#[test]
fn public_names_of_the_manifest_are_terms_of_concepts_md() {
    let manifest: Value = serde_json::from_str(&read("lua/manifest.json")).unwrap();
    let mut names = Vec::new();
    for part in ["id", "keys", "errors", "scripts"] {
        names_in(&manifest[part], &mut names);
    }
    assert_terms("lua/manifest.json", &names);
}

#[test]
fn json_names_of_the_cli_are_terms_of_concepts_md() {
    let folder = root().join("cli/src/commands");
    let files = fs::read_dir(folder).unwrap().map(|file| fs::read_to_string(file.unwrap().path()));
    let names: Vec<String> =
        files.flat_map(|text| matches(&text.unwrap(), r#"(?m)^ +"([a-z_]+)": "#)).collect();
    assert_terms("the CLI's JSON", &names);
}

#[test]
fn public_names_of_the_clients_are_terms_of_concepts_md() {
    let node = read("clients/node/index.d.ts");
    let node = [
        matches(&node, r"(?m)^  (?:readonly |static )*(\w+)\??[:(]"),
        matches(&node, r"(?m)^export class (\w+)"),
    ];
    assert_terms("clients/node", &node.concat());
    let python = read("clients/python/redis_lease_semaphore/blocking.py");
    let public = python.split("\nclass ").filter(|class| !class.starts_with('_'));
    let mut python: Vec<_> =
        public.flat_map(|class| matches(class, r"(?m)^    def ([a-z]\w+)")).collect();
    let exported = read("clients/python/redis_lease_semaphore/__init__.py");
    python.extend(matches(&exported, r#"(?m)^    "(\w+)","#));
    assert_terms("clients/python", &python);
    let ruby = read("clients/ruby/semaphore.rb");
    let (public, _) = ruby.split_once("\n  private\n").unwrap();
    assert_terms(
        "clients/ruby",
        &matches(public, r"(?m)^ +(?:def|class) (?:self\.)?([A-Za-z_]\w+)"),
    );
    let php = read("clients/php/semaphore.php");
    let is_public = |class: &&str| class.starts_with("Permit") || class.starts_with("Semaphore");
    let public = php.split("\nfinal class ").filter(is_public);
    let php: Vec<_> = public
        .flat_map(|class| matches(class, r"public (?:function|readonly \w+) \$?([A-Za-z]\w+)"))
        .collect();
    assert_terms("clients/php", &php);
}
