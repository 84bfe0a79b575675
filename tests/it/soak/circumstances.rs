//! The circumstances of the turns: when faults were active, which limits were possible, and which
//! permits the server may have lost.

use std::collections::BTreeMap;

use super::RESPONSE_TIMEOUT;
use super::beliefs::Turn;
use super::history::{ALL, Event, Moment, What};
use super::tickets::Tickets;

type Span = (Moment, Moment);

pub struct Circumstances {
    /// The times of faults that affect all processes, disjoint and ordered.
    faults: Vec<Span>,
    /// The times of the faults during which waiters may also have lost their positions.
    disorder: Vec<Span>,
    /// The times in which a process was stopped or did not run.
    stops: BTreeMap<u32, Vec<Span>>,
    /// The times in which the server replied slowly.
    slow: Vec<Span>,
    limits: BTreeMap<usize, Vec<Limit>>,
    unsettled: BTreeMap<usize, Vec<Unsettled>>,
    pub tickets: Tickets,
    pub end: Moment,
}

/// A limit, which was possible from the start of the call that set it until another limit was
/// certainly effective.
struct Limit {
    from: Moment,
    to: Moment,
    limit: u64,
    /// The moment from which the limit was certainly effective.
    sure: Moment,
}

/// Permits with tokens up to `token` may have been lost on the server in this time.
#[derive(Debug, Clone, Copy)]
pub struct Unsettled {
    pub since: Moment,
    pub at: Moment,
    pub token: u64,
}

impl Circumstances {
    pub fn new(events: &[Event]) -> Self {
        let end = events.last().map_or(0, |event| event.at);
        let mut faults = Spans::default();
        let mut disorder = Spans::default();
        let mut slow = Spans::default();
        let mut stops: BTreeMap<u32, Spans> = BTreeMap::new();
        let mut limits: BTreeMap<usize, Vec<Limit>> = BTreeMap::new();
        let mut unsettled: BTreeMap<usize, Vec<Unsettled>> = BTreeMap::new();
        for Event { at, process, what } in events {
            match *what {
                What::Fault { spoils_order, .. } => {
                    faults.begin(*at);
                    if spoils_order {
                        disorder.begin(*at);
                    }
                }
                What::Healed { .. } => {
                    faults.end(*at);
                    disorder.end(*at);
                }
                What::Stopped => stops.entry(*process).or_default().begin(*at),
                What::Continued | What::Killed => stops.entry(*process).or_default().end(*at),
                What::Stalled { since } if *process == ALL => faults.add(since, *at),
                What::Slow { since } => {
                    slow.add(since, *at);
                    // If a reply takes this long, clients consider their connections lost, so they
                    // also lose their positions.
                    if u128::from(*at - since) > RESPONSE_TIMEOUT.as_nanos() / 2 {
                        faults.add(since, *at);
                        disorder.add(since, *at);
                    }
                }
                What::Stalled { since } => stops.entry(*process).or_default().add(since, *at),
                What::SetsLimit { semaphore, limit } => {
                    let (to, sure) = (Moment::MAX, Moment::MAX);
                    let possible = Limit { from: *at, to, limit, sure };
                    limits.entry(semaphore).or_default().push(possible);
                }
                What::LimitIs { semaphore, .. } => {
                    // The newest limit is effective, and all others are no longer possible.
                    let mut newest_first = limits.entry(semaphore).or_default().iter_mut().rev();
                    if let Some(newest) = newest_first.next() {
                        newest.sure = *at;
                    }
                    newest_first
                        .take_while(|limit| limit.to == Moment::MAX)
                        .for_each(|limit| limit.to = *at);
                }
                What::Unsettled { semaphore, since, token } => {
                    let case = Unsettled { since, at: *at, token };
                    unsettled.entry(semaphore).or_default().push(case);
                }
                _ => {}
            }
        }
        let faults = faults.done(end);
        let disorder = disorder.done(end);
        let slow = slow.done(end);
        let stops = stops.into_iter().map(|(process, spans)| (process, spans.done(end))).collect();
        let tickets = Tickets::new(events);
        Self { faults, disorder, stops, slow, limits, unsettled, tickets, end }
    }

    /// Returns how long this process was stopped in this time.
    pub fn stopped(&self, process: u32, from: Moment, to: Moment) -> Moment {
        self.stops.get(&process).map_or(0, |spans| overlap(spans, from, to))
    }

    /// Returns how long the server was slow or this process was stopped in this time.
    pub fn slow(&self, process: u32, from: Moment, to: Moment) -> Moment {
        overlap(&self.slow, from, to) + self.stopped(process, from, to)
    }

    /// Returns how long faults affected this process in this time.
    pub fn trouble(&self, process: u32, from: Moment, to: Moment) -> Moment {
        overlap(&self.faults, from, to) + self.stopped(process, from, to)
    }

    /// Returns the moment by which a process has finished work of this duration. Delays extend the
    /// work, and delays during the extension extend it further.
    pub fn done_by(
        &self,
        process: u32,
        from: Moment,
        takes: Moment,
        held_up: fn(&Self, u32, Moment, Moment) -> Moment,
    ) -> Moment {
        let mut by = from + takes;
        loop {
            let later = from + takes + held_up(self, process, from, by);
            if later == by {
                return by;
            }
            by = later;
        }
    }

    /// Returns whether positions in the queue may have been lost in this time.
    pub fn is_disorder(&self, from: Moment, to: Moment) -> bool {
        overlap(&self.disorder, from, to) > 0
    }

    /// Returns the largest limit that was possible in this time.
    pub fn largest_limit(&self, semaphore: usize, from: Moment, to: Moment) -> u64 {
        let limits = self.limits.get(&semaphore).map_or(&[][..], |limits| limits);
        let until_then = limits.partition_point(|limit| limit.from <= to);
        // If a limit was no longer possible at `from`, no earlier limit was possible either.
        let possible = limits[..until_then].iter().rev().take_while(|limit| limit.to > from);
        possible.map(|limit| limit.limit).max().unwrap_or(0)
    }

    /// If a permit was forgotten between these moments, returns the moment until which it reduces
    /// the limit. A newly set limit does not include the reduction. Returns `None` if a limit may
    /// have been set at the same time.
    pub fn consumed_until(&self, semaphore: usize, from: Moment, to: Moment) -> Option<Moment> {
        let limits = self.limits.get(&semaphore).map_or(&[][..], |limits| limits);
        let next = limits.partition_point(|limit| limit.from <= from);
        let is_settled = next == 0 || limits[next - 1].sure <= from;
        let until = limits.get(next).map_or(self.end, |limit| limit.from);
        (is_settled && until > to).then_some(until)
    }

    /// Returns whether the server may have lost writes made in this time.
    pub fn may_have_lost_data(&self, from: Moment, to: Moment) -> bool {
        self.unsettled.values().flatten().any(|case| case.since <= to && from <= case.at)
    }

    /// Returns the times in which the server may have lost this permit without the holder's
    /// knowledge.
    pub fn unsettled(&self, turn: &Turn) -> impl Iterator<Item = Unsettled> {
        let all = self.unsettled.get(&turn.semaphore).map_or(&[][..], |all| all);
        let (asked, token) = (turn.asked, turn.grant.map_or(0, |grant| grant.token));
        all.iter().copied().filter(move |case| asked < case.at && token <= case.token)
    }
}

#[derive(Default)]
struct Spans {
    begun: Option<Moment>,
    spans: Vec<Span>,
}

impl Spans {
    fn begin(&mut self, at: Moment) {
        self.begun.get_or_insert(at);
    }

    fn end(&mut self, at: Moment) {
        if let Some(begun) = self.begun.take() {
            self.add(begun, at);
        }
    }

    fn add(&mut self, from: Moment, to: Moment) {
        self.spans.push((from, to));
    }

    /// Returns the times, disjoint and ordered.
    fn done(mut self, end: Moment) -> Vec<Span> {
        self.end(end);
        self.spans.sort_unstable();
        let mut merged: Vec<Span> = Vec::new();
        for (from, to) in self.spans {
            match merged.last_mut() {
                Some((_, last)) if from <= *last => *last = to.max(*last),
                _ => merged.push((from, to)),
            }
        }
        merged
    }
}

fn overlap(spans: &[Span], from: Moment, to: Moment) -> Moment {
    let first = spans.partition_point(|(_, until)| *until <= from);
    let rest = spans[first..].iter().take_while(|(since, _)| *since < to);
    rest.map(|(since, until)| (*until).min(to).saturating_sub((*since).max(from))).sum()
}
