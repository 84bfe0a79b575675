//! All semaphores, one line each.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::Table;

use super::{MARKED, bar, columns, like};
use crate::escape::value;
use crate::survey::Summary;
use crate::table::or_none;
use crate::top::cursor::page;
use crate::top::history::PARTS;
use crate::top::state::{self, Column, Moment, State};
use crate::top::text::{fitted, short, wrapped};

/// The minimum width of the names.
const NAME: u16 = 12;

/// The space for everything but the names, in columns of the terminal.
struct Room {
    /// The bar that shows how full a semaphore is.
    bar: usize,
    /// The width of a history: 0, or a divisor of `PARTS`.
    past: usize,
    share: usize,
    queued: usize,
    wait: usize,
}

impl Room {
    fn of(width: u16) -> Self {
        let (bar, past, share, queued, wait) = match width {
            140.. => (12, PARTS, 14, 10, 16),
            110.. => (10, PARTS / 2, 14, 10, 16),
            76.. => (6, PARTS / 3, 11, 10, 8),
            60.. => (6, 0, 11, 10, 8),
            _ => (0, 0, 14, 10, 8),
        };
        Self { bar, past, share, queued, wait }
    }

    /// Returns the widths of the columns after the names.
    fn columns(&self) -> Vec<u16> {
        let share = if self.bar == 0 { self.share } else { self.bar + 1 + self.share };
        let all = [share, self.past, self.queued, self.past, self.wait];
        all.into_iter().filter(|width| *width > 0).map(|width| width as u16).collect()
    }
}

pub fn draw(state: &State, now: Moment, frame: &mut Frame, area: Rect) {
    let names = state.sorted();
    if names.is_empty() {
        for (line, row) in wrapped(&nothing(state), usize::from(area.width)).iter().zip(area.rows())
        {
            frame.render_widget(Line::raw(line), row);
        }
        return;
    }
    let room = Room::of(area.width);
    let widths = columns::fitting(NAME..=u16::MAX, &room.columns(), area.width);
    let marked = state.cursor.index();
    let rows = page(marked, names.len(), state.height_of_list()).map(|index| {
        let row = columns::row(cells(state, now, names[index], &room), &widths);
        row.style(if index == marked { MARKED } else { Style::new() })
    });
    let head = columns::row(head(state, &room), &widths).bold();
    let widths = widths.iter().copied().map(Constraint::Length);
    let table = Table::new(rows, widths).header(head);
    frame.render_widget(table, area);
}

fn nothing(state: &State) -> String {
    if state.list.is_none() {
        return "Looking for semaphores ...".to_owned();
    }
    let pattern = state.pattern.as_ref();
    let advice = pattern.and_then(|pattern| pattern.advice(&state.prefix, &[]));
    let advice = advice.map(|advice| format!(" ({advice})")).unwrap_or_default();
    format!(
        "No semaphore{} exists under the prefix {}{advice}. New semaphores appear after up to \
         five intervals.",
        like(state),
        state.prefix
    )
}

fn head(state: &State, room: &Room) -> Vec<String> {
    let title = |number, column, title: &str| {
        let is_down = (column == Column::Name) == state.sort.is_reversed;
        let arrow = match state.sort.column == column {
            true if is_down => " ▼",
            true => " ▲",
            false => "",
        };
        format!("{number} {title}{arrow}")
    };
    let wait = if room.wait < 16 { "WAIT" } else { "LONGEST WAIT" };
    let past = (room.past > 0).then(|| past(state).replace("last", "LAST"));
    let all = [
        Some(title(1, Column::Name, "NAME")),
        Some(title(2, Column::Share, "HELD/LIMIT")),
        past.clone(),
        Some(title(3, Column::Queued, "QUEUED")),
        past,
        Some(title(4, Column::LongestWait, wait)),
    ];
    all.into_iter().flatten().collect()
}

/// Returns the length of a history.
pub fn past(state: &State) -> String {
    format!("last {}", short(state.part() * PARTS as u32).replace(' ', ""))
}

fn cells<'a>(state: &State, now: Moment, name: &str, room: &Room) -> Vec<Line<'a>> {
    let row = &state.rows[name];
    let name = Line::raw(value(name));
    let summary = match &row.summary {
        Some(Ok(summary)) => summary,
        Some(Err(_)) => return vec![name, Line::raw("unreadable")],
        None => return vec![name, Line::raw("…")],
    };
    let wait = summary.longest_wait.map(short).unwrap_or_default();
    let queued = summary.queued.to_string();
    let mut cells =
        vec![name, use_of(state, row, summary, room), Line::raw(queued), Line::raw(wait)];
    if room.past > 0 {
        let past = row.history.until(state.part_of(now.instant), room.past);
        cells.insert(3, Line::raw(bar::queued(&past)));
        cells.insert(2, Line::raw(bar::held(&past)));
    }
    cells
}

/// Returns how full a semaphore is, as a bar and as a number.
fn use_of<'a>(state: &State, row: &state::Row, summary: &Summary, room: &Room) -> Line<'a> {
    let mark = if row.trouble.is_some() { " ?" } else { "" };
    let share = format!("{}/{}{mark}", summary.held, or_none(summary.limit));
    let share = Span::raw(fitted(&share, room.share));
    if room.bar == 0 {
        return Line::from(share);
    }
    let bar = format!("{:width$} ", bar::bar(summary, room.bar), width = room.bar);
    Line::from(vec![Span::styled(bar, state.colored(bar::color(summary))), share])
}
