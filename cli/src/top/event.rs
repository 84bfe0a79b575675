//! Events, and their effects.

use std::time::Duration;

use ratatui::crossterm::event::KeyEvent;
use ratatui::layout::Size;

use crate::top::look::Look;

pub enum Event {
    Key(KeyEvent),
    Resized(Size),
    Response(Response),
    /// This process was stopped, and continues.
    Continued,
    /// The user or a signal ends this program.
    Leave,
}

pub enum Response {
    Names(Result<(Vec<String>, Duration), Trouble>),
    Look {
        name: String,
        whole: bool,
        found: Result<Look, Trouble>,
    },
    /// The outcome of a change, as text.
    Changed {
        name: String,
        outcome: String,
    },
}

pub struct Trouble {
    pub reason: String,
    /// Whether no reply arrived, which may be temporary. If this is false, the call was rejected,
    /// but other calls may work.
    pub is_away: bool,
}

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
    /// The ID of a permit or a request.
    Revoke(String),
}

/// The effect of an event, in addition to a change of the state.
#[derive(Debug, PartialEq)]
pub enum Wish {
    Call(Call),
    Leave,
    Fail(String),
}
