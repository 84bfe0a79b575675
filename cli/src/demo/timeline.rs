//! The whole run as a picture: a row for each worker, with time from left to right.

use std::time::Duration;

use crate::demo::history::{History, Span};
use crate::demo::moment::Moment;
use crate::demo::plan::{self, WORKERS};
use crate::paint::Paint;

/// The number of characters in a row. Each character shows two moments with half blocks.
const CELLS: u32 = 60;

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Holds,
    Waits,
    /// The worker is dead, but its lease has not expired, so no other worker can have its permit.
    Haunts,
    Away,
}

pub fn draw(history: &History, paint: Paint) -> Vec<String> {
    let back = history.permit_came_back().map(|step| step.at);
    let timeline = Timeline { history, length: history.ended() - history.began, back };
    let mut lines: Vec<_> = (0..WORKERS).map(|worker| timeline.row(worker, paint)).collect();
    lines.push(format!("{:10}{}", "at once", timeline.counts()));
    lines.push(paint.faint(&format!("{:10}{}", "seconds", timeline.axis())));
    lines.push(format!(
        "{:10}{} holds  · waits  {} killed  {} dead, but its lease has not expired",
        "",
        paint.green("█"),
        paint.red("✗"),
        paint.red("░")
    ));
    lines
}

struct Timeline<'a> {
    history: &'a History,
    length: Duration,
    /// When another worker got the permit of the killed worker.
    back: Option<Moment>,
}

impl Timeline<'_> {
    /// Returns the moment that is this many quarters of a cell from the left.
    fn moment(&self, quarters: u32) -> Moment {
        self.history.began.plus(self.length * quarters / (4 * CELLS))
    }

    fn cell_of(&self, moment: Moment) -> u32 {
        let share = (moment - self.history.began).as_secs_f64() / self.length.as_secs_f64();
        (share * f64::from(CELLS)) as u32
    }

    fn row(&self, worker: usize, paint: Paint) -> String {
        let cells: String = (0..CELLS).map(|cell| self.cell(worker, cell, paint)).collect();
        let pages = self.history.finished_by(worker);
        format!("{:10}{cells}  {pages:2} pages", plan::name_of(worker))
    }

    fn cell(&self, worker: usize, cell: u32, paint: Paint) -> String {
        let death = self.history.kill.filter(|kill| kill.worker == worker);
        if death.is_some_and(|kill| self.cell_of(kill.at) == cell) {
            return paint.red("✗");
        }
        let left = self.state(worker, self.moment(4 * cell + 1));
        let right = self.state(worker, self.moment(4 * cell + 3));
        match (left, right) {
            (State::Holds, State::Holds) => paint.green("█"),
            (State::Holds, _) => paint.green("▌"),
            (_, State::Holds) => paint.green("▐"),
            (State::Haunts, _) => paint.red("░"),
            (State::Waits, _) | (_, State::Waits) => "·".to_owned(),
            _ => " ".to_owned(),
        }
    }

    fn state(&self, worker: usize, moment: Moment) -> State {
        let now = |span: &&Span| {
            let has_ended = self.history.end_of(span).is_some_and(|end| end <= moment);
            span.worker == worker && span.begin <= moment && !has_ended
        };
        let death = self.history.kill.filter(|kill| kill.worker == worker).map(|kill| kill.at);
        let is_dead = death.is_some_and(|death| death <= moment);
        if is_dead && self.back.is_none_or(|back| moment < back) {
            State::Haunts
        } else if self.history.holds.iter().any(|span| now(&span)) {
            State::Holds
        } else if self.history.waits.iter().any(|span| now(&span)) {
            State::Waits
        } else {
            State::Away
        }
    }

    /// Returns the largest number of holders in each cell.
    fn counts(&self) -> String {
        let steps = self.history.steps();
        let most = |cell| {
            let (from, to) = (self.moment(4 * cell), self.moment(4 * cell + 4));
            let before = steps.iter().rev().find(|step| step.at <= from);
            let within = steps.iter().filter(|step| step.at > from && step.at < to);
            before.into_iter().chain(within).map(|step| step.holders).max().unwrap_or(0)
        };
        (0..CELLS).map(|cell| most(cell).to_string()).collect()
    }

    fn axis(&self) -> String {
        let mut axis = String::new();
        for second in 0..=self.length.as_secs() {
            let cell = self.cell_of(self.history.began.plus(Duration::from_secs(second))) as usize;
            axis += &" ".repeat(cell.saturating_sub(axis.len()));
            axis += &second.to_string();
        }
        axis
    }
}
