//! The turns of a history: which process believed that it held which permit, and when.

use std::collections::{BTreeMap, HashMap};

use super::history::{Call, Event, How, Moment, What, Why};

/// One acquire and its result.
#[derive(Debug, Clone)]
pub struct Turn {
    pub process: u32,
    pub number: u64,
    pub semaphore: usize,
    pub weight: u64,
    pub group: u32,
    pub call: Call,
    pub asked: Moment,
    /// The head start in ns.
    pub ahead: Moment,
    /// The moments at which the request was first and last seen in the queue on the server.
    pub queued: Option<(Moment, Moment)>,
    pub grant: Option<Grant>,
    pub refreshes: Vec<Refresh>,
    /// The moment at which the holder offered the permit. `adopted` is the moment at which another
    /// process reported that it holds the permit.
    pub offered: Option<Moment>,
    pub adopted: Option<Moment>,
    /// The end of the turn. After the end, only the result of a release may be recorded.
    pub end: Option<(Moment, End)>,
    /// The moment of the result of the release, and whether the permit was still held.
    pub released: Option<(Moment, bool)>,
    /// The moment after which the process had no permit, and whether the permit was lost by that
    /// moment.
    pub gone: Option<(Moment, bool)>,
}

#[derive(Debug, Clone, Copy)]
pub struct Grant {
    pub at: Moment,
    /// For an adopted permit, the moment at which its previous holder detached it. No other process
    /// held the permit between that moment and `at`.
    pub since: Moment,
    pub token: u64,
    /// The last known expiry of the permit's lease.
    pub until: Moment,
}

#[derive(Debug, Clone, Copy)]
pub struct Refresh {
    pub at: Moment,
    pub until: Moment,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum End {
    WithoutPermit(Why),
    Lost,
    Released(How),
    /// The process was killed.
    Died,
}

impl Turn {
    fn asked(event: &Event) -> Option<Self> {
        let What::Asks { turn, semaphore, weight, group, call, ahead } = event.what else {
            return None;
        };
        Some(Self {
            process: event.process,
            number: turn,
            semaphore,
            weight,
            group,
            call,
            asked: event.at,
            ahead,
            queued: None,
            grant: None,
            refreshes: Vec::new(),
            offered: None,
            adopted: None,
            end: None,
            released: None,
            gone: None,
        })
    }

    pub fn ended(&self) -> Option<Moment> {
        self.end.map(|(at, _)| at)
    }

    /// Returns the time in which the process believed that it held a permit. The process checks the
    /// clock, so this belief ends when the lease expires, even if the process was stopped.
    pub fn belief(&self) -> Option<(Moment, Moment)> {
        let grant = self.grant?;
        let end = self.ended().unwrap_or(grant.until).min(grant.until);
        Some((grant.since, end.max(grant.since)))
    }

    /// Returns the moments between which the permit was forgotten.
    pub fn consumed(&self) -> Option<(Moment, Moment)> {
        match (self.end, self.released) {
            (Some((began, End::Released(How::Forget))), Some((ended, true))) => {
                Some((began, ended))
            }
            _ => None,
        }
    }

    /// Returns the semaphore and the token, which identify a permit. Each permit has one holder at
    /// a time.
    pub fn permit(&self) -> Option<(usize, u64)> {
        Some((self.semaphore, self.grant?.token))
    }

    pub fn name(&self) -> String {
        format!("{}/{}", self.process, self.number)
    }
}

/// Returns all turns, in the order of their requests. Returns an error if the log contains an
/// impossible event.
pub fn turns(events: &[Event]) -> Result<Vec<Turn>, String> {
    let queued = queued(events);
    let (mut turns, mut offers) = (Turns::new(), Offers::new());
    for event in events {
        add(&mut turns, &queued, event).map_err(|wrong| format!("{event:?}: {wrong}"))?;
        pass_on(&mut turns, &mut offers, event).map_err(|wrong| format!("{event:?}: {wrong}"))?;
    }
    let mut turns: Vec<Turn> = turns.into_values().collect();
    turns.sort_by_key(|turn| turn.asked);
    Ok(turns)
}

/// Returns the moments at which each ID was first and last seen in a queue. A skipped ID may return
/// to the queue later.
fn queued(events: &[Event]) -> HashMap<&str, (Moment, Moment)> {
    let mut queued: HashMap<&str, (Moment, Moment)> = HashMap::new();
    for event in events {
        match &event.what {
            What::Queued { ids } => {
                for id in ids {
                    queued.entry(id).or_insert((event.at, event.at));
                }
            }
            What::Left { ids, until } => {
                for id in ids {
                    queued.entry(id).and_modify(|(_, last)| *last = *until);
                }
            }
            _ => {}
        }
    }
    queued
}

type Turns = BTreeMap<(u32, u64), Turn>;

fn going_on(turns: &mut Turns, process: u32, number: u64) -> Result<&mut Turn, &'static str> {
    let turn = turns.get_mut(&(process, number)).filter(|turn| turn.end.is_none());
    turn.ok_or("no such turn is in progress")
}

fn add(
    turns: &mut Turns,
    queued: &HashMap<&str, (Moment, Moment)>,
    event: &Event,
) -> Result<(), &'static str> {
    let (at, process) = (event.at, event.process);
    match &event.what {
        What::Asks { turn, .. } => {
            let asked = Turn::asked(event).expect("it asks");
            if turns.insert((process, *turn), asked).is_some() {
                return Err("a turn asks twice");
            }
        }
        What::Holds { turn, token, until, id, .. } => {
            let turn = going_on(turns, process, *turn)?;
            turn.queued = queued.get(&**id).copied();
            turn.grant = Some(Grant { at, since: at, token: *token, until: *until });
        }
        What::Refreshed { turn, until, .. } => {
            let turn = going_on(turns, process, *turn)?;
            turn.grant.as_mut().ok_or("there is no permit to refresh")?.until = *until;
            turn.refreshes.push(Refresh { at, until: *until });
        }
        What::Lost { turn } => going_on(turns, process, *turn)?.end = Some((at, End::Lost)),
        What::GivesUp { turn, why } => {
            going_on(turns, process, *turn)?.end = Some((at, End::WithoutPermit(*why)));
        }
        What::Releases { turn, how } => {
            going_on(turns, process, *turn)?.end = Some((at, End::Released(*how)));
        }
        What::Released { turn, held } => match turns.get_mut(&(process, *turn)) {
            Some(turn) if turn.end.is_some() => turn.released = Some((at, *held)),
            _ => return Err("nothing was released"),
        },
        What::Gone { turn, lost } => match turns.get_mut(&(process, *turn)) {
            Some(turn) if turn.end.is_some() && turn.gone.is_none() => {
                turn.gone = Some((at, *lost));
            }
            _ => return Err("nothing had an end"),
        },
        What::Killed => {
            let all = turns.range_mut((process, 0)..=(process, u64::MAX)).map(|(_, turn)| turn);
            all.filter(|turn| turn.end.is_none()).for_each(|turn| turn.end = Some((at, End::Died)));
        }
        _ => {}
    }
    Ok(())
}

/// The turns that offer permits. A permit is identified by its semaphore and its token.
type Offers = HashMap<(usize, u64), (u32, u64)>;

/// Connects the turn that offers a permit with the turn that adopted it.
fn pass_on(turns: &mut Turns, offers: &mut Offers, event: &Event) -> Result<(), &'static str> {
    let turn = |number| (event.process, number);
    match &event.what {
        What::Offers { turn: number, .. } => {
            let owner = turns.get_mut(&turn(*number)).filter(|owner| owner.grant.is_some());
            let owner = owner.ok_or("there is nothing to offer")?;
            owner.offered = Some(event.at);
            offers.extend(owner.permit().map(|permit| (permit, turn(*number))));
        }
        What::Holds { turn: number, semaphore, token, .. } => {
            let Some(owner) = offers.remove(&(*semaphore, *token)) else {
                return Ok(());
            };
            let owner = turns.get_mut(&owner).expect("the owner offered its permit");
            owner.adopted = Some(event.at);
            if let Some((parted, End::Released(How::Pass))) = owner.end {
                going_on(turns, event.process, *number)?.grant.iter_mut().for_each(|grant| {
                    grant.since = parted;
                });
            }
        }
        _ => {}
    }
    Ok(())
}
