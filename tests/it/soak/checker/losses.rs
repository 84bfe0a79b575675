//! The rules about losses of permits.

use super::super::beliefs::{End, Turn};
use super::super::history::Moment;
use super::{Case, Violation};

impl Case<'_> {
    /// A loss is reported at the deadline, if the process runs.
    pub fn reported_late(&self) -> Vec<Violation> {
        let is_late = |turn: &&Turn| {
            let Some(grant) = turn.grant else { return false };
            let reported = turn.ended().unwrap_or(self.circumstances.end);
            let stopped = self.circumstances.stopped(turn.process, grant.until, reported);
            reported > grant.until + self.bounds.late + stopped
        };
        let violation = |turn: &Turn| Violation {
            rule: "losses".to_owned(),
            at: turn.grant.map_or(turn.asked, |grant| grant.until),
            what: format!("the loss of {} was not reported in time", turn.name()),
        };
        self.turns.iter().filter(is_late).map(violation).collect()
    }

    /// S2: a permit ends only by a call with its ID, or when its lease expires.
    pub fn taken_away(&self) -> Vec<Violation> {
        let violation = |turn: &Turn| {
            let grant = turn.grant?;
            // Between these moments, the process found out that the server does not have the
            // permit.
            let (asked, at, what) = match (turn.end?, turn.released) {
                ((at, End::Lost), _) => (at, at, "found out about a loss"),
                ((asked, End::Released(_)), Some((at, false))) => {
                    (asked, at, "released a permit that was no longer held")
                }
                _ => return None,
            };
            let is_explained = |(from, to): (Moment, Moment)| from <= at && asked <= to;
            if at >= grant.until || self.doubts(turn).any(is_explained) {
                return None;
            }
            let what = format!("{} {what} before the end of its lease", turn.name());
            Some(Violation { rule: "taken away".to_owned(), at, what })
        };
        self.turns.iter().filter_map(violation).collect()
    }
}
