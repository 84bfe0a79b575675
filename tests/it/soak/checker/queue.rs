//! The rules about the order and the length of waits.

use super::super::beliefs::Turn;
use super::super::history::{Call, Moment};
use super::{Case, Violation};

impl Case<'_> {
    /// S3: a request is granted before any request of its group that is queued after it. Exceptions
    /// are larger head starts, adoptions, and positions lost during the wait. Tokens cannot be
    /// compared, because a repeated request for a granted permit gets a newer token.
    fn order_of(&self, turns: &[&Turn]) -> Option<Violation> {
        for (index, first) in turns.iter().enumerate() {
            let Some((from, until)) = first.queued else { continue };
            let mut own = turns.iter().filter(|turn| turn.process == first.process);
            let wait = own.find(|turn| turn.call != Call::TryAcquire).map_or(0, |turn| turn.asked);
            if first.asked - wait < self.bounds.subscribing {
                continue;
            }
            let asked_then = turns[index + 1..].iter().take_while(|second| second.asked < until);
            let of_group = asked_then.filter(|second| second.group == first.group);
            for second in of_group.filter(|second| self.came_after(second, from)) {
                let Some(grant) = second.grant.filter(|grant| grant.at < until) else { continue };
                // A process may be stopped so long that it misses its heartbeats, or loses a permit
                // granted in that time. In both cases, its request also loses its position.
                let circumstances = &self.circumstances;
                let stopped = circumstances.stopped(first.process, first.asked, until);
                let settled_since = first.asked.saturating_sub(self.bounds.reconnecting);
                if stopped < self.bounds.lease / 2
                    && !circumstances.is_disorder(settled_since, until)
                {
                    let (one, other) = (first.name(), second.name());
                    let what = format!("{other} arrived after {one}, and was granted before it");
                    return Some(Violation { rule: "order".to_owned(), at: grant.at, what });
                }
            }
        }
        None
    }

    /// Returns whether this turn's request must be granted after the request that was queued at
    /// `first`. Head starts use the server's clock. If this clock steps back, the tickets are close
    /// together until the clock has caught up. During that time, any head start may overtake all of
    /// them.
    fn came_after(&self, turn: &Turn, first: Moment) -> bool {
        let tickets = &self.circumstances.tickets;
        match turn.call {
            Call::Adopt => false,
            Call::HeadStart => tickets.least(turn.asked) - turn.ahead as i64 > tickets.most(first),
            _ => turn.asked > first,
        }
    }

    pub fn order(&self) -> Vec<Violation> {
        self.semaphores().filter_map(|turns| self.order_of(&turns)).collect()
    }

    /// L1: no request waits forever.
    pub fn waits(&self) -> Vec<Violation> {
        let too_long = |turn: &&Turn| {
            let granted = turn.grant.map(|grant| grant.at);
            let over = granted.or(turn.ended()).unwrap_or(self.circumstances.end);
            let waited = over - turn.asked;
            waited > self.bounds.wait
                && waited
                    > self.bounds.wait + self.circumstances.trouble(turn.process, turn.asked, over)
        };
        let violation = |turn: &Turn| Violation {
            rule: "waits".to_owned(),
            at: turn.asked,
            what: format!("{} waited too long", turn.name()),
        };
        self.turns.iter().filter(too_long).map(violation).collect()
    }
}
