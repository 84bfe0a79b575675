//! Reads the head comment of a script, as a program in another language could.

use std::path::{Path, PathBuf};

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lua")
}

/// A label of a head comment (`ARGV[2]`, `Reply`) with its text.
#[derive(Debug)]
pub struct Section {
    pub label: String,
    /// The name of a key or an argument, empty for other labels.
    pub name: String,
    pub text: String,
    /// The indented names below the label, with their texts.
    pub parts: Vec<(String, String)>,
}

#[derive(Debug)]
pub struct Head {
    pub script: String,
    pub summary: String,
    /// The text between the summary and the keys.
    pub details: String,
    pub sections: Vec<Section>,
}

impl Head {
    pub fn read(script: &str) -> Self {
        let path = folder().join(format!("{script}.lua"));
        let text = std::fs::read_to_string(path).unwrap();
        let comments = text.lines().map_while(|line| line.strip_prefix("--"));
        let lines: Vec<&str> =
            comments.take_while(|line| !line.starts_with(" include: ")).collect();
        let summary = lines[0].strip_prefix(&format!(" {script}: ")).unwrap_or("").to_owned();
        let labels = lines.iter().position(|line| line.starts_with(" KEYS[1] ")).unwrap();
        let details: Vec<_> = lines[1..labels].iter().map(|line| line.trim()).collect();
        let details = details.join(" ").trim().to_owned();
        let mut head = Self { script: script.to_owned(), summary, details, sections: Vec::new() };
        for line in &lines[labels..] {
            head.add(line);
        }
        head
    }

    /// Adds a line. The text of a label begins 19 characters after the dashes, or after two blanks
    /// if the label is longer. A line without a label continues the text above.
    fn add(&mut self, line: &str) {
        let ends = line
            .get(18..)
            .and_then(|rest| if rest.starts_with(' ') { Some(0) } else { rest.find("  ") });
        let (label, text) = line.split_at(ends.map_or(line.len(), |length| 18 + length));
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

    pub fn arguments(&self) -> impl Iterator<Item = &Section> {
        self.sections.iter().filter(|section| section.label.starts_with("ARGV["))
    }

    pub fn section(&self, label: &str) -> &Section {
        let found = self.sections.iter().find(|section| section.label == label);
        found.unwrap_or_else(|| panic!("{} has no {label}", self.script))
    }

    /// Returns each value of the argument `change`, with the names of the arguments that follow
    /// this value.
    pub fn changes(&self) -> impl Iterator<Item = Vec<&str>> {
        let change = self.arguments().find(|argument| argument.name == "change");
        let parts = change.into_iter().flat_map(|change| &change.parts);
        parts.map(|(change, _)| change.split(' ').map(|word| word.trim_matches('"')).collect())
    }

    /// Returns the cases below "Cost", each with its number of commands.
    pub fn counted_cases(&self) -> Vec<(i64, &str)> {
        let parts = &self.section("Cost").parts;
        parts.iter().map(|(count, case)| (count.parse().unwrap(), case.as_str())).collect()
    }
}

/// Returns the smallest and the largest number in a text such as "0 to 1000: how many to skip".
pub fn range(text: &str) -> Option<(u64, u64)> {
    text.match_indices(" to ").find_map(|(at, to)| {
        let (least, most) = (&text[..at], &text[at + to.len()..]);
        let end = most.find(|c: char| !c.is_ascii_digit()).unwrap_or(most.len());
        Some((least.rsplit(' ').next()?.parse().ok()?, most[..end].parse().ok()?))
    })
}
