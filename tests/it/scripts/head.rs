//! The head comments are the reference of the protocol, so they are put to the test: calls are made
//! from what they say alone.

use std::collections::BTreeSet;

use redis_semaphore::ScriptRegistry;

use super::{Scripts, fresh, in_use, script_names, sound};
use test_support::head::{Head, range};

/// A way to call a script.
struct Call<'a> {
    /// Names of the arguments, and what is said of each.
    shape: Vec<(&'a str, &'a str)>,
    values: Vec<String>,
    /// How many of the last arguments are a request, that may be repeated.
    repeated: usize,
}

/// The arguments of a call with one request: their names and what is said of them.
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

/// The ways to call the script: more than one where there may be a change, which says what follows
/// it.
fn calls(head: &Head) -> Vec<Call<'_>> {
    let (shape, repeated) = shape(head);
    let value = |(name, _): &(&str, &str)| value_of(&head.script, name).to_owned();
    if head.script != "limit" {
        return vec![Call { values: shape.iter().map(value).collect(), shape, repeated }];
    }
    let (configuration, at) = (&shape[..2], 2);
    let call = |change: Vec<&str>| {
        let named = |name: &&str| *shape.iter().find(|(argument, _)| argument == name).unwrap();
        let rest = change.iter().skip(1).map(named);
        let change_and_rest = shape[at..].iter().take(change.len().min(1)).copied().chain(rest);
        let shape: Vec<_> = configuration.iter().copied().chain(change_and_rest).collect();
        let mut values: Vec<_> = shape.iter().map(value).collect();
        if let Some(change) = change.first() {
            values[at] = (*change).to_owned();
        }
        Call { shape, values, repeated: 0 }
    };
    std::iter::once(vec![]).chain(head.changes()).map(call).collect()
}

fn heads() -> Vec<Head> {
    script_names().into_iter().map(Head::read).collect()
}

/// A value that is right for an argument of that name.
fn value_of(script: &str, name: &str) -> &'static str {
    match name {
        "kind" if script == "limit" => "known",
        "kind" => "initial",
        "limit" | "n" => "5",
        "client" => "client",
        "how" if script == "probe" => "N",
        "how" => "return",
        "change" => "set",
        "word" => "N:client:1:60000:new_____________",
        "mark" => "N:client:0:60000:mark____________",
        "next" | "liveness" | "holders" | "waiters" => "1",
        "skip_held" | "skip_wait" => "0",
        "place" => "wait",
        _ => panic!("the tests know no value for an argument {name}"),
    }
}

fn run(semaphore: &mut Scripts, script: &str, arguments: &[String]) {
    let keys = semaphore.keys.clone();
    let reply = semaphore.raw.call_with(script, &keys, arguments);
    reply.unwrap_or_else(|error| panic!("{script} {arguments:?}: {error}"));
}

/// The script must refuse these for their number or for one of them. Answers what it says.
fn refused(semaphore: &mut Scripts, script: &str, arguments: &[String]) -> String {
    let refusal = semaphore.refusal(script, &semaphore.keys.clone(), arguments);
    assert_eq!(refusal.code, "SEM_ARG", "{script} {arguments:?}: {}", refusal.detail);
    refusal.detail
}

#[test]
fn every_head_has_all_that_it_must_have_in_the_same_order() {
    for head in heads() {
        assert!(head.purpose.ends_with('.'), "{}: what is it for?", head.script);
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
fn all_scripts_name_the_same_four_keys() {
    for script in ScriptRegistry::embedded().scripts() {
        assert_eq!(script.keys(), ["permits", "queue", "clients", "state"], "{}", script.name());
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

#[test]
fn scripts_take_as_many_arguments_as_their_heads_say() {
    for head in heads() {
        for Call { values, repeated, .. } in calls(&head) {
            run(&mut fresh(), &head.script, &values);
            let mut semaphore = in_use();
            let mut more = values.clone();
            // Two requests less an argument, or one argument more where nothing repeats.
            more.extend((1..repeated.max(2)).map(|_| "1".to_owned()));
            if repeated == 1 {
                more.resize(values.len() + 1000, "1".to_owned());
            }
            refused(&mut semaphore, &head.script, &more);
            let mut fewer = values;
            if fewer.pop().is_some() {
                refused(&mut semaphore, &head.script, &fewer);
            }
        }
    }
}

#[test]
fn scripts_name_their_arguments_as_their_heads_do() {
    for head in heads() {
        let mut semaphore = in_use();
        for Call { shape, values, .. } in calls(&head) {
            for (index, (name, _)) in shape.iter().enumerate() {
                let mut values = values.clone();
                values[index] = " ".to_owned();
                let detail = refused(&mut semaphore, &head.script, &values);
                let wanted = format!("ARGV[{}] ({name}) must be ", index + 1);
                assert!(detail.starts_with(&wanted), "{}: {detail}", head.script);
            }
        }
    }
}

#[test]
fn arguments_may_be_all_that_their_heads_say() {
    let (mut ranges, mut choices) = (0, 0);
    for head in heads() {
        for Call { shape, values, .. } in calls(&head) {
            for (index, (name, text)) in shape.iter().enumerate() {
                let with = |value: String| {
                    let mut values = values.clone();
                    values[index] = value;
                    values
                };
                if text.starts_with('"') && *name != "change" {
                    for choice in text.split('"').skip(1).step_by(2) {
                        run(&mut in_use(), &head.script, &with(choice.replace("MS", "1")));
                        choices += 1;
                    }
                }
                if let Some((least, most)) = range(text) {
                    // Of a name the number of bytes is said, of a place that of ms first.
                    let text_of = |number: u64| match *name {
                        "client" => "c".repeat(number as usize),
                        "place" => format!("+{number}"),
                        _ => number.to_string(),
                    };
                    run(&mut fresh(), &head.script, &with(text_of(least)));
                    run(&mut fresh(), &head.script, &with(text_of(most)));
                    let mut semaphore = in_use();
                    refused(&mut semaphore, &head.script, &with(text_of(most + 1)));
                    if let Some(too_little) = least.checked_sub(1) {
                        refused(&mut semaphore, &head.script, &with(text_of(too_little)));
                    }
                    ranges += 1;
                }
            }
        }
    }
    // So that a change of wording does not silently leave them out.
    assert_eq!((ranges, choices), (14, 28));
}

/// Calls of a script, each with an error that it must answer.
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
        // It reads nothing that could be wrong.
        return provoked;
    }
    semaphore.command::<()>(&format!("HSET {state} version 3"));
    provoked.insert(semaphore.refusal(script, &keys, &arguments).code);
    semaphore.command::<()>(&format!("SET {state} text"));
    provoked.insert(semaphore.refusal(script, &keys, &arguments).code);
    provoked
}

/// All names of errors in a text.
fn errors_in(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_uppercase() || c == '_';
    let words = text.split(|c| !is_part(c)).filter(|word| word.starts_with("SEM_"));
    words.map(str::to_owned).collect()
}

#[test]
fn the_errors_that_a_head_names_are_those_that_there_are() {
    for head in heads() {
        let named = errors_in(&head.section("Errors").text);
        assert_eq!(provoke(&head.script), named, "{}", head.script);
        let script = ScriptRegistry::embedded().script(&head.script).unwrap();
        assert_eq!(errors_in(script.source()), named, "{}", head.script);
    }
}
