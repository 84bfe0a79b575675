//! Decides what to read next. All semaphores get their turn, and few calls run at the same time, so
//! that a busy server does not become busier.

use std::time::{Duration, Instant};

use crate::top::event::Call;
use crate::top::state::{Row, State};

/// The largest number of looks in progress.
const AT_ONCE: usize = 4;
/// The factor between the two intervals: semaphores that are not on the screen are read at least
/// this many times less often than the others.
pub const OTHERS: u32 = 10;
/// The shortest mean interval between reads of two semaphores that are not on the screen.
const PAUSE_OF_OTHERS: Duration = Duration::from_millis(10);

/// Returns the calls that are due now, and marks them as made.
pub fn due(state: &mut State, now: Instant) -> Vec<Call> {
    let mut calls = Vec::new();
    if state.names_due.take_if(|due| *due <= now).is_some() {
        calls.push(Call::Names);
    }
    let free = AT_ONCE.saturating_sub(state.looks_under_way);
    let others = (state.every * OTHERS).max(PAUSE_OF_OTHERS * state.rows.len() as u32);
    let is_due = |name: &str, pace| state.rows.get(name).is_some_and(|row| is_due(row, pace, now));
    let mut seen = state.on_screen();
    seen.retain(|name| is_due(name, state.every));
    // If replies are slow, the first names are due again before the last names were read.
    seen.sort_by_key(|name| state.rows.get(name).and_then(|row| row.looked_at));
    let unseen = state.rows.keys().filter(|name| is_due(name, others)).cloned();
    let names: Vec<String> = seen.into_iter().chain(unseen).take(free).collect();
    for name in names {
        // A name on the screen may be in both lists.
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

#[cfg(test)]
mod tests {
    use ratatui::layout::Size;

    use super::*;
    use crate::top::event::{Event, Response};
    use crate::top::look::Look;
    use crate::top::options::Top;
    use crate::top::state::Moment;
    use crate::top::update::update;

    const EVERY: Duration = Duration::from_secs(1);

    /// Simulates `top` for this time. Each call completes immediately. Returns how many times the
    /// names were listed, and how many times each semaphore was read.
    fn calls_within(time: Duration, semaphores: usize) -> (usize, Vec<usize>) {
        let asked = Top { pattern: None, every: EVERY };
        let mut state = State::new("sem", &asked, Size::new(80, 24));
        let names: Vec<String> = (0..semaphores).map(|number| format!("{number:03}")).collect();
        let (mut searches, mut looks) = (0, vec![0; semaphores]);
        let mut now = Moment::now();
        let end = now.instant + time;
        while now.instant < end {
            let calls = due(&mut state, now.instant);
            assert!(calls.len() <= AT_ONCE + 1, "{calls:?}");
            for call in calls {
                let response = match call {
                    Call::Names => {
                        searches += 1;
                        Response::Names(Ok((names.clone(), Duration::ZERO)))
                    }
                    Call::Look { name, whole } => {
                        looks[name.parse::<usize>().unwrap()] += 1;
                        Response::Look { name, whole, found: Ok(Look::default()) }
                    }
                    Call::Change { .. } => unreachable!("no change was requested"),
                };
                assert_eq!(update(&mut state, Event::Response(response), now), None);
            }
            now.instant += Duration::from_millis(20);
        }
        (searches, looks)
    }

    #[test]
    fn semaphores_on_the_screen_are_read_most_often() {
        let (searches, looks) = calls_within(Duration::from_secs(60), 100);
        assert_eq!(searches, 12);
        let (seen, others) = looks.split_at(19);
        assert!(seen.iter().all(|looks| (50..=60).contains(looks)), "{looks:?}");
        assert!(others.iter().all(|looks| (4..=6).contains(looks)), "{looks:?}");
    }

    #[test]
    fn semaphores_on_the_screen_are_read_in_turn_if_replies_are_slow() {
        let asked = Top { pattern: None, every: EVERY };
        let mut state = State::new("sem", &asked, Size::new(80, 24));
        (10..29).for_each(|number| drop(state.rows.insert(number.to_string(), Row::default())));
        let mut now = Moment::now();
        for _ in 0..5 {
            let calls = due(&mut state, now.instant);
            now.instant += EVERY;
            for call in calls {
                let Call::Look { name, whole } = call else { continue };
                let response = Response::Look { name, whole, found: Ok(Look::default()) };
                assert_eq!(update(&mut state, Event::Response(response), now), None);
            }
        }
        let unknown: Vec<_> = state.rows.iter().filter(|(_, row)| row.known().is_none()).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn the_number_of_calls_without_a_reply_is_bounded() {
        let asked = Top { pattern: None, every: EVERY };
        let mut state = State::new("sem", &asked, Size::new(80, 24));
        (0..100).for_each(|number| drop(state.rows.insert(number.to_string(), Row::default())));
        let now = Instant::now();
        assert_eq!(due(&mut state, now).len(), AT_ONCE + 1);
        assert!(due(&mut state, now + 100 * EVERY).is_empty());
    }
}
