//! The marked line of a list whose lines appear, disappear and move.

use std::ops::Range;

/// The marked line. If the user has moved the mark, it stays on the same line when the lines move.
/// Otherwise the first line is always marked, because a user who sorts by the longest wait wants to
/// see the longest wait.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cursor {
    key: Option<String>,
    index: usize,
}

impl Cursor {
    pub fn index(&self) -> usize {
        self.index
    }

    /// Updates the mark after the lines have changed. If the marked line has gone, the line at the
    /// same index is marked.
    pub fn settle(&mut self, keys: &[&str]) {
        let Some(key) = &self.key else { return self.index = 0 };
        match keys.iter().position(|other| other == key) {
            Some(index) => self.index = index,
            None => self.go_to(self.index, keys),
        }
    }

    pub fn go_to(&mut self, index: usize, keys: &[&str]) {
        self.index = index.min(keys.len().saturating_sub(1));
        self.key = keys.get(self.index).filter(|_| index > 0).map(|key| key.to_string());
    }

    pub fn step(&mut self, by: isize, keys: &[&str]) {
        let index = self.index.saturating_add_signed(by);
        self.go_to(index, keys);
        // The mark was moved, even if it is at the top again.
        self.key = keys.get(self.index).map(|key| key.to_string());
    }
}

/// Returns the visible lines, with the marked line among them. Pages do not overlap, so that lines
/// do not move with the mark.
pub fn page(index: usize, lines: usize, height: usize) -> Range<usize> {
    if height == 0 {
        return 0..0;
    }
    let first = index / height * height;
    first.min(lines)..(first + height).min(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cursor_stays_at_the_top_until_moved_then_follows_its_line() {
        let mut cursor = Cursor::default();
        cursor.settle(&["b", "a"]);
        assert_eq!(cursor.index(), 0);
        cursor.step(1, &["b", "a"]);
        cursor.settle(&["a", "b", "c"]);
        assert_eq!(cursor.index(), 0);
        cursor.settle(&["c", "b", "a"]);
        assert_eq!(cursor.index(), 2);
        cursor.settle(&["c", "b"]);
        assert_eq!(cursor.index(), 1);
        cursor.settle(&[]);
        assert_eq!(cursor.index(), 0);
    }

    #[test]
    fn the_visible_page_contains_the_marked_line() {
        assert_eq!(page(0, 5, 3), 0..3);
        assert_eq!(page(4, 5, 3), 3..5);
        assert_eq!(page(0, 0, 3), 0..0);
        assert_eq!(page(7, 9, 0), 0..0);
    }
}
