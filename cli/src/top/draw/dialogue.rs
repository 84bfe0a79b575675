//! Dialogues before a change, drawn over the picture.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Margin, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear};

use crate::escape::value;
use crate::overlap::overlap;
use crate::survey::Summary;
use crate::table::{at_most, or_none};
use crate::top::dialogue::{Dialogue, Kind, Victim};
use crate::top::event::Change;
use crate::top::keys::change_of;
use crate::top::text::{fitted, wrapped};

const WIDTH: u16 = 72;

pub fn draw(dialogue: &Dialogue, frame: &mut Frame) {
    let screen = frame.area();
    let width = WIDTH.min(screen.width);
    let inner = usize::from(width.saturating_sub(4));
    let (title, paragraphs) = match dialogue {
        Dialogue::Limit { name, now, typed } => {
            (format!(" Limit of {} ", value(name)), limit(now, typed))
        }
        Dialogue::Revoke { name, victim } => {
            (format!(" Revoke at {} ", value(name)), revoke(victim))
        }
    };
    let lines = paragraphs.iter().flat_map(|text| wrapped(text, inner));
    let mut lines: Vec<String> = lines.collect();
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(screen.height);
    // The last lines name the keys, so they must be visible.
    let choice = lines.split_off(lines.len().saturating_sub(2));
    lines.truncate(usize::from(height.saturating_sub(4)));
    lines.extend(choice);
    let area = centered(width, height, screen);
    frame.render_widget(Clear, area);
    frame.render_widget(Block::bordered().title(fitted(&title, inner)), area);
    for (line, row) in lines.into_iter().zip(area.inner(Margin::new(2, 1)).rows()) {
        frame.render_widget(Line::raw(line), row);
    }
}

fn limit(now: &Summary, typed: &str) -> Vec<String> {
    let hint = match change_of(typed) {
        None if !typed.is_empty() => format!(" (must be a number from 0 to {}, or c)", u32::MAX),
        Some(Change::ClearLimit) => " (clears the runtime limit)".to_owned(),
        _ => String::new(),
    };
    vec![
        format!(
            "Effective limit: {}. Declared: {}. Runtime: {}.",
            or_none(now.limit),
            or_none(now.declared),
            or_none(now.runtime)
        ),
        "A runtime limit overrides declared limits until it is cleared. A lower limit revokes no \
         permit. With 0, no permit is granted."
            .to_owned(),
        String::new(),
        format!("New limit: {typed}_{hint}"),
        "Type a number, or c to clear the runtime limit, then Enter. Esc: cancel".to_owned(),
    ]
}

fn revoke(victim: &Victim) -> Vec<String> {
    let mut lines = match &victim.kind {
        Kind::Permit { lease } => permit(*lease),
        Kind::Request => vec![
            "The request leaves the queue. If its process is alive, it returns to its old \
             position: end the process to keep it out."
                .to_owned(),
        ],
    };
    lines.insert(0, format!("{} ({})", value(&victim.client_name), value(&victim.id)));
    lines.insert(1, String::new());
    lines.extend([String::new(), "y: revoke. Any other key: cancel".to_owned()]);
    lines
}

/// Returns the warning before a permit is revoked: see the documentation of `Semaphore::revoke`.
fn permit(lease: Option<Duration>) -> Vec<String> {
    let (usual, longest) = match lease.map(overlap) {
        Some((usual, longest)) => (at_most(usual), at_most(longest)),
        None => ("a third of its lease".to_owned(), "its lease".to_owned()),
    };
    vec![
        format!(
            "The holder finds out at its next refresh. Until then, for up to {usual}, it and the \
             next holder may work at the same time."
        ),
        format!(
            "A holder that cannot reach Redis, or does not refresh, continues until its own \
             deadline, for up to {longest}. To prevent that, end its process instead."
        ),
    ]
}

fn centered(width: u16, height: u16, screen: Rect) -> Rect {
    let x = (screen.width - width) / 2;
    let y = (screen.height - height) / 2;
    Rect { x, y, width, height }
}
