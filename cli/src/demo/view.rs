//! The holders and waiters, as Redis reports them.

use std::time::Duration;

use redis_semaphore::{Holder, Inspection, Waiter};

use crate::demo::history::History;
use crate::demo::job::Progress;
use crate::demo::moment::Moment;
use crate::demo::plan::{self, LIMIT, PAGES, WORKERS};
use crate::paint::Paint;

pub struct View<'a> {
    pub time: Duration,
    pub progress: &'a Progress,
    pub semaphore: &'a Inspection,
    pub history: &'a History,
}

impl View<'_> {
    /// Returns a summary line, followed by a line for each worker.
    pub fn picture(&self, paint: Paint) -> Vec<String> {
        const WIDTH: u32 = 28;
        let full = (self.progress.done * WIDTH / PAGES) as usize;
        let bar = paint.green(&"━".repeat(full));
        let rest = paint.faint(&"─".repeat(WIDTH as usize - full));
        let top = format!(
            "{:5.1} s  {bar}{rest}  {:2} of {PAGES} pages done, {} of {LIMIT} permits held",
            self.time.as_secs_f64(),
            self.progress.done,
            self.semaphore.held
        );
        std::iter::once(top).chain((0..WORKERS).map(|worker| self.row(worker, paint))).collect()
    }

    fn row(&self, worker: usize, paint: Paint) -> String {
        let name = plan::name_of(worker);
        match (self.holder(&name), self.waiter(&name)) {
            (Some(holder), _) if self.history.is_dead(worker) => {
                let left = holder.expires_in.as_secs_f64();
                paint.red(&format!("{name}  ✗ dead    its lease expires in {left:.1} s"))
            }
            _ if self.history.is_dead(worker) => {
                paint.red(&format!("{name}  ✗ dead    its lease has expired"))
            }
            (Some(_), _) => paint.green(&format!("{name}  █ holds   {}", self.page(worker))),
            (None, Some(waiter)) => {
                let waited = waiter.waited.as_secs_f64();
                let place = waiter.position;
                format!("{name}  · waits   position {place}, for {waited:.1} s")
            }
            (None, None) => paint.faint(&name),
        }
    }

    fn page(&self, worker: usize) -> String {
        const WIDTH: u32 = 10;
        let Some(page) = self.history.page_of(worker) else {
            return String::new();
        };
        let (past, needed) = (Moment::now() - page.begun, plan::time_for(page.number));
        let full = (past.as_secs_f64() / needed.as_secs_f64() * f64::from(WIDTH)) as usize;
        let full = full.min(WIDTH as usize);
        let bar = "▪".repeat(full) + &"▫".repeat(WIDTH as usize - full);
        let length = if plan::is_long(page.number) { ", longer than the lease" } else { "" };
        format!("page {:2} {bar}{length}", page.number)
    }

    /// Returns one line, for output to a file.
    pub fn line(&self) -> String {
        let mut holders: Vec<_> = self.semaphore.holders.iter().map(Holder::client_name).collect();
        holders.sort();
        let holders = holders.into_iter().map(|name| match self.history.kill {
            Some(kill) if plan::name_of(kill.worker) == name => format!("{name} (dead)"),
            _ => name.to_owned(),
        });
        let waiters = self.semaphore.waiters.iter().map(|waiter| waiter.client_name().to_owned());
        format!(
            "{:5.1} s  {:2} of {PAGES} pages done   held by {:13} queue: {}",
            self.time.as_secs_f64(),
            self.progress.done,
            numbers(holders),
            numbers(waiters)
        )
    }

    fn holder(&self, name: &str) -> Option<&Holder> {
        self.semaphore.holders.iter().find(|holder| holder.client_name() == name)
    }

    fn waiter(&self, name: &str) -> Option<&Waiter> {
        self.semaphore.waiters.iter().find(|waiter| waiter.client_name() == name)
    }
}

/// Returns the names of workers without the common part `worker-`.
fn numbers(names: impl Iterator<Item = String>) -> String {
    names.collect::<Vec<_>>().join(" ").replace("worker-", "")
}
