//! The head comments are the reference of the protocol, so they are put to the test: calls are made
//! from what they say alone.

use std::collections::BTreeSet;

use redis_semaphore::ScriptRegistry;

use super::source::folder;
use super::{Scripts, fresh, in_use, script_names, sound};

/// One label of a head comment ("ARGV[2]", "Reply") with its text.
#[derive(Debug)]
struct Section {
    label: String,
    /// For keys and arguments.
    name: String,
    text: String,
    /// The indented names below it.
    parts: Vec<(String, String)>,
}

/// A way to call a script.
struct Call<'a> {
    /// Names of the arguments, and what is said of each.
    shape: Vec<(&'a str, &'a str)>,
    values: Vec<String>,
    /// How many of the last arguments are a request, that may be repeated.
    repeated: usize,
}

#[derive(Debug)]
pub struct Head {
    script: String,
    purpose: String,
    sections: Vec<Section>,
}

impl Head {
    pub fn read(script: &str) -> Self {
        let path = folder().join(format!("{script}.lua"));
        let text = std::fs::read_to_string(path).unwrap();
        let comments = text.lines().map_while(|line| line.strip_prefix("--"));
        let lines: Vec<&str> =
            comments.take_while(|line| !line.starts_with(" include: ")).collect();
        let purpose = lines[0].strip_prefix(&format!(" {script}: ")).unwrap_or("").to_owned();
        let mut head = Self { script: script.to_owned(), purpose, sections: Vec::new() };
        let labels = lines.iter().position(|line| line.starts_with(" KEYS[1] ")).unwrap();
        for line in &lines[labels..] {
            head.add(line);
        }
        head
    }

    /// Labels are followed by what they mean at column 19; deeper lines go on with the one above.
    fn add(&mut self, line: &str) {
        let (label, text) = line.split_at_checked(19).unwrap_or((line, ""));
        let text = text.trim();
        if let Some(part) = label.strip_prefix("   ").filter(|part| !part.trim().is_empty()) {
            let section = self.sections.last_mut().unwrap();
            section.parts.push((part.trim().to_owned(), text.to_owned()));
        } else if label.trim().is_empty() {
            let section = self.sections.last_mut().unwrap();
            let last = section.parts.last_mut().map_or(&mut section.text, |(_, text)| text);
            last.push(' ');
            last.push_str(text);
        } else {
            let (label, name) = label.trim().split_once(' ').unwrap_or((label.trim(), ""));
            self.sections.push(Section {
                label: label.to_owned(),
                name: name.trim().to_owned(),
                text: text.to_owned(),
                parts: Vec::new(),
            });
        }
    }

    fn arguments(&self) -> impl Iterator<Item = &Section> {
        self.sections.iter().filter(|section| section.label.starts_with("ARGV["))
    }

    fn section(&self, label: &str) -> &Section {
        let found = self.sections.iter().find(|section| section.label == label);
        found.unwrap_or_else(|| panic!("{} has no {label}", self.script))
    }

    /// Below "Cost": how many commands it runs, in which case.
    pub fn counted_cases(&self) -> Vec<(i64, &str)> {
        let parts = &self.section("Cost").parts;
        parts.iter().map(|(count, case)| (count.parse().unwrap(), case.as_str())).collect()
    }

    /// The arguments of a call with one request: their names and what is said of them.
    fn shape(&self) -> (Vec<(&str, &str)>, usize) {
        let (mut shape, mut repeated) = (Vec::new(), 0);
        for section in self.arguments() {
            if section.label.ends_with("+]") {
                repeated = section.parts.len();
                shape.extend(section.parts.iter().map(|(name, text)| (&**name, &**text)));
            } else {
                shape.push((&section.name, &section.text));
            }
        }
        (shape, repeated)
    }

    /// The ways to call the script: more than one where the first argument is an action, which
    /// says what follows it.
    fn calls(&self) -> Vec<Call<'_>> {
        let (shape, repeated) = self.shape();
        let values = || shape.iter().map(|(name, _)| value_of(name).to_owned());
        if self.script != "limit" {
            return vec![Call { values: values().collect(), shape, repeated }];
        }
        let actions = actions(shape[0].1);
        let call = |(action, count): (&str, usize)| {
            let mut values: Vec<_> = values().take(count).collect();
            values[0] = action.to_owned();
            Call { shape: shape[..count].to_vec(), values, repeated: 0 }
        };
        actions.into_iter().map(call).collect()
    }
}

fn heads() -> Vec<Head> {
    script_names().into_iter().map(Head::read).collect()
}

/// A value that is right wherever an argument has that name.
fn value_of(name: &str) -> &'static str {
    match name {
        "kind" => "initial",
        "limit" | "n" => "5",
        "client" => "client",
        "wake" => "poll",
        "how" => "return",
        "action" => "set",
        "id" => "new",
        "weight" | "liveness" | "lease" | "count" => "1",
        "holders" | "waiters" => "0",
        "place" => "wait",
        _ => panic!("the tests know no value for an argument {name}"),
    }
}

/// `"add" n id  what it does`: each action with the number of arguments, itself included.
fn actions(text: &str) -> Vec<(&str, usize)> {
    let mut parts = text.split('"').skip(1);
    let mut actions = Vec::new();
    while let (Some(action), Some(rest)) = (parts.next(), parts.next()) {
        let names = rest.split_whitespace().take_while(|word| ["n", "id"].contains(word));
        let count = 1 + names.count();
        // Named once more in the text of another: the first time says what follows it.
        if !actions.iter().any(|(known, _)| *known == action) {
            actions.push((action, count));
        }
    }
    actions
}

fn run(semaphore: &mut Scripts, script: &str, arguments: &[String]) {
    let reply = semaphore.call_with(script, &semaphore.keys.clone(), arguments);
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
        let mut expected = vec!["KEYS", "ARGV", "Reply", "Errors", "Cost"];
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
        assert_eq!(script.keys(), ["permits", "queue", "waiting", "state"], "{}", script.name());
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
        for Call { values, repeated, .. } in head.calls() {
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
        for Call { shape, values, .. } in head.calls() {
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

/// The least and the most in "0 to 1000: what it is".
fn range(text: &str) -> Option<(u64, u64)> {
    text.match_indices(" to ").find_map(|(at, to)| {
        let (least, most) = (&text[..at], &text[at + to.len()..]);
        let end = most.find(|c: char| !c.is_ascii_digit()).unwrap_or(most.len());
        Some((least.rsplit(' ').next()?.parse().ok()?, most[..end].parse().ok()?))
    })
}

#[test]
fn arguments_may_be_all_that_their_heads_say() {
    let (mut ranges, mut choices) = (0, 0);
    for head in heads() {
        for Call { shape, values, .. } in head.calls() {
            for (index, (name, text)) in shape.iter().enumerate() {
                let with = |value: String| {
                    let mut values = values.clone();
                    values[index] = value;
                    values
                };
                if text.starts_with('"') && *name != "action" {
                    for choice in text.split('"').skip(1).step_by(2) {
                        run(&mut fresh(), &head.script, &with(choice.to_owned()));
                        choices += 1;
                    }
                } else if let Some((least, most)) = range(text) {
                    // Of ids the number of bytes is said.
                    let text_of = |number: u64| match *name {
                        "id" => "i".repeat(number as usize),
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
    assert_eq!((ranges, choices), (15, 12));
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
    let heavy = arguments.join(" ").replace("new 1 ", "new 6 ");
    if heavy != arguments.join(" ") {
        provoked.insert(semaphore.refuses(script, &heavy).code);
    }
    if script == "probe" {
        // It reads nothing that could be wrong.
        return provoked;
    }
    semaphore.command::<()>(&format!("HSET {state} version 2"));
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
