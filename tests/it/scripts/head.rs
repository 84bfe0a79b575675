//! Tests of the scripts' head comments, which are the reference of the protocol. The tests use only
//! these comments to make calls.

use std::collections::BTreeSet;

use redis_semaphore::ScriptRegistry;

use super::arguments::{Call, calls};
use super::values::Kind;
use super::{in_use, script_names, sound};
use test_support::head::{Head, range};
use test_support::scripts::{KEYS, WITHOUT_GROUPS};

/// Returns the names and descriptions of the arguments of a call with one request. Also returns the
/// number of arguments per request.
fn shape(head: &Head) -> (Vec<(&str, &str)>, usize) {
    let (mut shape, mut repeated) = (Vec::new(), 0);
    for section in head.arguments() {
        if section.label.ends_with("+]") {
            repeated = section.parts.len();
            shape.extend(section.parts.iter().map(|(name, text)| (&**name, &**text)));
        } else {
            shape.push((&section.name, &section.text));
        }
    }
    (shape, repeated)
}

/// Returns the head comment's descriptions of a call's arguments. For `limit`, the arguments depend
/// on the change.
fn said_of<'a>(head: &'a Head, call: &Call) -> (Vec<(&'a str, &'a str)>, usize) {
    let (mut shape, repeated) = shape(head);
    if head.script == "limit" {
        let change = call.arguments.get(2).map(|change| change.1);
        let behind = head.changes().find(|behind| Some(behind[0]) == change).unwrap_or_default();
        shape.retain(|(name, _)| match *name {
            "limit_mode" | "limit" => true,
            "change" => change.is_some(),
            name => behind.contains(&name),
        });
    }
    (shape, repeated)
}

fn heads() -> Vec<Head> {
    script_names().into_iter().map(Head::read).collect()
}

#[test]
fn every_head_comment_has_all_sections_in_the_same_order() {
    for head in heads() {
        assert!(head.summary.ends_with('.'), "{}: what is it for?", head.script);
        let labels = head.sections.iter().map(|section| section.label.split('[').next().unwrap());
        let mut labels: Vec<_> = labels.collect();
        labels.dedup();
        let mut expected = vec!["KEYS", "ARGV", "Reply", "Errors", "Cost", "Flags"];
        if head.script == "wake" {
            expected.remove(1);
        }
        assert_eq!(labels, expected, "{}", head.script);
        for section in &head.sections {
            let is_explained = !section.text.is_empty() || section.label.starts_with("KEYS");
            assert!(is_explained, "{}: {section:?}", head.script);
            assert!(section.parts.iter().all(|(_, text)| !text.is_empty()), "{section:?}");
        }
        assert!(head.section("Cost").text.starts_with("O("), "{}", head.script);
        let reply = &head.section("Reply").text;
        let expected = if head.script == "probe" { "for each" } else { "server time (ms), " };
        assert!(reply.starts_with(expected), "{}: {reply}", head.script);
    }
}

#[test]
fn all_scripts_name_the_same_keys() {
    for script in ScriptRegistry::embedded().scripts() {
        // `probe` needs no keys of groups.
        let count = if script.name() == "probe" { WITHOUT_GROUPS } else { KEYS.len() };
        assert_eq!(script.keys(), &KEYS[..count], "{}", script.name());
        let head = Head::read(script.name());
        let said = |head: &Head| -> Vec<String> {
            let keys = head.sections.iter().filter(|section| section.label.starts_with("KEYS["));
            keys.map(|key| format!("{} {} {}", key.label, key.name, key.text)).collect()
        };
        if script.name() != "probe" {
            assert_eq!(said(&head), said(&Head::read("acquire")), "{}", script.name());
        }
        let named: Vec<_> = head.arguments().map(|section| section.name.clone()).collect();
        assert_eq!(script.arguments(), named, "{}", script.name());
    }
}

/// The head comments agree with the calls in `arguments.rs`. The tests of those calls therefore
/// also apply to the head comments.
#[test]
fn head_comments_match_the_tested_arguments_of_the_scripts() {
    let (mut ranges, mut choices) = (0, 0);
    for call in calls() {
        let head = Head::read(call.script);
        let (said, repeated) = said_of(&head, &call);
        let names = |call: &Call| -> Vec<_> { call.arguments.iter().map(|it| it.0).collect() };
        let said_names: Vec<_> = said.iter().map(|(name, _)| *name).collect();
        assert_eq!((names(&call), call.repeated), (said_names, repeated), "{}", call.script);
        for (index, (argument, (name, text))) in call.arguments.iter().zip(said).enumerate() {
            let tried = match argument.2 {
                Kind::Integer(least, most) => Some((least, most)),
                Kind::Client => Some((1, 100)),
                Kind::Place => Some((0, 3_600_000)),
                Kind::Choice | Kind::Id(..) | Kind::Next => None,
            };
            assert_eq!(range(text), tried, "{}: {name}", call.script);
            ranges += u32::from(tried.is_some());
            // Each choice of "change" has its own call.
            let choices_in = if text.starts_with('"') && name != "change" { text } else { "" };
            for choice in choices_in.split('"').skip(1).step_by(2) {
                call.run(&mut in_use(), &call.with(index, choice.replace("MS", "1").as_bytes()));
                choices += 1;
            }
        }
    }
    // This check fails if a new wording hides ranges or choices from the test.
    assert_eq!((ranges, choices), (16, 28));
}

/// Calls a script in ways that provoke errors, and returns the errors.
fn provoke(script: &str) -> BTreeSet<String> {
    let mut semaphore = in_use();
    let (keys, arguments) = (semaphore.keys.clone(), sound(script));
    let state = semaphore.key("state");
    let too_many = [arguments.clone(), vec![String::new(); 1001]].concat();
    let mut provoked = BTreeSet::new();
    provoked.insert(semaphore.refusal(script, &keys[..3], &arguments).code);
    provoked.insert(semaphore.refusal(script, &keys, &too_many).code);
    if script == "acquire" {
        let heavy: Vec<_> = arguments.iter().map(|text| text.replace(":1:", ":6:")).collect();
        provoked.insert(semaphore.refusal(script, &keys, &heavy).code);
    }
    if script == "probe" {
        // `probe` reads no data that could be invalid.
        return provoked;
    }
    semaphore.command::<()>(&format!("HSET {state} virtual 1"));
    provoked.insert(semaphore.refusal(script, &keys, &arguments).code);
    semaphore.command::<()>(&format!("HSET {state} version 3"));
    provoked.insert(semaphore.refusal(script, &keys, &arguments).code);
    semaphore.command::<()>(&format!("SET {state} text"));
    provoked.insert(semaphore.refusal(script, &keys, &arguments).code);
    provoked
}

fn errors_in(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_uppercase() || c == '_';
    let words = text.split(|c| !is_part(c)).filter(|word| word.starts_with("SEM_"));
    words.map(str::to_owned).collect()
}

#[test]
fn each_head_comment_names_exactly_the_errors_of_its_script() {
    for head in heads() {
        let named = errors_in(&head.section("Errors").text);
        assert_eq!(provoke(&head.script), named, "{}", head.script);
        let script = ScriptRegistry::embedded().script(&head.script).unwrap();
        assert_eq!(errors_in(script.source()), named, "{}", head.script);
    }
}
