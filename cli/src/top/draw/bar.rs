//! Numbers as pictures: how full a semaphore is, and how full it was.

use ratatui::style::Color;
use ratatui::symbols::{bar, block};

use crate::survey::Summary;
use crate::top::history::Seen;
use crate::top::state::share;

const FREE: &str = "·";
/// The end of a bar if more than the limit is held, for example because the limit was lowered.
const OVER: &str = "+";
/// The lowest value that is drawn at full height, so that a queue of one request does not look
/// long.
const SHORT_QUEUE: u64 = 7;

/// Draws how full a semaphore is, in this many columns.
pub fn bar(summary: &Summary, width: usize) -> String {
    let eighths = match summary.limit {
        None => return String::new(),
        Some(0) => return "paused".to_owned(),
        Some(_) if summary.held == 0 => 0,
        // The bar is empty only for an empty semaphore, and full only for a full semaphore.
        Some(_) if share(summary) < 1.0 => ((share(summary) * width as f64 * 8.0) as usize).max(1),
        Some(limit) if summary.held > u64::from(limit) => {
            return block::FULL.repeat(width.saturating_sub(1)) + OVER;
        }
        Some(_) => width * 8,
    };
    let part = match eighths % 8 {
        0 => "",
        1 => block::ONE_EIGHTH,
        2 => block::ONE_QUARTER,
        3 => block::THREE_EIGHTHS,
        4 => block::HALF,
        5 => block::FIVE_EIGHTHS,
        6 => block::THREE_QUARTERS,
        _ => block::SEVEN_EIGHTHS,
    };
    let free = width.saturating_sub(eighths.div_ceil(8));
    block::FULL.repeat(eighths / 8) + part + &FREE.repeat(free)
}

pub fn color(summary: &Summary) -> Color {
    match (summary.held, summary.limit) {
        (held, Some(limit)) if held > u64::from(limit) => Color::Red,
        (held, Some(limit)) if held == u64::from(limit) => Color::Yellow,
        _ => Color::Green,
    }
}

/// Draws how much of the limit was held.
pub fn held(seen: &[Option<Seen>]) -> String {
    seen.iter().map(|seen| level(seen.map(|seen| seen.held().into()))).collect()
}

/// Draws how many requests waited, relative to the largest number in the shown time.
pub fn queued(seen: &[Option<Seen>]) -> String {
    let most = seen.iter().flatten().map(|seen| seen.queued).max().unwrap_or(0).max(SHORT_QUEUE);
    let share = |seen: Seen| seen.queued as f64 / most as f64;
    seen.iter().map(|seen| level(seen.map(share))).collect()
}

/// Returns the character for a share: a space if the share is unknown, or a line if it is 0.
fn level(share: Option<f64>) -> &'static str {
    const SOME: [&str; 7] = [
        bar::ONE_QUARTER,
        bar::THREE_EIGHTHS,
        bar::HALF,
        bar::FIVE_EIGHTHS,
        bar::THREE_QUARTERS,
        bar::SEVEN_EIGHTHS,
        bar::FULL,
    ];
    match share {
        None => " ",
        Some(share) if share > 0.0 => SOME[((share * 7.0).ceil() as usize).clamp(1, 7) - 1],
        Some(_) => bar::ONE_EIGHTH,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_full_or_empty_only_if_the_semaphore_is() {
        for (held, limit, shown) in [
            (0, Some(3), "········"),
            (1, Some(10_000), "▏·······"),
            (1, Some(2), "████····"),
            (9, Some(16), "████▌···"),
            (9_999, Some(10_000), "███████▉"),
            (3, Some(3), "████████"),
            (4, Some(3), "███████+"),
            (2, Some(0), "paused"),
            (2, None, ""),
        ] {
            let summary = Summary { held, limit, ..Summary::default() };
            assert_eq!(bar(&summary, 8), shown, "{held}/{limit:?}");
        }
    }

    #[test]
    fn the_history_of_held_and_queued_is_drawn_in_levels() {
        let seen = |share, queued| Some(Seen::new(share, queued));
        let past = [None, seen(0.0, 0), seen(0.1, 1), seen(0.5, 70), seen(2.0, 700)];
        assert_eq!(held(&past), " ▁▂▅█");
        assert_eq!(queued(&past), " ▁▂▂█");
        assert_eq!(queued(&past[..3]), " ▁▂");
    }
}
