//! The state of `top`: plain data. `update.rs` changes it, and `draw/` draws it.

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

/// Lines of the screen that are not rows of the list: the title, the head of the table, two notices
/// and the keys.
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
    /// When the histories began.
    pub began: Instant,
    pub size: Size,
    pub has_colors: bool,
    pub rows: BTreeMap<String, Row>,
    pub sort: Sort,
    pub cursor: Cursor,
    pub open: Option<Open>,
    pub dialogue: Option<Dialogue>,
    /// The outcome of the last change.
    pub message: Option<String>,
    pub contact: Contact,
    /// `None` while a list is in progress.
    pub names_due: Option<Instant>,
    /// `None` until the first list.
    pub list: Option<List>,
    pub looks_under_way: usize,
}

/// When the last successful list of names was read, and why a later attempt failed.
#[derive(Debug)]
pub struct List {
    pub last: SystemTime,
    pub trouble: Option<String>,
}

#[derive(Debug, Default)]
pub struct Row {
    /// The last summary, or why the semaphore cannot be read.
    pub summary: Option<Result<Summary, String>>,
    /// Why the last look got no reply. The summary is then from an earlier look.
    pub trouble: Option<String>,
    pub looked_at: Option<Instant>,
    pub is_asked: bool,
    pub history: History,
}

#[derive(Debug)]
pub struct Open {
    pub name: String,
    pub look: Option<Result<Look, String>>,
    pub shows_groups: bool,
    pub cursor: Cursor,
}

/// The time of the last reply of Redis, and why a later call got no reply.
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
            has_colors: false,
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

    /// Returns a style with the color, if the terminal has colors.
    pub fn colored(&self, color: Color) -> Style {
        if self.has_colors { Style::new().fg(color) } else { Style::new() }
    }

    /// Returns the length of a part of the histories.
    pub fn part(&self) -> Duration {
        history::part(self.every * schedule::OTHERS)
    }

    /// Returns the number of the part of the histories that contains this time.
    pub fn part_of(&self, now: Instant) -> u64 {
        let passed = now.saturating_duration_since(self.began);
        (passed.as_nanos() / self.part().as_nanos()) as u64
    }

    /// Makes the next read of the semaphore due now.
    pub fn look_again(&mut self, name: &str) {
        if let Some(row) = self.rows.get_mut(name) {
            row.looked_at = None;
        }
    }

    /// Updates the cursor after the list may have changed. This function sorts the list, which
    /// takes time. It runs before a picture and before a key, and not for each reply.
    pub fn settle(&mut self) {
        let mut cursor = self.cursor.clone();
        cursor.settle(&self.sorted());
        self.cursor = cursor;
    }

    pub fn height_of_list(&self) -> usize {
        usize::from(self.size.height.saturating_sub(OTHER_LINES))
    }

    /// Returns all names in the order of the list.
    pub fn sorted(&self) -> Vec<&str> {
        let mut rows: Vec<_> = self.rows.iter().collect();
        match self.sort {
            Sort { column: Column::Name, is_reversed: false } => {}
            Sort { column: Column::Name, is_reversed: true } => rows.reverse(),
            // Equal rows keep the order of their names.
            sort => rows.sort_by(|(_, a), (_, b)| sort.compare(a, b)),
        }
        rows.into_iter().map(|(name, _)| &**name).collect()
    }

    /// Returns the semaphores on the screen, which are read most often.
    pub fn on_screen(&self) -> Vec<String> {
        if let Some(open) = &self.open {
            return vec![open.name.clone()];
        }
        let names = self.sorted();
        let seen = page(self.cursor.index(), names.len(), self.height_of_list());
        names[seen].iter().map(|name| name.to_string()).collect()
    }

    /// Returns the semaphore to which keys apply.
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
        Self { name: name.to_owned(), look: None, shows_groups: false, cursor: Cursor::default() }
    }

    pub fn known(&self) -> Option<&Look> {
        self.look.as_ref()?.as_ref().ok()
    }

    /// Returns the IDs of all lines: holders, then waiters; or the names of the groups.
    pub fn ids(&self) -> Vec<&str> {
        let Some(look) = self.known() else { return Vec::new() };
        if self.shows_groups {
            return look.groups.iter().map(|group| &*group.cells[0]).collect();
        }
        let holders = look.holders.iter().map(|holder| &*holder.id);
        holders.chain(look.waiters.iter().map(|waiter| &*waiter.id)).collect()
    }
}

impl Sort {
    /// Compares rows. The largest row is first, because users look for it. Rows without a summary
    /// are last.
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

/// Returns how full a semaphore is. A paused semaphore grants no permits, so it counts as full.
pub fn share(summary: &Summary) -> f64 {
    match (summary.held, summary.limit) {
        (0, Some(0)) => 1.0,
        (held, limit) => held as f64 / f64::from(limit.unwrap_or(u32::MAX)),
    }
}
