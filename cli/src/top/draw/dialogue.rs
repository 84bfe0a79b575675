//! What is asked before something is changed, over the picture.

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
    // What answers it are the last lines, which must be seen.
    let answer = lines.split_off(lines.len().saturating_sub(2));
    lines.truncate(usize::from(height.saturating_sub(4)));
    lines.extend(answer);
    let area = centred(width, height, screen);
    frame.render_widget(Clear, area);
    frame.render_widget(Block::bordered().title(fitted(&title, inner)), area);
    for (line, row) in lines.into_iter().zip(area.inner(Margin::new(2, 1)).rows()) {
        frame.render_widget(Line::raw(line), row);
    }
}

fn limit(now: &Summary, typed: &str) -> Vec<String> {
    let hint = match change_of(typed) {
        None if !typed.is_empty() => format!(" (no number from 0 to {}, nor c)", u32::MAX),
        Some(Change::ClearLimit) => " (clears the one set at run time)".to_owned(),
        _ => String::new(),
    };
    vec![
        format!(
            "In force: {}. Declared: {}. Set at run time: {}.",
            or_none(now.limit),
            or_none(now.declared),
            or_none(now.runtime)
        ),
        "A limit that is set goes before what processes declare, until it is cleared. A lower one \
         takes no permit away; 0 lets nobody in."
            .to_owned(),
        String::new(),
        format!("New limit: {typed}_{hint}"),
        "A number, or c to clear it, and Enter · Esc leaves all as it is".to_owned(),
    ]
}

fn revoke(victim: &Victim) -> Vec<String> {
    let mut lines = match &victim.kind {
        Kind::Permit { lease } => permit(*lease),
        Kind::Request => vec![
            "This request leaves the queue. If its process lives, it asks again and gets its old \
             place: end the process to keep it out."
                .to_owned(),
        ],
    };
    lines.insert(0, format!("{} ({})", value(&victim.client_name), value(&victim.id)));
    lines.insert(1, String::new());
    lines.extend([String::new(), "y revokes · any other key does not".to_owned()]);
    lines
}

/// As the documentation of `Semaphore::revoke` has it.
fn permit(lease: Option<Duration>) -> Vec<String> {
    let (usual, longest) = match lease.map(overlap) {
        Some((usual, longest)) => (at_most(usual), at_most(longest)),
        None => ("a third of its lease".to_owned(), "its lease".to_owned()),
    };
    vec![
        format!(
            "The holder of this permit is not asked. It hears of it at its next renewal: for up to \
             {usual} it and whoever is let in work at the same time."
        ),
        format!(
            "A holder that cannot reach Redis, or does not renew, works on until its own deadline: \
             for up to {longest}. Where that must not be, end its process first."
        ),
    ]
}

fn centred(width: u16, height: u16, screen: Rect) -> Rect {
    let x = (screen.width - width) / 2;
    let y = (screen.height - height) / 2;
    Rect { x, y, width, height }
}
