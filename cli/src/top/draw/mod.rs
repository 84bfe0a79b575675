//! Draws the state.

mod bar;
mod columns;
mod detail;
mod dialogue;
mod list;
#[cfg(test)]
mod tests;

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::Line;

use crate::escape::value;
use crate::top::state::{List, Moment, State};
use crate::top::text::{fitted, short, time_of_day, wrapped};

const MARKED: Style = Style::new().add_modifier(Modifier::REVERSED);
/// A missing reply is reported after this time, even if the reason is not known yet.
const PATIENCE: Duration = Duration::from_secs(2);
const LINES_OF_NOTICE: usize = 2;

pub fn draw(state: &State, now: Moment, frame: &mut Frame) {
    let [title, body, notice, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(LINES_OF_NOTICE as u16),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(one_line(&title_of(state), title).bold(), title);
    match &state.open {
        Some(open) => detail::draw(state, open, now, frame, body),
        None => list::draw(state, now, frame, body),
    }
    draw_notices(state, now, frame, notice);
    frame.render_widget(one_line(keys_of(state), keys).dim(), keys);
    if let Some(dialogue) = &state.dialogue {
        dialogue::draw(dialogue, frame);
    }
}

fn title_of(state: &State) -> String {
    let what = match (state.rows.len(), &state.list) {
        (0, None) => "semaphores".to_owned(),
        (1, _) => "1 semaphore".to_owned(),
        (count, _) => format!("{count} semaphores"),
    };
    let like = like(state);
    let pace = humantime::format_duration(state.every);
    format!("redis-semaphore: {what}{like} under prefix {}, every {pace}", state.prefix)
}

fn like(state: &State) -> String {
    state.pattern.as_ref().map(|pattern| format!(" matching {pattern}")).unwrap_or_default()
}

fn keys_of(state: &State) -> &'static str {
    match state.open {
        Some(_) => "↑↓ PgUp PgDn Home End move  g groups  l limit  r revoke  Esc back  q quit",
        None => "↑↓ PgUp PgDn Home End move  Enter open  1-4 sort  l limit  q Esc quit",
    }
}

fn draw_notices(state: &State, now: Moment, frame: &mut Frame, area: Rect) {
    let notices = notices_of(state, now);
    let room = LINES_OF_NOTICE / notices.len().max(1);
    let width = usize::from(area.width);
    let mut rows = area.rows();
    for (text, style) in notices {
        let mut lines = wrapped(&text, width);
        if lines.len() > room {
            lines[room - 1] = fitted(&format!("{} …", lines[room - 1]), width);
        }
        for (line, row) in lines.into_iter().take(room).zip(&mut rows) {
            frame.render_widget(Line::styled(line, style), row);
        }
    }
}

/// Returns the notices. A problem is shown before the outcome of a change. Without notices, the
/// whole ID of the marked line is shown instead.
fn notices_of(state: &State, now: Moment) -> Vec<(String, Style)> {
    let trouble = trouble_of(state, now).map(|text| (text, state.colored(Color::Red)));
    let message = state.message.clone().map(|text| (text, Style::new().bold()));
    let notices: Vec<_> = trouble.into_iter().chain(message).collect();
    match &state.open {
        Some(open) if notices.is_empty() => {
            let id = open.ids().get(open.cursor.index()).map(|id| id.to_string());
            id.map(|id| (value(&id), Style::new())).into_iter().collect()
        }
        _ => notices,
    }
}

fn trouble_of(state: &State, now: Moment) -> Option<String> {
    if let (None, Some(reason)) = (&state.list, &state.contact.trouble) {
        return Some(format!("No list of names yet: {reason}"));
    }
    let last = state.contact.last;
    let silent = now.instant.saturating_duration_since(last.instant);
    // As long as a part of a cluster replies, Redis does not count as unavailable.
    if let Some(reason) = &state.contact.trouble
        && silent > state.every + PATIENCE
    {
        let since = time_of_day(last.time);
        return Some(format!("Redis is unavailable; last update at {since}: {reason}"));
    }
    let mut old = state.rows.values().filter_map(|row| row.trouble.as_ref());
    if let Some(reason) = old.next() {
        let count = 1 + old.count();
        let what = if count == 1 { "semaphore" } else { "semaphores" };
        return Some(format!("No reply for {count} {what}, marked with \"?\": {reason}"));
    }
    if let Some(List { last, trouble: Some(reason) }) = &state.list {
        return Some(format!("No new list of names since {}: {reason}", time_of_day(*last)));
    }
    // No call has failed yet. Only calls for single semaphores are checked, because lists of names
    // are rare and slow.
    let awaited = state.rows.values().filter(|row| row.is_asked);
    let asked = awaited.filter_map(|row| row.looked_at).min()?;
    let silent = now.instant.saturating_duration_since(asked.max(last.instant));
    (silent > PATIENCE).then(|| format!("no reply from Redis for {}", short(silent)))
}

fn one_line(text: &str, area: Rect) -> Line<'static> {
    Line::raw(fitted(text, usize::from(area.width)))
}
