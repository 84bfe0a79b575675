//! All semaphores, a line each.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Row, Table};

use super::{MARKED, bar, like};
use crate::escape::value;
use crate::survey::Summary;
use crate::table::or_none;
use crate::top::cursor::page;
use crate::top::history::PARTS;
use crate::top::state::{self, Column, Moment, State};
use crate::top::text::{fitted, short, wrapped};

/// What there is room for besides the names, in columns of the terminal.
struct Room {
    /// How full it is.
    bar: usize,
    /// What it was like: none, or a divisor of `PARTS`.
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

    /// The widths of what stands behind the names.
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
    let columns = room.columns();
    let others: u16 = columns.iter().map(|width| width + 1).sum();
    let for_name = area.width.saturating_sub(others).max(12);
    let marked = state.cursor.index();
    let rows = page(marked, names.len(), state.height_of_list()).map(|index| {
        let row = Row::new(cells(state, now, names[index], usize::from(for_name), &room));
        row.style(if index == marked { MARKED } else { Style::new() })
    });
    let widths = [for_name].into_iter().chain(columns).map(Constraint::Length);
    let table = Table::new(rows, widths).header(Row::new(head(state, &room)).bold());
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
        "There is no semaphore{} under {}{advice}. A new one is seen after five looks.",
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

/// For how long a history is.
pub fn past(state: &State) -> String {
    format!("last {}", short(state.part() * PARTS as u32).replace(' ', ""))
}

fn cells<'a>(
    state: &State,
    now: Moment,
    name: &str,
    for_name: usize,
    room: &Room,
) -> Vec<Line<'a>> {
    let row = &state.rows[name];
    let name = Line::raw(fitted(&value(name), for_name));
    let summary = match &row.summary {
        Some(Ok(summary)) => summary,
        Some(Err(_)) => return vec![name, Line::raw("unreadable")],
        None => return vec![name, Line::raw("…")],
    };
    let wait = summary.longest_wait.map(short).unwrap_or_default();
    // A number that is cut must not look like another one.
    let queued = fitted(&summary.queued.to_string(), room.queued);
    let mut cells =
        vec![name, use_of(state, row, summary, room), Line::raw(queued), Line::raw(wait)];
    if room.past > 0 {
        let past = row.history.until(state.part_of(now.instant), room.past);
        cells.insert(3, Line::raw(bar::queued(&past)));
        cells.insert(2, Line::raw(bar::held(&past)));
    }
    cells
}

/// How full it is, as a bar and as a number.
fn use_of<'a>(state: &State, row: &state::Row, summary: &Summary, room: &Room) -> Line<'a> {
    let mark = if row.trouble.is_some() { " ?" } else { "" };
    let share = format!("{}/{}{mark}", summary.held, or_none(summary.limit));
    let share = Span::raw(fitted(&share, room.share));
    if room.bar == 0 {
        return Line::from(share);
    }
    let bar = format!("{:width$} ", bar::bar(summary, room.bar), width = room.bar);
    Line::from(vec![Span::styled(bar, state.coloured(bar::color(summary))), share])
}
