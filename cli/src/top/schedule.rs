//! What to ask Redis next. All is asked in turns, and little at once, so that a server that is
//! busy is not made busier.

use std::time::{Duration, Instant};

use crate::top::state::{Row, State};
use crate::top::update::Call;

/// Looks whose answers are awaited.
const AT_ONCE: usize = 4;
/// What is not on the screen is looked at so many times less often.
const OTHERS: u32 = 10;
/// And no more often than that, however many there are.
const PAUSE_OF_OTHERS: Duration = Duration::from_millis(10);

/// What is due now. It is taken to be asked.
pub fn due(state: &mut State, now: Instant) -> Vec<Call> {
    let mut calls = Vec::new();
    if state.names_due.take_if(|due| *due <= now).is_some() {
        calls.push(Call::Names);
    }
    let free = AT_ONCE.saturating_sub(state.looks_under_way);
    let others = (state.every * OTHERS).max(PAUSE_OF_OTHERS * state.rows.len() as u32);
    let is_due = |name: &str, pace| state.rows.get(name).is_some_and(|row| is_due(row, pace, now));
    let seen = state.on_screen().into_iter().filter(|name| is_due(name, state.every));
    let unseen = state.rows.keys().filter(|name| is_due(name, others)).cloned();
    let names: Vec<String> = seen.chain(unseen).take(free).collect();
    for name in names {
        // One that is on the screen is on both lists.
        let Some(row) = state.rows.get_mut(&name).filter(|row| !row.is_asked) else { continue };
        (row.is_asked, row.looked_at) = (true, Some(now));
        state.looks_under_way += 1;
        let whole = state.open.as_ref().is_some_and(|open| open.name == name);
        calls.push(Call::Look { name, whole });
    }
    calls
}

fn is_due(row: &Row, pace: Duration, now: Instant) -> bool {
    let is_old = |at: Instant| now.saturating_duration_since(at) >= pace;
    !row.is_asked && row.looked_at.is_none_or(is_old)
}
