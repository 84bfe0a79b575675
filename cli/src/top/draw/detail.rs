//! One semaphore: its limits, holders and waiters.

use std::ops::RangeInclusive;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Row, Table};

use super::{MARKED, bar, columns, list};
use crate::escape::value;
use crate::group;
use crate::survey::Summary;
use crate::table::or_none;
use crate::top::cursor::page;
use crate::top::history::PARTS;
use crate::top::look::Look;
use crate::top::state::{Moment, Open, State};
use crate::top::text::{fitted, fitted_end, short, width_of, wrapped};

/// The least and the largest width of client names.
const CLIENT_NAME: RangeInclusive<u16> = 8..=20;
/// The width of the largest weight.
const WEIGHT: u16 = 10;
const POSITION: u16 = 8;

/// The history is drawn only if holders and waiters get more than this many lines.
const LEAST: u16 = 6;
const BAR: usize = 10;

pub fn draw(state: &State, open: &Open, now: Moment, frame: &mut Frame, area: Rect) {
    let width = usize::from(area.width);
    let look = match &open.look {
        Some(Ok(look)) => look,
        Some(Err(reason)) => return draw_lines(&wrapped(reason, width), frame, area),
        None => {
            return draw_lines(
                &[fitted(&format!("{} ...", value(&open.name)), width)],
                frame,
                area,
            );
        }
    };
    let summary = summary_of(&look.summary);
    // The numbers are visible, however long the name is.
    let name = fitted(&value(&open.name), width.saturating_sub(summary.len() + 2).max(12));
    let for_past = u16::from(area.height > LEAST + 2);
    let [head, past, body] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(for_past),
        Constraint::Fill(1),
    ])
    .areas(area);
    draw_lines(&[fitted(&format!("{name}: {summary}"), width)], frame, head);
    frame.render_widget(past_of(state, open, &look.summary, now, width), past);
    if open.shows_groups {
        return draw_groups(state, look, open.cursor.index(), frame, body);
    }
    let upper = height_of_holders(look, body.height);
    let [holders, waiters] =
        Layout::vertical([Constraint::Length(upper), Constraint::Fill(1)]).areas(body);
    draw_holders(look, open.cursor.index(), frame, holders);
    draw_waiters(look, open.cursor.index(), frame, waiters);
}

fn draw_lines(lines: &[String], frame: &mut Frame, area: Rect) {
    for (line, row) in lines.iter().zip(area.rows()) {
        frame.render_widget(Line::raw(line.clone()), row);
    }
}

/// Returns how full the semaphore is, and how full it was.
fn past_of<'a>(
    state: &State,
    open: &Open,
    summary: &Summary,
    now: Moment,
    width: usize,
) -> Line<'a> {
    let columns = if width < 100 { PARTS / 2 } else { PARTS };
    let history = state.rows.get(&open.name).map(|row| &row.history);
    let past = history.map(|history| history.until(state.part_of(now.instant), columns));
    let past = past.unwrap_or_default();
    let full = fitted(&bar::bar(summary, BAR), width);
    let (held, queued, ago) = (bar::held(&past), bar::queued(&past), list::past(state));
    let rest = format!("  held {held}  queued {queued}  {ago}");
    let rest = fitted(&rest, width.saturating_sub(width_of(&full)));
    Line::from(vec![Span::styled(full, state.colored(bar::color(summary))), Span::raw(rest)])
}

fn summary_of(summary: &Summary) -> String {
    let limit = or_none(summary.limit);
    let origin = match (summary.runtime, summary.declared) {
        (Some(_), Some(declared)) => format!(" (runtime; declared {declared})"),
        (Some(_), None) => " (runtime)".to_owned(),
        _ => String::new(),
    };
    let wait = summary.longest_wait.map(|wait| format!(", longest wait {}", short(wait)));
    let (held, queued) = (summary.held, summary.queued);
    format!("held {held}, limit {limit}{origin}, queued {queued}{}", wait.unwrap_or_default())
}

/// Returns the height of the table of holders with its head: at most half of the height, or the
/// part that the waiters leave free if that part is larger.
fn height_of_holders(look: &Look, height: u16) -> u16 {
    let with_head = |lines: usize| u16::try_from(lines + 1).unwrap_or(u16::MAX);
    let free = height.saturating_sub(with_head(look.waiters.len().max(1)));
    with_head(look.holders.len().max(1)).min(free.max(height / 2))
}

fn draw_holders(look: &Look, marked: usize, frame: &mut Frame, area: Rect) {
    let (widths, room) = widths_and_room_for_id(&[WEIGHT, 10], area);
    let index = if marked < look.holders.len() { marked } else { 0 };
    let seen = page(index, look.holders.len(), usize::from(area.height.saturating_sub(1)));
    let rows = seen.map(|index| {
        let holder = &look.holders[index];
        let cells = [
            value(&holder.client_name),
            holder.weight.to_string(),
            short(holder.lease_left),
            fitted_end(&value(&holder.id), room),
        ];
        let row = columns::row(cells, &widths);
        row.style(style(index == marked))
    });
    let reported: u64 = look.holders.iter().map(|holder| u64::from(holder.weight)).sum();
    let title = title("HOLDERS", look.holders.len(), reported < look.summary.held);
    let head = [&*title, "WEIGHT", "EXPIRES IN", "ID"];
    draw_table(rows.collect(), &widths, &head, frame, area);
}

fn draw_waiters(look: &Look, marked: usize, frame: &mut Frame, area: Rect) {
    let (widths, room) = widths_and_room_for_id(&[WEIGHT, 10, POSITION, 7], area);
    let before = look.holders.len();
    let index = marked.saturating_sub(before);
    let seen = page(index, look.waiters.len(), usize::from(area.height.saturating_sub(1)));
    let rows = seen.map(|index| {
        let waiter = &look.waiters[index];
        let cells = [
            value(&waiter.client_name),
            waiter.weight.to_string(),
            short(waiter.waited),
            waiter.position.to_string(),
            if waiter.is_there { "alive" } else { "dead" }.to_owned(),
            fitted_end(&value(&waiter.id), room),
        ];
        let row = columns::row(cells, &widths);
        row.style(style(before + index == marked))
    });
    let reported = look.waiters.len();
    let title = title("WAITERS", reported, (reported as u64) < look.summary.queued);
    let head = [&*title, "WEIGHT", "WAITED", "POSITION", "PROCESS", "ID"];
    draw_table(rows.collect(), &widths, &head, frame, area);
}

/// Draws the groups: a bar shows which part of the limit, or of its cap, a group holds.
fn draw_groups(state: &State, look: &Look, marked: usize, frame: &mut Frame, area: Rect) {
    let others = [BAR as u16, 7, 7, 8, 5, 6, 11];
    let widths = columns::fitting(CLIENT_NAME, &others, area.width);
    let seen = page(marked, look.groups.len(), usize::from(area.height.saturating_sub(1)));
    let rows = seen.map(|index| {
        let group = &look.groups[index];
        let limit = look.summary.limit.map(|limit| limit.min(group.cap.unwrap_or(limit)));
        let use_of_it = Summary { held: group.held, limit, ..Summary::default() };
        let color = state.colored(bar::color(&use_of_it));
        let mut cells: Vec<Line<'_>> =
            group.cells.iter().map(|cell| Line::raw(value(cell))).collect();
        cells.insert(1, Line::styled(bar::bar(&use_of_it, BAR), color));
        columns::row(cells, &widths).style(style(index == marked))
    });
    let mut head = group::COLUMNS.to_vec();
    head.insert(1, "USE");
    draw_table(rows.collect(), &widths, &head, frame, area);
}

fn draw_table(rows: Vec<Row<'_>>, widths: &[u16], head: &[&str], frame: &mut Frame, area: Rect) {
    let head = columns::row(head.iter().map(|title| title.to_string()), widths).bold();
    let widths = widths.iter().copied().map(Constraint::Length);
    frame.render_widget(Table::new(rows, widths).header(head), area);
}

/// Returns a title, which shows whether more holders or waiters exist than Redis returned.
fn title(of: &str, reported: usize, are_more: bool) -> String {
    if are_more { format!("{of} (first {reported})") } else { of.to_owned() }
}

/// Returns the widths of all columns, and the width of the last column, which has the IDs.
fn widths_and_room_for_id(others: &[u16], area: Rect) -> (Vec<u16>, usize) {
    let mut widths = columns::fitting(CLIENT_NAME, others, area.width);
    let used: u16 = widths.iter().map(|width| width + 1).sum();
    let room = area.width.saturating_sub(used);
    widths.extend((room > 0).then_some(room));
    (widths, usize::from(room))
}

fn style(is_marked: bool) -> Style {
    if is_marked { MARKED } else { Style::new() }
}
