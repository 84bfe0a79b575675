//! Judges a history. Each rule is one function, and knows nothing of how semaphores work.

use std::collections::BTreeMap;

use super::beliefs::{Turn, turns};
use super::history::{Event, Moment, What};

#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// How late a loss may be told: timers, and a machine that is busy.
    pub late: Moment,
    /// How long a request may be on its way to the server when nothing is wrong.
    pub way: Moment,
    /// The longest that anybody may have to wait when nothing is wrong; what was wrong meanwhile
    /// comes on top.
    pub wait: Moment,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Violation {
    pub rule: &'static str,
    pub at: Moment,
    pub what: String,
}

/// What is wrong with this history. Its events are in the order of time.
pub fn judge(events: &[Event], bounds: Bounds) -> Result<Vec<Violation>, String> {
    let case = Case::new(events, bounds)?;
    let rules = [Case::over_admission, Case::tokens, Case::losses, Case::order, Case::waits];
    let mut violations: Vec<_> = rules.iter().flat_map(|rule| rule(&case)).collect();
    violations.sort_by_key(|violation| violation.at);
    Ok(violations)
}

struct Case<'a> {
    events: &'a [Event],
    bounds: Bounds,
    turns: Vec<Turn>,
    died: BTreeMap<u32, Moment>,
    end: Moment,
}

impl<'a> Case<'a> {
    fn new(events: &'a [Event], bounds: Bounds) -> Result<Self, String> {
        let deaths = events.iter().filter(|event| event.what == What::Killed);
        let died = deaths.map(|event| (event.process, event.at)).collect();
        let end = events.last().map_or(0, |event| event.at);
        Ok(Self { events, bounds, turns: turns(events)?, died, end })
    }

    fn semaphores(&self) -> impl Iterator<Item = Vec<&Turn>> {
        let mut by_semaphore: BTreeMap<usize, Vec<&Turn>> = BTreeMap::new();
        for turn in &self.turns {
            by_semaphore.entry(turn.semaphore).or_default().push(turn);
        }
        by_semaphore.into_values()
    }

    /// S1: what is believed to be held is never more than the largest limit that may have been in
    /// force since the oldest of it was asked for.
    fn over_admission(&self) -> Vec<Violation> {
        self.semaphores().filter_map(|turns| self.over_admission_of(&turns)).collect()
    }

    fn over_admission_of(&self, turns: &[&Turn]) -> Option<Violation> {
        let mut steps = Vec::new();
        for turn in turns {
            let died = self.died.get(&turn.process).copied();
            if let Some((from, to)) = turn.belief(died).filter(|(from, to)| from < to) {
                steps.push((from, true, *turn));
                steps.push((to, false, *turn));
            }
        }
        // Whoever ends at the very moment at which another begins is gone.
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
            let limit = self.largest_limit(turn.semaphore, since, at);
            if held > limit {
                let who: Vec<_> =
                    inside.iter().map(|turn| format!("{}/{}", turn.process, turn.number)).collect();
                let (rule, semaphore) = ("over-admission", turn.semaphore);
                let what = format!("{held} of {limit} held of semaphore {semaphore}: {who:?}");
                return Some(Violation { rule, at, what });
            }
        }
        None
    }

    /// A limit may be in force from the moment at which somebody begins to set it, until another
    /// one surely is.
    fn largest_limit(&self, semaphore: usize, from: Moment, to: Moment) -> u64 {
        let mut possible: Vec<u64> = Vec::new();
        let mut largest = 0;
        for event in self.events.iter().take_while(|event| event.at <= to) {
            match event.what {
                What::SetsLimit { semaphore: its, limit } if its == semaphore => {
                    possible.push(limit)
                }
                What::LimitIs { semaphore: its, limit } if its == semaphore => {
                    if event.at > from {
                        largest = possible.iter().fold(largest, |a, b| a.max(*b));
                    }
                    possible = vec![limit];
                }
                _ => {}
            }
        }
        possible.into_iter().fold(largest, u64::max)
    }

    /// S4: whoever asks after another one has its permit gets a larger token.
    fn tokens(&self) -> Vec<Violation> {
        self.semaphores().filter_map(|turns| Self::tokens_of(&turns)).collect()
    }

    fn tokens_of(turns: &[&Turn]) -> Option<Violation> {
        let mut granted: Vec<_> =
            turns.iter().filter_map(|turn| Some((turn, turn.grant?))).collect();
        let mut by_grant = granted.clone();
        by_grant.sort_by_key(|(_, grant)| grant.at);
        granted.sort_by_key(|(turn, _)| turn.asked);
        let (mut earlier, mut highest) = (by_grant.into_iter().peekable(), 0);
        for (turn, grant) in granted {
            while let Some((_, before)) = earlier.next_if(|(_, before)| before.at < turn.asked) {
                highest = highest.max(before.token);
            }
            if grant.token <= highest {
                let what = format!("token {} after {highest}", grant.token);
                return Some(Violation { rule: "tokens", at: grant.at, what });
            }
        }
        None
    }

    /// A loss is told at the deadline.
    fn losses(&self) -> Vec<Violation> {
        let late = |turn: &&Turn| {
            let Some(grant) = turn.grant else { return false };
            let due = grant.until + self.bounds.late;
            let told = turn.ended.unwrap_or(self.end);
            told > due && self.own_trouble(turn.process, grant.until, told) == 0
        };
        let violation = |turn: &Turn| Violation {
            rule: "losses",
            at: turn.grant.map_or(turn.asked, |grant| grant.until),
            what: format!("{}/{} was not told in time", turn.process, turn.number),
        };
        self.turns.iter().filter(late).map(violation).collect()
    }

    /// S3: whoever asked first gets its permit first, unless something was wrong meanwhile.
    fn order(&self) -> Vec<Violation> {
        self.semaphores().filter_map(|turns| self.order_of(&turns)).collect()
    }

    fn order_of(&self, turns: &[&Turn]) -> Option<Violation> {
        let granted: Vec<_> = turns.iter().filter_map(|turn| Some((*turn, turn.grant?))).collect();
        for (index, (first, its_grant)) in granted.iter().enumerate() {
            let surely_later =
                |(second, _): &&(&Turn, _)| second.asked > first.asked + self.bounds.way;
            // Whoever asked after it had its permit did not have to wait behind it.
            let while_it_waited = |(second, _): &&(&Turn, _)| second.asked < its_grant.at;
            let later =
                granted[index + 1..].iter().take_while(while_it_waited).filter(surely_later);
            for (second, grant) in later {
                let until = second.asked + self.bounds.way;
                if grant.token < its_grant.token
                    && self.trouble(first.process, first.asked, until.max(its_grant.at)) == 0
                {
                    let (one, other) =
                        ((first.process, first.number), (second.process, second.number));
                    let what = format!("{other:?} asked after {one:?}, and was let in before it");
                    return Some(Violation { rule: "order", at: grant.at, what });
                }
            }
        }
        None
    }

    /// L1: nobody waits for ever.
    fn waits(&self) -> Vec<Violation> {
        let too_long = |turn: &&Turn| {
            let over = turn.grant.map(|grant| grant.at).or(turn.ended);
            let died = self.died.get(&turn.process).copied();
            let over = over.or(died).unwrap_or(self.end);
            over - turn.asked > self.bounds.wait + self.trouble(turn.process, turn.asked, over)
        };
        let violation = |turn: &Turn| Violation {
            rule: "waits",
            at: turn.asked,
            what: format!("{}/{} waited too long", turn.process, turn.number),
        };
        self.turns.iter().filter(too_long).map(violation).collect()
    }

    /// For how much of that time something was wrong, for all or for this process.
    fn trouble(&self, process: u32, from: Moment, to: Moment) -> Moment {
        let begins = |event: &Event| match event.what {
            What::Stopped => event.process == process,
            What::Fault { .. } => true,
            _ => false,
        };
        let ends = |event: &Event| match event.what {
            What::Continued => event.process == process,
            What::Healed { .. } => true,
            _ => false,
        };
        self.time_between(begins, ends, from, to)
    }

    /// For how much of that time the process was stopped or dead.
    fn own_trouble(&self, process: u32, from: Moment, to: Moment) -> Moment {
        let begins = |event: &Event| {
            event.process == process && matches!(event.what, What::Stopped | What::Killed)
        };
        let ends = |event: &Event| event.process == process && event.what == What::Continued;
        self.time_between(begins, ends, from, to)
    }

    fn time_between(
        &self,
        begins: impl Fn(&Event) -> bool,
        ends: impl Fn(&Event) -> bool,
        from: Moment,
        to: Moment,
    ) -> Moment {
        let (mut depth, mut since, mut time) = (0_u32, 0, 0);
        let overlap = |since: Moment, until: Moment| until.min(to).saturating_sub(since.max(from));
        for event in self.events {
            if begins(event) {
                if depth == 0 {
                    since = event.at;
                }
                depth += 1;
            } else if ends(event) && depth > 0 {
                depth -= 1;
                if depth == 0 {
                    time += overlap(since, event.at);
                }
            }
        }
        if depth > 0 { time + overlap(since, to) } else { time }
    }
}
