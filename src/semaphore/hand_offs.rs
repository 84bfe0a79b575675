//! Messages of hand-offs, for the claims that they are about.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc::WeakUnboundedSender;

use super::shared::Shared;
use super::worker::{AskWhen, Task};
use crate::protocol::message::{self, HandOff};
use crate::protocol::word;
use crate::wakeup::{Recipient, Wakeups};

pub(super) struct HandOffs {
    pub(super) shared: Arc<Shared>,
    pub(super) tasks: WeakUnboundedSender<Task>,
}

impl Recipient for HandOffs {
    fn wakeups(&self) -> &Wakeups {
        &self.shared.wakeups
    }

    fn ping_interval(&self) -> Duration {
        self.shared.settings.ask_interval()
    }

    fn response_timeout(&self) -> Duration {
        self.shared.settings.response_timeout
    }

    fn map_interval(&self) -> Duration {
        self.shared.settings.liveness
    }

    /// Tells the claims that a message is about. What no script can have sent is somebody else's:
    /// it is left alone, and told of once for each power of two, for there may be a flood of it.
    fn hear(&self, channel: &str, payload: &[u8]) {
        let (name, hand_offs) = match message::read(payload) {
            Ok(read) => read,
            Err(reason) => {
                let count = self.shared.strange_messages.fetch_add(1, Ordering::Relaxed) + 1;
                if count.is_power_of_two() {
                    tracing::warn!(
                        channel,
                        count,
                        reason,
                        "not a wake-up message: who may publish?"
                    );
                }
                return;
            }
        };
        let (mut ask, mut not_waited_for) = (false, Vec::new());
        for HandOff { word, token, ends } in hand_offs {
            match self.shared.wait_of(word) {
                None if token == 0 => {}
                None => not_waited_for.push(word),
                Some(claim) if claim.gate.name != name => {}
                Some(_) if token == 0 => ask = true,
                Some(claim) => claim.granted_by_message(token, ends),
            }
        }
        if ask {
            // A worker that has ended has ended all waits.
            self.ask_now();
        }
        if !not_waited_for.is_empty() {
            self.give_back_unwanted(name, &not_waited_for);
        }
    }

    fn may_have_missed(&self) -> bool {
        self.ask_now()
    }
}

impl HandOffs {
    /// Has the worker ask again for all that waits. Answers whether there still is one.
    fn ask_now(&self) -> bool {
        self.tasks.upgrade().is_some_and(|tasks| tasks.send(Task::Ask(AskWhen::Now)).is_ok())
    }

    /// Nobody waits for these. What holds a permit was granted by a reply, or by the same message,
    /// before; the others are to be given back.
    fn give_back_unwanted(&self, name: &str, words: &[&str]) {
        let gates = self.shared.gates_of(name);
        // Where there is none the server hears of us no more, and takes what is left for dead.
        let Some(gate) = gates.first() else {
            return;
        };
        let is_unwanted = |word: &&str| {
            word::number_of_ours(word, &self.shared.words)
                .is_some_and(|number| !gates.iter().any(|gate| gate.holds(number)))
        };
        let unwanted = words.iter().copied().filter(is_unwanted).map(str::to_owned);
        if gate.unwanted.add(unwanted)
            && let Some(tasks) = self.tasks.upgrade()
        {
            // A worker that has ended has given back what it could.
            let _ = tasks.send(Task::ReleaseUnwanted(gate.clone()));
        }
    }
}
