//! Access to a semaphore's maintenance: a task that is started when there is work.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{Core, Task};

/// The receiver of the tasks that [`Core::enqueue`] sends.
pub(crate) type Tasks = UnboundedReceiver<(Arc<Core>, Task)>;

type Way = UnboundedSender<(Arc<Core>, Task)>;

pub(super) struct Upkeep {
    start: fn(&Arc<Core>, Tasks),
    /// The channel to the maintenance, if the maintenance runs.
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
    /// Sends a task to the maintenance. The task keeps the semaphore alive until the maintenance
    /// has received the task. Never blocks. Returns false if a shutdown or the end of the runtime
    /// has ended the maintenance.
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
        // The lock is released first: a runtime that has ended may drop the maintenance
        // immediately.
        drop(tasks);
        (self.upkeep.start)(self, receiver);
        is_sent
    }

    /// Ends the maintenance, unless `tasks` contains a task. Returns whether the maintenance ends.
    pub(crate) fn rest(&self, tasks: &Tasks) -> bool {
        let mut sender = self.upkeep.tasks();
        tasks.is_empty() && mem::take(&mut *sender).is_some()
    }
}
