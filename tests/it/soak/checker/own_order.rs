//! What a process gives up is free for its next call.

use super::super::history::What;
use super::{Case, Violation};

impl Case<'_> {
    /// A server that has lost its last writes may still have the permit that was given up.
    pub fn own_order(&self) -> Vec<Violation> {
        let violations = self.events.iter().filter_map(|event| {
            let What::Overtaken { since } = event.what else { return None };
            let is_excused = self.circumstances.may_have_lost_data(since, event.at);
            let what = format!("a call of process {} overtook a drop", event.process);
            (!is_excused).then(|| Violation { rule: "own order".to_owned(), at: event.at, what })
        });
        violations.collect()
    }
}
