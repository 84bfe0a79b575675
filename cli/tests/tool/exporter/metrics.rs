//! Parses the text of the metrics strictly. Every violation of the format causes a panic.

use std::collections::BTreeMap;

type Labels = BTreeMap<String, String>;

#[derive(Debug)]
pub struct Metrics(BTreeMap<(String, Labels), f64>);

impl Metrics {
    pub fn read(text: &str) -> Self {
        let text = text.strip_suffix("# EOF\n").expect("# EOF at the end");
        let mut metrics = BTreeMap::new();
        let mut described = Vec::new();
        for line in text.lines() {
            if let Some(comment) = line.strip_prefix("# ") {
                let words: Vec<_> = comment.splitn(3, ' ').collect();
                assert!(["HELP", "TYPE", "UNIT"].contains(&words[0]), "{line}");
                described.push((words[0] == "TYPE").then_some(words[1]));
                continue;
            }
            let (name, labels, value) = sample(line);
            assert!(described.contains(&Some(&*name)), "no TYPE line precedes {line}");
            assert!(metrics.insert((name, labels), value).is_none(), "twice: {line}");
        }
        Self(metrics)
    }

    fn get(&self, name: &str, labels: Labels) -> Option<f64> {
        self.0.get(&(format!("redis_semaphore_{name}"), labels)).copied()
    }

    /// Returns the value of a metric without labels.
    pub fn one(&self, name: &str) -> f64 {
        self.get(name, Labels::new()).unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    pub fn of(&self, semaphore: &str, name: &str) -> Option<f64> {
        self.get(name, [("semaphore".to_owned(), semaphore.to_owned())].into())
    }

    pub fn omitted(&self, reason: &str) -> f64 {
        self.get("omitted", [("reason".to_owned(), reason.to_owned())].into()).unwrap()
    }

    pub fn semaphores(&self) -> Vec<&str> {
        let mut names: Vec<_> =
            self.0.keys().filter_map(|(_, labels)| labels.get("semaphore")).collect();
        names.sort();
        names.dedup();
        names.into_iter().map(|name| &**name).collect()
    }
}

fn sample(line: &str) -> (String, Labels, f64) {
    let end = line.find(['{', ' ']).unwrap();
    let (name, mut rest) = line.split_at(end);
    assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{line}");
    let mut labels = Labels::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, value, after) = label(rest.strip_prefix(',').unwrap_or(rest));
            assert!(labels.insert(label, value).is_none(), "{line}");
            rest = after;
        }
        rest = &rest[1..];
    }
    (name.to_owned(), labels, rest.strip_prefix(' ').unwrap().parse().expect("a number"))
}

/// Returns a label, its value, and the text after it.
fn label(text: &str) -> (String, String, &str) {
    let (label, rest) = text.split_once("=\"").unwrap();
    let (mut value, mut chars) = (String::new(), rest.chars());
    loop {
        match chars.next().expect("the value ends") {
            '"' => return (label.to_owned(), value, chars.as_str()),
            '\\' => value.push(match chars.next() {
                Some('n') => '\n',
                Some(c @ ('\\' | '"')) => c,
                other => panic!("\\{other:?}"),
            }),
            c => value.push(c),
        }
    }
}
