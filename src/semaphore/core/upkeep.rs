//! The way to a semaphore's maintenance: a task that is started when there is something to do.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{Core, Task};

/// What [`Core::enqueue`] sends.
pub(crate) type Tasks = UnboundedReceiver<(Arc<Core>, Task)>;

type Way = UnboundedSender<(Arc<Core>, Task)>;

pub(super) struct Upkeep {
    start: fn(&Arc<Core>, Tasks),
    /// The way to the task, if there is one.
    tasks: Mutex<Option<Way>>,
}

impl Upkeep {
    pub(super) fn new(start: fn(&Arc<Core>, Tasks)) -> Self {
        Self { start, tasks: Mutex::new(None) }
    }

    fn tasks(&self) -> MutexGuard<'_, Option<Way>> {
        self.tasks.lock().expect("nothing panics while it is locked")
    }
}

impl Core {
    /// Has the maintenance do this, which keeps the semaphore until it is done. Never blocks.
    /// Returns whether there still is one: it ends with a shutdown, or with its runtime.
    pub(crate) fn enqueue(self: &Arc<Self>, task: Task) -> bool {
        let mut tasks = self.upkeep.tasks();
        if let Some(tasks) = &*tasks {
            return tasks.send((self.clone(), task)).is_ok();
        }
        if self.context.is_shut_down() {
            return false;
        }
        let (sender, receiver) = unbounded_channel();
        let is_sent = sender.send((self.clone(), task)).is_ok();
        *tasks = Some(sender);
        // It may be dropped at once, by a runtime that has ended.
        drop(tasks);
        (self.upkeep.start)(self, receiver);
        is_sent
    }

    /// The maintenance ends, unless it has tasks. Returns whether it does.
    pub(crate) fn rest(&self, tasks: &Tasks) -> bool {
        let mut sender = self.upkeep.tasks();
        tasks.is_empty() && mem::take(&mut *sender).is_some()
    }
}
