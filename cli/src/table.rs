//! Text for people: tables and times.

use std::time::Duration;

use unicode_width::UnicodeWidthStr;

use crate::escape::value;

/// Returns a table with aligned columns, two spaces apart. Escapes the cells.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let head = head.iter().map(|title| title.to_string()).collect();
    let row = |row: &Vec<String>| row.iter().map(|cell| value(cell)).collect();
    let lines: Vec<Vec<String>> = std::iter::once(head).chain(rows.iter().map(row)).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].width()).max();
    let widths: Vec<usize> = (0..lines[0].len()).filter_map(width).collect();
    let shown = lines.iter().map(|line| {
        let cells = line.iter().zip(&widths);
        let cells = cells.map(|(cell, width)| cell.clone() + &" ".repeat(width - cell.width()));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    shown.collect::<Vec<_>>().join("\n")
}

/// Rounds down to seconds, or to milliseconds below 1 s.
pub fn rounded(time: Duration) -> String {
    let time = match time.as_secs() {
        0 => Duration::from_millis(time.as_millis() as u64),
        seconds => Duration::from_secs(seconds),
    };
    humantime::format_duration(time).to_string()
}

/// Rounds up, for a promised maximum: 3.3 s becomes 4 s.
pub fn at_most(time: Duration) -> String {
    let step = if time.as_secs() == 0 { 1_000_000 } else { 1_000_000_000 };
    let rest = time.subsec_nanos() % step;
    let up = if rest == 0 { 0 } else { step - rest };
    rounded(time + Duration::from_nanos(up.into()))
}

pub fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

pub fn or_none(number: Option<u32>) -> String {
    number.map_or("none".to_owned(), |number| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_columns_are_aligned() {
        let rows = [["ä", "1", "x"], ["longer", "22", ""]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        let shown = table(&["NAME", "N", "LAST"], &rows);
        assert_eq!(shown, "NAME    N   LAST\nä       1   x\nlonger  22");
        let rows = [["漢字", "1"], ["👩👩🏽", "2"], ["a\u{9b}", "3"], ["e\u{301}", "4"], ["कि", "5"]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        let shown = table(&["NAME", "N"], &rows);
        let wanted =
            "NAME      N\n漢字      1\n👩👩🏽      2\na\\u{9b}   3\ne\\u{301}  4\nकि        5";
        assert_eq!(shown, wanted);
    }

    #[test]
    fn upper_bounds_of_times_are_rounded_up() {
        assert_eq!(at_most(Duration::from_secs(10) / 3), "4s");
        assert_eq!(at_most(Duration::from_secs(10)), "10s");
        assert_eq!(at_most(Duration::from_secs(1) / 3), "334ms");
        assert_eq!(at_most(Duration::from_micros(999_900)), "1s");
        assert_eq!(at_most(Duration::from_secs(3661)), "1h 1m 1s");
    }

    #[test]
    fn times_are_rounded_down() {
        assert_eq!(rounded(Duration::from_micros(999_900)), "999ms");
        assert_eq!(rounded(Duration::from_millis(61_900)), "1m 1s");
    }
}
