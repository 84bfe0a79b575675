//! What happens, and what that leads to.

use std::time::Duration;

use ratatui::crossterm::event::KeyEvent;
use ratatui::layout::Size;

use crate::top::look::Look;

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
    /// There was no answer, which may pass. Else it was refused, and other questions may not be.
    pub is_away: bool,
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
