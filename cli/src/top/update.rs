//! Updates the state after an event.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::top::event::{Event, Response, Trouble, Wish};
use crate::top::keys;
use crate::top::look::Look;
use crate::top::state::{List, Moment, Row, State};

/// The server scans all its keys for the names, so the names are read much less often than the
/// semaphores.
const NAMES_PACE: u32 = 5;
const NAMES_SHARE: u32 = 10;

pub fn update(state: &mut State, event: Event, now: Moment) -> Option<Wish> {
    match event {
        Event::Key(key) => return keys::pressed(state, key),
        Event::Resized(size) => state.size = size,
        Event::Continued => {}
        Event::Leave => return Some(Wish::Leave),
        Event::Response(Response::Names(found)) => return names(state, found, now),
        Event::Response(Response::Look { name, whole, found }) => {
            looked(state, &name, whole, found, now)
        }
        Event::Response(Response::Changed { name, outcome }) => {
            state.message = Some(outcome);
            state.look_again(&name);
        }
    }
    None
}

fn names(
    state: &mut State,
    found: Result<(Vec<String>, Duration), Trouble>,
    now: Moment,
) -> Option<Wish> {
    let mut pause = state.every * NAMES_PACE;
    match found {
        Ok((names, took)) => {
            pause = pause.max(took * NAMES_SHARE);
            received(state, now);
            keep(state, names);
            state.list = Some(List { last: now.time, trouble: None });
        }
        Err(Trouble { reason, is_away }) => {
            // A server that rejects this call may accept other calls. If there was no list yet,
            // `top` ends, because there is nothing to show.
            state.contact.trouble = is_away.then(|| reason.clone());
            match &mut state.list {
                Some(list) => list.trouble = Some(reason),
                None if is_away => {}
                None => return Some(Wish::Fail(reason)),
            }
        }
    }
    state.names_due = Some(now.instant + pause);
    None
}

/// Replaces the names. An open semaphore stays, even if it no longer exists.
fn keep(state: &mut State, names: Vec<String>) {
    let pattern = state.pattern.as_ref();
    let is_wanted = |name: &String| pattern.is_none_or(|pattern| pattern.fits(name));
    let open = state.open.iter().map(|open| open.name.clone());
    let wanted = names.into_iter().filter(is_wanted).chain(open);
    let wanted: BTreeSet<String> = wanted.collect();
    let mut before = std::mem::take(&mut state.rows);
    let row = |name: String| {
        let row = before.remove(&name).unwrap_or_default();
        (name, row)
    };
    state.rows = wanted.into_iter().map(row).collect::<BTreeMap<String, Row>>();
}

fn looked(state: &mut State, name: &str, whole: bool, found: Result<Look, Trouble>, now: Moment) {
    state.looks_under_way -= 1;
    let (look, trouble) = match found {
        Ok(look) => (Some(Ok(look)), None),
        Err(Trouble { reason, is_away: true }) => (None, Some(reason)),
        Err(Trouble { reason, .. }) => (Some(Err(reason)), None),
    };
    if let Some(row) = state.rows.get_mut(name) {
        row.is_asked = false;
        row.trouble = trouble.clone();
    }
    // Without a reply, the last picture stays.
    let Some(look) = look else { return state.contact.trouble = trouble };
    received(state, now);
    let part = state.part_of(now.instant);
    if let Some(row) = state.rows.get_mut(name) {
        let summary = look.as_ref().map(|look| look.summary.clone());
        if let Ok(summary) = &summary {
            row.history.add(part, summary);
        }
        row.summary = Some(summary.map_err(String::clone));
    }
    if let Some(open) = state.open.as_mut().filter(|open| whole && open.name == name) {
        open.look = Some(look);
        let mut cursor = open.cursor.clone();
        cursor.settle(&open.ids());
        open.cursor = cursor;
    }
}

fn received(state: &mut State, now: Moment) {
    state.contact.last = now;
    state.contact.trouble = None;
}
