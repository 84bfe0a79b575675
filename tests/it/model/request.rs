//! The requests of the test, and their form as arguments of the scripts.

#[derive(Debug, Clone)]
pub struct Request {
    pub id: String,
    pub place: Place,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Place {
    Try,
    Wait,
    Ahead(i64),
    Ticket(i64),
}

/// The change that a refresh requests for a permit.
#[derive(Debug, Clone)]
pub enum Next {
    Lease(i64),
    Id(String),
}

impl Place {
    pub fn argument(&self) -> String {
        match self {
            Self::Try => "try".to_owned(),
            Self::Wait => "wait".to_owned(),
            Self::Ahead(ms) => format!("+{ms}"),
            Self::Ticket(ticket) => ticket.to_string(),
        }
    }
}

impl Next {
    pub fn argument(&self) -> String {
        match self {
            Self::Lease(ms) => ms.to_string(),
            Self::Id(next) => next.clone(),
        }
    }
}
