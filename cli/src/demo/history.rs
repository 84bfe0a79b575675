//! The events of this run, from the reports of all workers.

use std::time::Duration;

use crate::demo::moment::Moment;
use crate::demo::plan::{LIMIT, WORKERS};
use crate::demo::report::{Report, What};

pub struct History {
    pub began: Moment,
    pub waits: Vec<Span>,
    pub holds: Vec<Span>,
    /// How many times a worker began a page. If the worker of a page is killed, another worker
    /// begins the page again.
    pub begun: u32,
    /// How many times a worker finished a page that had been finished before.
    pub repeats: u32,
    /// How many pages were put back because a permit was lost.
    pub put_back: u32,
    pub kill: Option<Kill>,
    /// The page that each worker works on.
    pages: [Option<Page>; WORKERS],
    /// How many pages each worker has finished.
    finished: [u32; WORKERS],
}

/// The time in which a worker waits for a permit, or holds a permit. A current span has no end.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    pub worker: usize,
    pub begin: Moment,
    pub end: Option<Moment>,
    /// Whether the worker lost the permit that it held in this span.
    pub is_lost: bool,
}

impl Span {
    fn from(worker: usize, begin: Moment) -> Self {
        Self { worker, begin, end: None, is_lost: false }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Page {
    pub number: u32,
    pub begun: Moment,
}

/// The end of the worker that the supervisor killed.
#[derive(Debug, Clone, Copy)]
pub struct Kill {
    pub worker: usize,
    pub at: Moment,
    pub page: u32,
    /// A lower bound of the time from the kill to the expiry of the killed worker's lease.
    pub lease_left: Duration,
}

/// A change of the number of holders: its time, the worker that caused it, and the new number.
pub struct Step {
    pub at: Moment,
    pub worker: usize,
    pub holders: u32,
}

impl History {
    pub fn new() -> Self {
        let (waits, holds, pages, finished) = Default::default();
        let (begun, repeats, put_back, kill) = Default::default();
        Self { began: Moment::now(), waits, holds, begun, repeats, put_back, kill, pages, finished }
    }

    pub fn note(&mut self, worker: usize, Report { at, what }: Report) {
        match what {
            What::Waits => self.waits.push(Span::from(worker, at)),
            What::Holds => {
                end_last(&mut self.waits, worker, at, false);
                self.holds.push(Span::from(worker, at));
            }
            What::Leaves => end_last(&mut self.holds, worker, at, false),
            What::Loses => end_last(&mut self.holds, worker, at, true),
            What::Begins(number) => {
                self.begun += 1;
                self.pages[worker] = Some(Page { number, begun: at });
                return;
            }
            What::Finishes(_) => self.finished[worker] += 1,
            What::Repeats(_) => self.repeats += 1,
            What::PutsBack(_) => self.put_back += 1,
        }
        self.pages[worker] = None;
    }

    pub fn page_of(&self, worker: usize) -> Option<Page> {
        self.pages[worker]
    }

    pub fn finished_by(&self, worker: usize) -> u32 {
        self.finished[worker]
    }

    pub fn is_dead(&self, worker: usize) -> bool {
        self.kill.is_some_and(|kill| kill.worker == worker)
    }

    /// Returns the end of a span. A killed worker cannot report the end, so its span ends with the
    /// kill.
    pub fn end_of(&self, span: &Span) -> Option<Moment> {
        let death = self.kill.filter(|kill| kill.worker == span.worker).map(|kill| kill.at);
        span.end.or(death)
    }

    /// Returns the time of the last release.
    pub fn ended(&self) -> Moment {
        let ends = self.holds.iter().filter_map(|hold| self.end_of(hold));
        ends.max().unwrap_or(self.began)
    }

    /// Returns the number of workers with a permit after each change.
    pub fn steps(&self) -> Vec<Step> {
        let begins = self.holds.iter().map(|hold| (hold.begin, true, hold.worker));
        let ends =
            self.holds.iter().filter_map(|hold| Some((self.end_of(hold)?, false, hold.worker)));
        let mut changes: Vec<_> = begins.chain(ends).collect();
        changes.sort_by_key(|(at, ..)| *at);

        let mut holders = 0;
        let step = |(at, is_begin, worker)| {
            holders = if is_begin { holders + 1 } else { holders - 1 };
            Step { at, worker, holders }
        };
        changes.into_iter().map(step).collect()
    }

    /// Returns when the permit of the killed worker was granted again, and to which worker. From
    /// then on, as many workers hold a permit as before the kill.
    pub fn permit_came_back(&self) -> Option<Step> {
        let kill = self.kill?;
        self.steps().into_iter().find(|step| step.at > kill.at && step.holders >= LIMIT)
    }
}

/// Ends the last span of a worker, unless that span has already ended. A worker that loses its
/// permit reports the loss first, and later the release. The loss has then already ended the span.
fn end_last(spans: &mut [Span], worker: usize, at: Moment, is_lost: bool) {
    if let Some(span) = spans.iter_mut().rev().find(|span| span.worker == worker) {
        span.end.get_or_insert(at);
        span.is_lost |= is_lost;
    }
}
