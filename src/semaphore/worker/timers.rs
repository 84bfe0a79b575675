//! When the worker has something to do. What is planned for a semaphore goes with it: a program may
//! have many, and none for long.

use std::collections::HashMap;
use std::future::pending;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::Key;

use crate::semaphore::claim::Claim;
use crate::semaphore::gate::Gate;

/// What it is time for.
pub(super) enum Due {
    Ask,
    Release(Arc<Claim>),
    Renew(Arc<Gate>),
    Wake(Arc<Gate>),
    /// For a semaphore that is gone.
    Nothing,
}

enum Timer {
    Ask,
    Release(Arc<Claim>),
    Renew(u64),
    Wake(u64),
}

#[derive(Default)]
pub(super) struct Timers {
    queue: DelayQueue<Timer>,
    /// By their numbers.
    gates: HashMap<u64, Planned>,
}

struct Planned {
    gate: Weak<Gate>,
    renewal: Option<Key>,
    wake: Option<Key>,
}

impl Timers {
    pub(super) fn ask_in(&mut self, pause: Duration) {
        self.queue.insert(Timer::Ask, pause);
    }

    pub(super) fn release_in(&mut self, pause: Duration, claim: Arc<Claim>) {
        self.queue.insert(Timer::Release(claim), pause);
    }

    pub(super) fn renew_at(&mut self, at: Instant, gate: &Arc<Gate>) {
        let planned = planned(&mut self.gates, gate);
        plan(&mut self.queue, &mut planned.renewal, Timer::Renew(gate.number), at);
    }

    pub(super) fn wake_at(&mut self, at: Instant, gate: &Arc<Gate>) {
        let planned = planned(&mut self.gates, gate);
        plan(&mut self.queue, &mut planned.wake, Timer::Wake(gate.number), at);
    }

    /// A semaphore is gone.
    pub(super) fn forget(&mut self, number: u64) {
        if let Some(Planned { renewal, wake, .. }) = self.gates.remove(&number) {
            for key in [renewal, wake].into_iter().flatten() {
                self.queue.remove(&key);
            }
        }
    }

    pub(super) async fn next(&mut self) -> Due {
        if self.queue.is_empty() {
            return pending().await;
        }
        let Some(expired) = self.queue.next().await else {
            return Due::Nothing;
        };
        match expired.into_inner() {
            Timer::Ask => Due::Ask,
            Timer::Release(claim) => Due::Release(claim),
            Timer::Renew(number) => {
                let gate = self.gates.get_mut(&number).and_then(Planned::take_renewal);
                gate.map_or(Due::Nothing, Due::Renew)
            }
            Timer::Wake(number) => {
                let gate = self.gates.get_mut(&number).and_then(Planned::take_wake);
                gate.map_or(Due::Nothing, Due::Wake)
            }
        }
    }
}

impl Planned {
    fn take_renewal(&mut self) -> Option<Arc<Gate>> {
        self.renewal = None;
        self.gate.upgrade()
    }

    fn take_wake(&mut self) -> Option<Arc<Gate>> {
        self.wake = None;
        self.gate.upgrade()
    }
}

fn planned<'a>(gates: &'a mut HashMap<u64, Planned>, gate: &Arc<Gate>) -> &'a mut Planned {
    let new = || Planned { gate: Arc::downgrade(gate), renewal: None, wake: None };
    gates.entry(gate.number).or_insert_with(new)
}

/// The last word counts.
fn plan(queue: &mut DelayQueue<Timer>, key: &mut Option<Key>, timer: Timer, at: Instant) {
    match key {
        Some(key) => queue.reset_at(key, at.into()),
        None => *key = Some(queue.insert_at(timer, at.into())),
    }
}
