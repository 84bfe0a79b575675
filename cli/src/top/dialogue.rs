//! Dialogues before a change.

use std::time::Duration;

use crate::survey::Summary;

#[derive(Debug, Clone, PartialEq)]
pub enum Dialogue {
    Limit { name: String, now: Summary, typed: String },
    Revoke { name: String, victim: Victim },
}

/// The permit or request to revoke.
#[derive(Debug, Clone, PartialEq)]
pub struct Victim {
    pub id: String,
    pub client_name: String,
    pub kind: Kind,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    Permit { lease: Option<Duration> },
    Request,
}
