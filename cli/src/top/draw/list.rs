//! All semaphores, a line each.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Row, Table};

use super::{MARKED, like};
use crate::survey::Summary;
use crate::table::or_none;
use crate::top::cursor::page;
use crate::top::state::{self, Column, State};
use crate::top::text::{fitted, short};

const COLUMNS: [(Column, &str, u16); 4] = [
    (Column::Name, "NAME", 0),
    (Column::Share, "HELD/LIMIT", 14),
    (Column::Queued, "QUEUED", 10),
    (Column::LongestWait, "LONGEST WAIT", 16),
];

pub fn draw(state: &State, frame: &mut Frame, area: Rect) {
    let names = state.sorted();
    if names.is_empty() {
        frame.render_widget(Line::raw(nothing(state)), area);
        return;
    }
    let others: u16 = COLUMNS.iter().map(|(_, _, width)| width + 1).sum();
    let room = usize::from(area.width.saturating_sub(others - 1).max(12));
    let marked = state.cursor.index();
    let rows = page(marked, names.len(), state.height_of_list()).map(|index| {
        let row = Row::new(cells(names[index], &state.rows[names[index]], room));
        row.style(if index == marked { MARKED } else { Style::new() })
    });
    let widths = COLUMNS.map(|(column, _, width)| match column {
        Column::Name => Constraint::Min(12),
        _ => Constraint::Length(width),
    });
    let head = COLUMNS.iter().enumerate().map(|(index, column)| title(state, index, column));
    frame.render_widget(Table::new(rows, widths).header(Row::new(head).bold()), area);
}

fn nothing(state: &State) -> String {
    match state.list.is_some() {
        true => format!(
            "There is no semaphore{} under {}. A new one is seen after five looks.",
            like(state),
            state.prefix
        ),
        false => "Looking for semaphores ...".to_owned(),
    }
}

fn title(state: &State, index: usize, (column, title, _): &(Column, &str, u16)) -> String {
    let is_down = (*column == Column::Name) == state.sort.is_reversed;
    let arrow = match state.sort.column == *column {
        true if is_down => " ▼",
        true => " ▲",
        false => "",
    };
    format!("{} {title}{arrow}", index + 1)
}

fn cells(name: &str, row: &state::Row, room: usize) -> [String; 4] {
    let name = fitted(name, room);
    match &row.summary {
        Some(Ok(summary)) => {
            let wait = summary.longest_wait.map(short).unwrap_or_default();
            // A number that is cut must not look like another one.
            let [_, share_width, queued_width, _] = COLUMNS.map(|(_, _, width)| usize::from(width));
            let queued = fitted(&summary.queued.to_string(), queued_width);
            let mark = if row.trouble.is_some() { " ?" } else { "" };
            [name, fitted(&format!("{}{mark}", share(summary)), share_width), queued, wait]
        }
        Some(Err(_)) => [name, "unreadable".to_owned(), String::new(), String::new()],
        None => [name, "…".to_owned(), String::new(), String::new()],
    }
}

fn share(summary: &Summary) -> String {
    format!("{}/{}", summary.held, or_none(summary.limit))
}
