//! From the state to a picture.

mod detail;
mod dialogue;
mod list;
#[cfg(test)]
mod tests;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;

use crate::top::state::{Moment, State};
use crate::top::text::{fitted, short, time_of_day, wrapped};

const MARKED: Style = Style::new().reversed();
const LINES_OF_NOTICE: usize = 2;

pub fn draw(state: &State, now: Moment, frame: &mut Frame) {
    let lines = [1, 0, LINES_OF_NOTICE as u16, 1];
    let [title, body, notice, keys] = Layout::vertical([
        Constraint::Length(lines[0]),
        Constraint::Fill(1),
        Constraint::Length(lines[2]),
        Constraint::Length(lines[3]),
    ])
    .areas(frame.area());
    frame.render_widget(one_line(&title_of(state), title).bold(), title);
    match &state.open {
        Some(open) => detail::draw(open, frame, body),
        None => list::draw(state, frame, body),
    }
    draw_notice(state, now, frame, notice);
    frame.render_widget(one_line(keys_of(state), keys).dim(), keys);
    if let Some(dialogue) = &state.dialogue {
        dialogue::draw(dialogue, frame);
    }
}

fn title_of(state: &State) -> String {
    let count = state.rows.len();
    let like = like(state);
    let pace = humantime::format_duration(state.every);
    format!("redis-semaphore: {count} semaphores{like} under {}, every {pace}", state.prefix)
}

fn like(state: &State) -> String {
    state.pattern.as_ref().map(|pattern| format!(" like {pattern}")).unwrap_or_default()
}

fn keys_of(state: &State) -> &'static str {
    match state.open {
        Some(_) => "↑↓ move  l limit  r revoke  Esc back  q leave",
        None => "↑↓ move  Enter open  1-4 sort  l limit  q leave",
    }
}

/// What is wrong goes before what was done.
fn draw_notice(state: &State, now: Moment, frame: &mut Frame, area: Rect) {
    let width = usize::from(area.width);
    let trouble = trouble_of(state, now).map(|text| wrapped(&text, width));
    let message = state.message.as_ref().map(|text| wrapped(text, width));
    let red = Style::new().fg(Color::Red);
    let texts = [(trouble, red), (message, Style::new().bold())];
    let mut left = LINES_OF_NOTICE;
    let is_both = texts.iter().all(|(text, _)| text.is_some());
    for (lines, style) in texts.into_iter().filter_map(|(lines, style)| Some((lines?, style))) {
        let room = if is_both { 1 } else { left };
        let mut shown: Vec<String> = lines.iter().take(room).cloned().collect();
        if let Some(last) = shown.last_mut().filter(|_| lines.len() > room) {
            *last = fitted(&format!("{last} …"), width.saturating_sub(1));
        }
        for line in shown {
            let row = area.rows().nth(LINES_OF_NOTICE - left).unwrap_or_default();
            frame.render_widget(Line::styled(line, style), row);
            left -= 1;
        }
    }
}

fn trouble_of(state: &State, now: Moment) -> Option<String> {
    let last = state.contact.last;
    if let Some(reason) = &state.contact.trouble {
        let since = time_of_day(last.time);
        return Some(format!("Redis away, the picture is of {since}: {reason}"));
    }
    // Nobody says yet why there is none.
    let silent = now.instant.saturating_duration_since(last.instant);
    let usual = state.every + std::time::Duration::from_secs(2);
    (silent > usual).then(|| format!("no answer from Redis for {}", short(silent)))
}

fn one_line(text: &str, area: Rect) -> Line<'static> {
    Line::raw(fitted(text, usize::from(area.width)))
}
