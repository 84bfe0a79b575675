//! Columns that fit into the terminal. The drawing library would cut wider columns without a mark.

use std::ops::RangeInclusive;

use ratatui::text::Line;
use ratatui::widgets::Row;

use crate::top::text::fitted;

/// Returns the widths of columns with one space between them. The first column gets the remaining
/// width, within this range. In a narrow terminal the last columns become narrower, or are missing.
pub fn fitting(first: RangeInclusive<u16>, others: &[u16], width: u16) -> Vec<u16> {
    let wanted: u16 = others.iter().map(|width| width + 1).sum();
    let first = width.saturating_sub(wanted).clamp(*first.start(), *first.end()).min(width);
    let mut left = width - first;
    let others = others.iter().map(|wanted| {
        let column = left.saturating_sub(1).min(*wanted);
        left = left.saturating_sub(column + 1);
        column
    });
    [first].into_iter().chain(others).take_while(|width| *width > 0).collect()
}

/// Returns a row of a table. A number that is cut must not look like another number.
pub fn row<'a, C: Into<Line<'a>>>(cells: impl IntoIterator<Item = C>, widths: &[u16]) -> Row<'a> {
    let cells = cells.into_iter().zip(widths).map(|(cell, width)| {
        let (cell, width): (Line<'a>, _) = (cell.into(), usize::from(*width));
        match cell.width() <= width {
            true => cell,
            false => Line::raw(fitted(&cell.to_string(), width)),
        }
    });
    Row::new(cells)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_never_wider_than_the_terminal() {
        for (width, columns) in [
            (50, &[20, 10, 4][..]),
            (36, &[20, 10, 4]),
            (30, &[14, 10, 4]),
            (24, &[8, 10, 4]),
            (22, &[8, 10, 2]),
            (20, &[8, 10]),
            (19, &[8, 10]),
            (12, &[8, 3]),
            (9, &[8]),
            (3, &[3]),
            (0, &[]),
        ] {
            assert_eq!(fitting(8..=20, &[10, 4], width), columns, "{width}");
        }
    }
}
