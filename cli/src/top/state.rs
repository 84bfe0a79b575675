//! What `top` knows and shows: plain data. `update.rs` changes it, `draw/` draws it.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use ratatui::layout::Size;
use ratatui::style::{Color, Style};

use crate::pattern::Pattern;
use crate::survey::Summary;
use crate::top::cursor::{Cursor, page};
use crate::top::dialogue::Dialogue;
use crate::top::history::{self, History};
use crate::top::look::Look;
use crate::top::options::Top;
use crate::top::schedule;

/// Lines of the screen that are no rows of the list: title, head of the table, two of notices,
/// keys.
const OTHER_LINES: u16 = 5;

#[derive(Debug, Clone, Copy)]
pub struct Moment {
    pub instant: Instant,
    pub time: SystemTime,
}

pub struct State {
    pub prefix: String,
    pub pattern: Option<Pattern>,
    pub every: Duration,
    /// Of the histories.
    pub began: Instant,
    pub size: Size,
    pub has_colours: bool,
    pub rows: BTreeMap<String, Row>,
    pub sort: Sort,
    pub cursor: Cursor,
    pub open: Option<Open>,
    pub dialogue: Option<Dialogue>,
    /// What came of the last change.
    pub message: Option<String>,
    pub contact: Contact,
    /// `None` while an answer is awaited.
    pub names_due: Option<Instant>,
    /// `None` until there was one.
    pub list: Option<List>,
    pub looks_under_way: usize,
}

/// When all names were told last, and why they are not now.
#[derive(Debug)]
pub struct List {
    pub last: SystemTime,
    pub trouble: Option<String>,
}

/// A semaphore in the list.
#[derive(Debug, Default)]
pub struct Row {
    /// Or why it cannot be read.
    pub summary: Option<Result<Summary, String>>,
    /// Why the last look had no answer: what is known is of an earlier one.
    pub trouble: Option<String>,
    pub looked_at: Option<Instant>,
    pub is_asked: bool,
    pub history: History,
}

/// The semaphore that was opened.
#[derive(Debug)]
pub struct Open {
    pub name: String,
    pub look: Option<Result<Look, String>>,
    pub cursor: Cursor,
}

/// When Redis last answered anything, and why a call since then had no answer.
#[derive(Debug)]
pub struct Contact {
    pub last: Moment,
    pub trouble: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sort {
    pub column: Column,
    pub is_reversed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    Name,
    Share,
    Queued,
    LongestWait,
}

impl Moment {
    pub fn now() -> Self {
        Self { instant: Instant::now(), time: SystemTime::now() }
    }
}

impl State {
    pub fn new(prefix: &str, asked: &Top, size: Size) -> Self {
        let now = Moment::now();
        Self {
            prefix: prefix.to_owned(),
            pattern: asked.pattern.clone(),
            every: asked.every,
            began: now.instant,
            size,
            has_colours: false,
            rows: BTreeMap::new(),
            sort: Sort { column: Column::Name, is_reversed: false },
            cursor: Cursor::default(),
            open: None,
            dialogue: None,
            message: None,
            contact: Contact { last: now, trouble: None },
            names_due: Some(now.instant),
            list: None,
            looks_under_way: 0,
        }
    }

    /// A color, where there are some.
    pub fn coloured(&self, color: Color) -> Style {
        if self.has_colours { Style::new().fg(color) } else { Style::new() }
    }

    /// The length of a part of the histories.
    pub fn part(&self) -> Duration {
        history::part(self.every * schedule::OTHERS)
    }

    /// The number of the part of the histories that it is in.
    pub fn part_of(&self, now: Instant) -> u64 {
        let passed = now.saturating_duration_since(self.began);
        (passed.as_nanos() / self.part().as_nanos()) as u64
    }

    /// At once, and not only when its turn comes.
    pub fn look_again(&mut self, name: &str) {
        if let Some(row) = self.rows.get_mut(name) {
            row.looked_at = None;
        }
    }

    /// The list may have changed under its cursor. It is sorted for that, so this is not for each
    /// answer, but before a picture, and before a key.
    pub fn settle(&mut self) {
        let mut cursor = self.cursor.clone();
        cursor.settle(&self.sorted());
        self.cursor = cursor;
    }

    pub fn height_of_list(&self) -> usize {
        usize::from(self.size.height.saturating_sub(OTHER_LINES))
    }

    /// All names, as the list is sorted.
    pub fn sorted(&self) -> Vec<&str> {
        let mut rows: Vec<_> = self.rows.iter().collect();
        match self.sort {
            Sort { column: Column::Name, is_reversed: false } => {}
            Sort { column: Column::Name, is_reversed: true } => rows.reverse(),
            // Equals stay in the order of their names.
            sort => rows.sort_by(|(_, a), (_, b)| sort.compare(a, b)),
        }
        rows.into_iter().map(|(name, _)| &**name).collect()
    }

    /// What is on the screen, and so is looked at most often.
    pub fn on_screen(&self) -> Vec<String> {
        if let Some(open) = &self.open {
            return vec![open.name.clone()];
        }
        let names = self.sorted();
        let seen = page(self.cursor.index(), names.len(), self.height_of_list());
        names[seen].iter().map(|name| name.to_string()).collect()
    }

    /// The semaphore that keys are for.
    pub fn marked(&self) -> Option<&str> {
        match &self.open {
            Some(open) => Some(&open.name),
            None => self.sorted().get(self.cursor.index()).copied(),
        }
    }
}

impl Row {
    pub fn known(&self) -> Option<&Summary> {
        self.summary.as_ref()?.as_ref().ok()
    }
}

impl Open {
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), look: None, cursor: Cursor::default() }
    }

    pub fn known(&self) -> Option<&Look> {
        self.look.as_ref()?.as_ref().ok()
    }

    /// The ids of all lines: holders, then waiters.
    pub fn ids(&self) -> Vec<&str> {
        let Some(look) = self.known() else { return Vec::new() };
        let holders = look.holders.iter().map(|holder| &*holder.id);
        holders.chain(look.waiters.iter().map(|waiter| &*waiter.id)).collect()
    }
}

impl Sort {
    /// The largest first, since that is what one looks for. What is not known is last.
    fn compare(self, a: &Row, b: &Row) -> Ordering {
        let (a, b) = match (a.known(), b.known()) {
            (Some(a), Some(b)) if self.is_reversed => (b, a),
            (Some(a), Some(b)) => (a, b),
            (a, b) => return b.is_some().cmp(&a.is_some()),
        };
        match self.column {
            Column::Name => Ordering::Equal,
            Column::Share => share(b).total_cmp(&share(a)),
            Column::Queued => b.queued.cmp(&a.queued),
            Column::LongestWait => b.longest_wait.cmp(&a.longest_wait),
        }
    }
}

/// How full it is. One that is paused lets nobody in, as a full one does.
pub fn share(summary: &Summary) -> f64 {
    match (summary.held, summary.limit) {
        (0, Some(0)) => 1.0,
        (held, limit) => held as f64 / f64::from(limit.unwrap_or(u32::MAX)),
    }
}
