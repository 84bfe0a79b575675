//! How it is waited.

use super::super::beliefs::Turn;
use super::super::history::{Call, Moment};
use super::{Case, Violation};

impl Case<'_> {
    /// S3: whoever asks after another one was in the queue gets nothing as long as that one is,
    /// unless it has a head start of more than that, adopts a permit, or places were lost
    /// meanwhile. (Tokens do not tell: who asks again for what was just
    /// granted gets a newer one.)
    fn order_of(&self, turns: &[&Turn]) -> Option<Violation> {
        for (index, first) in turns.iter().enumerate() {
            let Some((from, until)) = first.queued else { continue };
            let asked_then = turns[index + 1..].iter().take_while(|second| second.asked < until);
            for second in asked_then.filter(|second| self.came_after(second, from)) {
                let Some(grant) = second.grant.filter(|grant| grant.at < until) else { continue };
                // A process that is stopped for so long that it is not heard of, or that it loses
                // what it was granted meanwhile, loses its place, too.
                let circumstances = &self.circumstances;
                let stopped = circumstances.stopped(first.process, first.asked, until);
                let settled_since = first.asked.saturating_sub(self.bounds.reconnecting);
                if stopped < self.bounds.lease / 2
                    && !circumstances.is_disorder(settled_since, until)
                {
                    let (one, other) = (first.name(), second.name());
                    let what = format!("{other} asked after {one}, and was let in before it");
                    return Some(Violation { rule: "order".to_owned(), at: grant.at, what });
                }
            }
        }
        None
    }

    /// After one that was in the queue by then. Head starts go by the server's clock: all who come
    /// while one that was set back has not caught up count as having come together.
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

    /// L1: nobody waits for ever.
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
