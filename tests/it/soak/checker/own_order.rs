//! The rule about a process's own order: a permit that the process gives up is free for the next
//! call of the process.

use super::super::history::{Moment, What};
use super::{Case, Violation};

impl Case<'_> {
    /// A server that has lost its last writes may still have the permit that was given up. If the
    /// server has just lost its scripts, a release takes one more round trip.
    pub fn own_order(&self) -> Vec<Violation> {
        let violations = self.events.iter().filter_map(|event| {
            let What::Overtaken { since } = event.what else { return None };
            let is_excused = self.circumstances.may_have_lost_data(since, event.at)
                || self.forgets_scripts(since.saturating_sub(self.bounds.way), event.at);
            let what = format!("a call of process {} overtook a drop", event.process);
            (!is_excused).then(|| Violation { rule: "own order".to_owned(), at: event.at, what })
        });
        violations.collect()
    }

    fn forgets_scripts(&self, from: Moment, to: Moment) -> bool {
        let is_so =
            |what: &What| matches!(what, What::Fault { kind, .. } if kind == "ForgetScripts");
        let mut then = self.events.iter().filter(|event| (from..=to).contains(&event.at));
        then.any(|event| is_so(&event.what))
    }
}
