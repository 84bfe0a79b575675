//! The history put together: who believed to hold what, from when to when.

use std::collections::BTreeMap;

use super::history::{Event, Moment, What};

/// One acquire and what came of it.
#[derive(Debug, Clone)]
pub struct Turn {
    pub process: u32,
    pub number: u64,
    pub semaphore: usize,
    pub weight: u64,
    pub asked: Moment,
    pub grant: Option<Grant>,
    /// When it gave up, or gave back, or was told of the loss.
    pub ended: Option<Moment>,
}

#[derive(Debug, Clone, Copy)]
pub struct Grant {
    pub at: Moment,
    pub token: u64,
    /// The end of its lease, as last known.
    pub until: Moment,
}

impl Turn {
    /// From when to when it believed to hold a permit. It asks the clock before it believes, so it
    /// stops at the end of the lease, whatever was done to its process.
    pub fn belief(&self, died: Option<Moment>) -> Option<(Moment, Moment)> {
        let grant = self.grant?;
        let end = [self.ended, died].into_iter().flatten().fold(grant.until, Moment::min);
        Some((grant.at, end.max(grant.at)))
    }
}

/// All turns, in the order in which they asked. An event that cannot be is an error of the log.
pub fn turns(events: &[Event]) -> Result<Vec<Turn>, String> {
    let mut turns: BTreeMap<(u32, u64), Turn> = BTreeMap::new();
    for event in events {
        let Event { at, process, what } = event;
        let (number, change): (u64, &dyn Fn(&mut Turn)) = match what {
            What::Asks { turn, semaphore, weight } => {
                let (process, number, semaphore) = (*process, *turn, *semaphore);
                let (weight, asked, grant, ended) = (*weight, *at, None, None);
                let turn = Turn { process, number, semaphore, weight, asked, grant, ended };
                if turns.insert((process, number), turn).is_some() {
                    return Err(format!("{event:?}: a turn asks twice"));
                }
                continue;
            }
            What::Holds { turn, token, until, .. } => (*turn, &|turn| {
                turn.grant = Some(Grant { at: *at, token: *token, until: *until });
            }),
            What::Renewed { turn, until } => (*turn, &|turn| {
                if let Some(grant) = &mut turn.grant {
                    grant.until = *until;
                }
            }),
            What::Releases { turn } | What::Lost { turn } | What::GivesUp { turn } => {
                (*turn, &|turn| turn.ended = Some(*at))
            }
            _ => continue,
        };
        match turns.get_mut(&(*process, number)).filter(|turn| turn.ended.is_none()) {
            Some(turn) => change(turn),
            None => return Err(format!("{event:?}: no such turn goes on")),
        }
    }
    let mut turns: Vec<Turn> = turns.into_values().collect();
    turns.sort_by_key(|turn| turn.asked);
    Ok(turns)
}
