//! From an event to the next state.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ratatui::crossterm::event::KeyEvent;
use ratatui::layout::Size;

use crate::top::keys;
use crate::top::look::Look;
use crate::top::state::{List, Moment, Row, State};

/// The server looks through all its keys for the names. So it is left alone for much longer.
const NAMES_PACE: u32 = 5;
const NAMES_SHARE: u32 = 10;

pub enum Event {
    Key(KeyEvent),
    Resized(Size),
    Answer(Answer),
    /// Somebody wants this program to end.
    Leave,
}

pub enum Answer {
    Names(Result<(Vec<String>, Duration), Trouble>),
    Look {
        name: String,
        whole: bool,
        found: Result<Look, Trouble>,
    },
    /// What came of a change, for a person.
    Changed {
        name: String,
        outcome: String,
    },
}

pub struct Trouble {
    pub reason: String,
    pub kind: TroubleKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TroubleKind {
    /// There was no answer. That may pass.
    Away,
    /// It will not pass by itself.
    Lasting,
    /// One semaphore cannot be read; others can.
    One,
}

/// Something to ask Redis for.
#[derive(Debug, Clone, PartialEq)]
pub enum Call {
    Names,
    Look { name: String, whole: bool },
    Change { name: String, change: Change },
}

#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    SetLimit(u32),
    ClearLimit,
    /// By the id of a permit or a request.
    Revoke(String),
}

/// What an event leads to, besides another state.
#[derive(Debug, PartialEq)]
pub enum Wish {
    Call(Call),
    Leave,
    Fail(String),
}

pub fn update(state: &mut State, event: Event, now: Moment) -> Option<Wish> {
    match event {
        Event::Key(key) => return keys::pressed(state, key),
        Event::Resized(size) => state.size = size,
        Event::Leave => return Some(Wish::Leave),
        Event::Answer(Answer::Names(found)) => return names(state, found, now),
        Event::Answer(Answer::Look { name, whole, found }) => {
            looked(state, &name, whole, found, now)
        }
        Event::Answer(Answer::Changed { name, outcome }) => {
            state.message = Some(outcome);
            look_again(state, &name);
        }
    }
    None
}

/// At once, and not only when its turn comes.
pub fn look_again(state: &mut State, name: &str) {
    if let Some(row) = state.rows.get_mut(name) {
        row.looked_at = None;
    }
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
            heard(state, now);
            keep(state, names);
            state.list = Some(List { last: now.time, trouble: None });
        }
        Err(Trouble { reason, kind: TroubleKind::Away }) => state.contact.trouble = Some(reason),
        Err(Trouble { reason, .. }) => {
            // Without a list there is nothing to show.
            let Some(list) = &mut state.list else { return Some(Wish::Fail(reason)) };
            list.trouble = Some(reason);
            // Somebody has refused it, and may answer other questions.
            state.contact.trouble = None;
        }
    }
    state.names_due = Some(now.instant + pause);
    None
}

/// What is open stays, though it may have gone.
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
    if let Some(row) = state.rows.get_mut(name) {
        row.is_asked = false;
    }
    let look = match found {
        Ok(look) => Ok(look),
        Err(Trouble { reason, kind: TroubleKind::One }) => Err(reason),
        // The last picture stays.
        Err(trouble) => return state.contact.trouble = Some(trouble.reason),
    };
    heard(state, now);
    if let Some(row) = state.rows.get_mut(name) {
        let summary = look.as_ref().map(|look| look.summary.clone());
        row.summary = Some(summary.map_err(String::clone));
    }
    if let Some(open) = state.open.as_mut().filter(|open| whole && open.name == name) {
        open.look = Some(look);
        let mut cursor = open.cursor.clone();
        cursor.settle(&open.ids());
        open.cursor = cursor;
    }
}

fn heard(state: &mut State, now: Moment) {
    state.contact.last = now;
    state.contact.trouble = None;
}

/// The list may have changed under its cursor. It is sorted for that, so this is not for each
/// answer, but before a picture, and before a key.
pub fn settle(state: &mut State) {
    let mut cursor = state.cursor.clone();
    cursor.settle(&state.sorted());
    state.cursor = cursor;
}
