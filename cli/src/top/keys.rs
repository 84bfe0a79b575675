//! The effects of keys.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::top::cursor::Cursor;
use crate::top::dialogue::{Dialogue, Kind, Victim};
use crate::top::event::{Call, Change, Wish};
use crate::top::look::lease_of;
use crate::top::state::{Column, Open, Sort, State};

/// The length of the longest text that can be typed. This length exceeds the length of any limit,
/// so that a limit that is too large can be typed and is then rejected.
const MOST_TYPED: usize = 12;

pub fn pressed(state: &mut State, key: KeyEvent) -> Option<Wish> {
    let has_control = key.modifiers.contains(KeyModifiers::CONTROL);
    if has_control {
        // Any key except `y` cancels a revocation.
        state.dialogue.take_if(|dialogue| matches!(dialogue, Dialogue::Revoke { .. }));
        return (key.code == KeyCode::Char('c')).then_some(Wish::Leave);
    }
    state.message = None;
    state.settle();
    // If Esc and a letter are typed quickly, a terminal sends them as Alt and the letter.
    if key.modifiers.contains(KeyModifiers::ALT) {
        state.dialogue = None;
        return None;
    }
    match state.dialogue.take() {
        Some(Dialogue::Limit { name, now, typed }) => {
            let (typed, wish) = in_limit(&name, typed, key.code);
            state.dialogue = typed.map(|typed| Dialogue::Limit { name, now, typed });
            wish
        }
        // Only `y` means yes.
        Some(Dialogue::Revoke { name, victim }) => (key.code == KeyCode::Char('y'))
            .then_some(Wish::Call(Call::Change { name, change: Change::Revoke(victim.id) })),
        None => in_view(state, key.code),
    }
}

/// Returns the text typed so far, or `None` when the dialogue has ended, and the requested change.
fn in_limit(name: &str, mut typed: String, key: KeyCode) -> (Option<String>, Option<Wish>) {
    match key {
        KeyCode::Esc => return (None, None),
        KeyCode::Enter => {
            if let Some(change) = change_of(&typed) {
                let name = name.to_owned();
                return (None, Some(Wish::Call(Call::Change { name, change })));
            }
        }
        KeyCode::Backspace => _ = typed.pop(),
        KeyCode::Char(typed_now) if typed.chars().count() < MOST_TYPED => typed.push(typed_now),
        _ => {}
    }
    (Some(typed), None)
}

/// Parses the text in the dialogue of a limit: a number, or `c`, which clears the limit.
pub fn change_of(typed: &str) -> Option<Change> {
    if typed == "c" {
        return Some(Change::ClearLimit);
    }
    let is_plain = typed.bytes().all(|byte| byte.is_ascii_digit());
    typed.parse().ok().filter(|_| is_plain).map(Change::SetLimit)
}

fn in_view(state: &mut State, key: KeyCode) -> Option<Wish> {
    match key {
        KeyCode::Char('q') => return Some(Wish::Leave),
        KeyCode::Esc if state.open.is_none() => return Some(Wish::Leave),
        KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => close(state),
        KeyCode::Enter | KeyCode::Right if state.open.is_none() => open(state),
        KeyCode::Char('l') => ask_for_limit(state),
        KeyCode::Char('r') => ask_whether_to_revoke(state),
        KeyCode::Char('g') => show_groups(state),
        KeyCode::Char(digit @ '1'..='4') if state.open.is_none() => sort(state, digit),
        other => go(state, other),
    }
    None
}

fn open(state: &mut State) {
    let Some(name) = state.marked().map(str::to_owned) else { return };
    state.open = Some(Open::new(&name));
    state.look_again(&name);
}

fn close(state: &mut State) {
    state.open = None;
    state.settle();
}

/// Shows the groups instead of the holders and waiters, or these instead of the groups.
fn show_groups(state: &mut State) {
    let Some(open) = &mut state.open else { return };
    open.shows_groups = !open.shows_groups;
    open.cursor = Cursor::default();
}

fn sort(state: &mut State, digit: char) {
    let column = match digit {
        '1' => Column::Name,
        '2' => Column::Share,
        '3' => Column::Queued,
        _ => Column::LongestWait,
    };
    let is_reversed = state.sort.column == column && !state.sort.is_reversed;
    state.sort = Sort { column, is_reversed };
    state.cursor = Cursor::default();
}

fn go(state: &mut State, key: KeyCode) {
    let page = state.height_of_list().max(1) as isize;
    let go = |cursor: &mut Cursor, keys: &[&str]| match key {
        KeyCode::Up | KeyCode::Char('k') => cursor.step(-1, keys),
        KeyCode::Down | KeyCode::Char('j') => cursor.step(1, keys),
        KeyCode::PageUp => cursor.step(-page, keys),
        KeyCode::PageDown => cursor.step(page, keys),
        KeyCode::Home => cursor.go_to(0, keys),
        KeyCode::End => cursor.go_to(usize::MAX, keys),
        _ => {}
    };
    if let Some(open) = &mut state.open {
        let mut cursor = open.cursor.clone();
        go(&mut cursor, &open.ids());
        open.cursor = cursor;
    } else {
        let mut cursor = state.cursor.clone();
        go(&mut cursor, &state.sorted());
        state.cursor = cursor;
    }
}

/// Opens the dialogue, unless the semaphore cannot be read. Its limit could not be set either.
fn ask_for_limit(state: &mut State) {
    let Some(name) = state.marked().map(str::to_owned) else { return };
    let Some(now) = state.rows.get(&name).and_then(|row| row.known()).cloned() else { return };
    state.dialogue = Some(Dialogue::Limit { name, now, typed: String::new() });
}

fn ask_whether_to_revoke(state: &mut State) {
    let Some(open) = state.open.as_ref().filter(|open| !open.shows_groups) else { return };
    let Some(look) = open.known() else { return };
    let index = open.cursor.index();
    let victim = if let Some(holder) = look.holders.get(index) {
        let kind = Kind::Permit { lease: lease_of(&holder.id) };
        Victim { id: holder.id.clone(), client_name: holder.client_name.clone(), kind }
    } else if let Some(waiter) = look.waiters.get(index - look.holders.len()) {
        Victim {
            id: waiter.id.clone(),
            client_name: waiter.client_name.clone(),
            kind: Kind::Request,
        }
    } else {
        return;
    };
    state.dialogue = Some(Dialogue::Revoke { name: open.name.clone(), victim });
}
