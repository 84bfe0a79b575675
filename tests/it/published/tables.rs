//! Generates the tables in `docs/protocol.md` from the head comments of the scripts. The tables
//! contain arguments, replies and costs.

use redis_semaphore::ScriptRegistry;

use test_support::head::{Head, Section, folder};

const PAGE: &str = "../docs/protocol.md";
const END: &str = "<!-- end -->";

/// Returns a table with these columns, or an empty text if there are no rows. Texts in quotes
/// become code.
fn table(columns: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let line = |cells: &[String]| format!("|{}|\n", cells.join("|").replace('"', "`"));
    let columns: Vec<_> = columns.iter().map(|&column| column.to_owned()).collect();
    let rule = vec!["---".to_owned(); columns.len()];
    [columns, rule].into_iter().chain(rows).map(|cells| line(&cells)).collect()
}

fn code(text: &str) -> String {
    format!("`{}`", text.replace('"', ""))
}

/// Returns the parts of a section: their names as code, and their texts.
fn parts(section: &Section) -> Vec<Vec<String>> {
    section.parts.iter().map(|(name, text)| vec![code(name), text.clone()]).collect()
}

/// Returns a row for each argument. Arguments of requests are marked with a `+`, because they
/// repeat. A row for each form of `change` follows the row of `change`.
fn rows_of(section: &Section) -> Vec<Vec<String>> {
    let position = section.label.trim_start_matches("ARGV[").trim_end_matches(']');
    let row = |position: &str, cells: Vec<String>| [vec![position.to_owned()], cells].concat();
    if let Some(first) = position.strip_suffix('+') {
        let first: usize = first.parse().unwrap();
        let parts = parts(section).into_iter().enumerate();
        return parts.map(|(index, cells)| row(&format!("{}+", first + index), cells)).collect();
    }
    let own = row(position, vec![code(&section.name), section.text.clone()]);
    let forms = parts(section).into_iter().map(|cells| row("", cells));
    [own].into_iter().chain(forms).collect()
}

/// Returns the text of a section, and a table of its rows.
fn below(section: &Section, columns: &[&str], rows: Vec<Vec<String>>) -> String {
    let text = section.text.trim_end_matches(':');
    let ending = if rows.is_empty() { "." } else { ":\n" };
    format!("{}: {text}{ending}\n{}", section.label, table(columns, rows))
}

fn tables_of(head: &Head) -> String {
    let arguments = head.arguments().flat_map(rows_of).collect();
    let (reply, cost) = (head.section("Reply"), head.section("Cost"));
    let cases = head.counted_cases().into_iter();
    let cases = cases.map(|(count, case)| vec![count.to_string(), case.to_owned()]).collect();
    let mut tables = vec![
        table(&["ARGV", "argument", "values"], arguments),
        below(reply, &["reply", "meaning"], parts(reply)),
        below(cost, &["commands", "case"], cases),
    ];
    tables.retain(|table| !table.is_empty());
    tables.join("\n")
}

#[test]
fn the_tables_in_protocol_md_match_the_script_headers() {
    let mut page = std::fs::read_to_string(folder().join(PAGE)).unwrap();
    for script in ScriptRegistry::embedded().scripts() {
        let begin = format!("<!-- generated from the scripts' headers: {} -->", script.name());
        let (before, rest) = page.split_once(&begin).expect("the page has a part for each script");
        let (_, after) = rest.split_once(END).expect("the part has an end");
        let tables = tables_of(&Head::read(script.name()));
        page = format!("{before}{begin}\n\n{tables}\n{END}{after}");
    }
    super::assert_is_published(PAGE, &page);
}
