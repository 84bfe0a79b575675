//! The rules about grants and their tokens.

use std::collections::BTreeMap;

use super::super::GROUP_CAP;
use super::super::beliefs::{End, Turn};
use super::super::circumstances::Circumstances;
use super::super::history::{Call, Moment};
use super::{Case, Violation};

impl Case<'_> {
    /// S1: the weight held never exceeds the largest limit that was possible since the oldest
    /// holder's request.
    pub fn over_admission(&self) -> Vec<Violation> {
        let limit =
            |turn: &Turn, since, at| self.circumstances.largest_limit(turn.semaphore, since, at);
        let rule = "over-admission";
        self.semaphores().filter_map(|turns| self.too_much(rule, &turns, limit)).collect()
    }

    /// G23: the weight that a group holds never exceeds its cap.
    pub fn caps(&self) -> Vec<Violation> {
        let mut by_group: BTreeMap<_, Vec<&Turn>> = BTreeMap::new();
        for turn in self.turns.iter().filter(|turn| turn.group > 0) {
            by_group.entry((turn.semaphore, turn.group)).or_default().push(turn);
        }
        let cap = |_: &Turn, _, _| GROUP_CAP.into();
        by_group.into_values().filter_map(|turns| self.too_much("caps", &turns, cap)).collect()
    }

    /// Returns the first moment at which the turns held more than `limit`.
    fn too_much(
        &self,
        rule: &str,
        turns: &[&Turn],
        limit: impl Fn(&Turn, Moment, Moment) -> u64,
    ) -> Option<Violation> {
        let mut steps = Vec::new();
        for turn in turns {
            for (from, to) in self.sure_beliefs(turn) {
                steps.push((from, true, *turn));
                steps.push((to, false, *turn));
            }
        }
        // If one belief ends at the moment at which another belief begins, the end comes first.
        steps.sort_by_key(|(at, begins, _)| (*at, *begins));
        let mut inside: Vec<&Turn> = Vec::new();
        for (at, begins, turn) in steps {
            if !begins {
                inside.retain(|other| !std::ptr::eq(*other, turn));
                continue;
            }
            inside.push(turn);
            let held: u64 = inside.iter().map(|turn| turn.weight).sum();
            let since = inside.iter().map(|turn| turn.asked).min().unwrap_or(at);
            let limit = limit(turn, since, at);
            if held > limit {
                let who: Vec<_> = inside.iter().map(|turn| turn.name()).collect();
                let (rule, semaphore) = (rule.to_owned(), turn.semaphore);
                let what = format!("{held} of {limit} held of semaphore {semaphore}: {who:?}");
                return Some(Violation { rule, at, what });
            }
        }
        None
    }

    /// A permit that is transferred has one holder at a time.
    pub fn one_holder(&self) -> Vec<Violation> {
        let mut by_permit: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for turn in &self.turns {
            if let Some(permit) = turn.permit() {
                let beliefs = self.sure_beliefs(turn).into_iter().map(|belief| (belief, turn));
                by_permit.entry(permit).or_default().extend(beliefs);
            }
        }
        let violation = |mut beliefs: Vec<((Moment, Moment), &Turn)>| {
            beliefs.sort_by_key(|(belief, _)| *belief);
            let both = beliefs.windows(2).find(|both| both[1].0.0 < both[0].0.1)?;
            let names = both.iter().map(|(_, turn)| turn.name()).collect::<Vec<_>>();
            let what = format!("{} hold the same permit", names.join(" and "));
            Some(Violation { rule: "one holder".to_owned(), at: both[1].0.0, what })
        };
        by_permit.into_values().filter_map(violation).collect()
    }

    /// Returns the times in which the weight of the turn counts:
    ///
    /// - while the process believes that it holds the permit, except when the server may have lost
    ///   the permit unnoticed,
    /// - after a forget, until the next limit is set,
    /// - for a permit left to expire, until its lease expires.
    fn sure_beliefs(&self, turn: &Turn) -> Vec<(Moment, Moment)> {
        let Some((from, mut to)) = turn.belief() else {
            return Vec::new();
        };
        let mut doubts: Vec<_> = self.doubts(turn).collect();
        doubts.sort_unstable();
        if let Some((began, ended)) = turn.consumed().filter(|_| doubts.is_empty()) {
            let until = self.circumstances.consumed_until(turn.semaphore, began, ended);
            to = until.unwrap_or(to).max(to);
        }
        to = to.max(self.left_until(turn).unwrap_or(to));
        let (mut sure, mut rest) = (Vec::new(), from);
        for (begins, ends) in doubts {
            sure.push((rest, begins.min(to)));
            rest = rest.max(ends);
        }
        sure.push((rest, to));
        sure.retain(|(from, to)| from < to);
        sure
    }

    /// Returns the expiry of a permit that was left to expire. If `let_expire` was confirmed, the
    /// lease starts with that call. Otherwise, the lease starts with the last refresh. If the
    /// server may have lost the permit earlier, returns the moment of that loss.
    fn left_until(&self, turn: &Turn) -> Option<Moment> {
        let (left, end) = turn.end?;
        let began = match (end, turn.released) {
            (End::Released(how), Some((_, true))) if how.leaves() => left,
            (End::Released(how), None) if how.leaves() => {
                turn.grant?.until.saturating_sub(self.bounds.lease)
            }
            _ => return None,
        };
        let lost = self.circumstances.unsettled(turn).filter(|case| case.at > began);
        let until = began + self.bounds.lease - self.bounds.tick;
        lost.map(|case| case.since).chain([until]).min()
    }

    /// Returns the times in which the permit may have been lost on the server without the holder's
    /// knowledge. Each of these times ends at a later refresh, and lasts at most one refresh
    /// interval. An offered permit may also be lost, because another process may have adopted and
    /// released it.
    pub fn doubts(&self, turn: &Turn) -> impl Iterator<Item = (Moment, Moment)> {
        let due = |at, held_up| {
            let refresh = self.bounds.lease / 3 + self.bounds.way;
            self.circumstances.done_by(turn.process, at, refresh, held_up)
        };
        let lost = self.circumstances.unsettled(turn).map(move |case| {
            let asked_later = |until: Moment| until.saturating_sub(self.bounds.lease) > case.at;
            let refreshed = turn.refreshes.iter().find(|refresh| asked_later(refresh.until));
            // The fault lasts until `case.at`.
            let due = due(case.at, Circumstances::slow);
            (case.since, refreshed.map_or(due, |refresh| refresh.at.min(due)))
        });
        let reported = |at| due(at, Circumstances::slow).max(due(at, Circumstances::trouble));
        let adopted = turn.adopted.map_or(self.circumstances.end, reported);
        lost.chain(turn.offered.map(|at| (at, adopted)))
    }

    /// S4: a request made after the grant of another request gets a larger token. Only an adopted
    /// permit keeps its token.
    pub fn tokens(&self) -> Vec<Violation> {
        self.semaphores().filter_map(|turns| Self::tokens_of(&turns)).collect()
    }

    fn tokens_of(turns: &[&Turn]) -> Option<Violation> {
        let anew = turns.iter().filter(|turn| turn.call != Call::Adopt);
        let mut granted: Vec<_> = anew.filter_map(|turn| Some((turn, turn.grant?))).collect();
        let mut by_grant = granted.clone();
        by_grant.sort_by_key(|(_, grant)| grant.at);
        granted.sort_by_key(|(turn, _)| turn.asked);
        let (mut earlier, mut highest) = (by_grant.into_iter().peekable(), 0);
        for (turn, grant) in granted {
            while let Some((_, before)) = earlier.next_if(|(_, before)| before.at < turn.asked) {
                highest = highest.max(before.token);
            }
            if grant.token <= highest {
                let what = format!("{} has token {} after {highest}", turn.name(), grant.token);
                return Some(Violation { rule: "tokens".to_owned(), at: grant.at, what });
            }
        }
        None
    }
}
