//! What the run has shown, each point checked against what the workers reported.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::demo::crew;
use crate::demo::history::History;
use crate::demo::plan::{LEASE, LIMIT, PAGES, WORKERS};

pub struct Proof {
    pub is_true: bool,
    pub text: String,
}

/// `done` has each page that is done, with the fencing token of its permit.
pub fn all(history: &History, done: &BTreeMap<u32, u64>) -> Vec<Proof> {
    vec![
        limit_was_kept(history),
        pages_were_done_once(history, done),
        permit_came_back(history),
        permits_were_renewed(history),
    ]
}

/// All processes read the same clock, and each counts itself as a holder from when it has the
/// permit to just before it gives it back.
fn limit_was_kept(history: &History) -> Proof {
    let most = history.steps().iter().map(|step| step.holders).max().unwrap_or(0);
    let holds = history.holds.len();
    Proof {
        is_true: most == LIMIT,
        text: format!(
            "most holders at once = {most}, the limit is {LIMIT}; \
             {WORKERS} processes held {holds} permits"
        ),
    }
}

fn pages_were_done_once(history: &History, done: &BTreeMap<u32, u64>) -> Proof {
    let missing = (1..=PAGES).filter(|page| !done.contains_key(page)).count();
    let strangers = done.keys().filter(|page| !(1..=PAGES).contains(*page)).count();
    let permits: BTreeSet<u64> = done.values().copied().collect();
    let History { begun, repeats, put_back, .. } = *history;

    let is_true = missing == 0 && strangers == 0 && repeats == 0 && permits.len() == done.len();
    let mut text = match is_true {
        true => format!("all {PAGES} pages done once, each under a permit of its own"),
        false => format!(
            "{missing} of {PAGES} pages missing, {strangers} unknown, {repeats} done again, \
             {} permits for {}",
            permits.len(),
            done.len()
        ),
    };
    if let Some(kill) = history.kill {
        text += &format!("; {begun} were begun: page {} twice", kill.page);
    }
    if put_back > 0 {
        text += &format!(", {put_back} were put back as a permit was lost");
    }
    Proof { is_true, text }
}

/// Not before the lease of the dead worker had ended, and not much later.
fn permit_came_back(history: &History) -> Proof {
    const SLACK: Duration = Duration::from_secs(1); // for a machine that is busy
    const ROUNDING: Duration = Duration::from_millis(1);
    let Some(kill) = history.kill else {
        return Proof { is_true: false, text: "no worker was killed".to_owned() };
    };
    let dead = crew::name(kill.worker);
    let Some(back) = history.permit_came_back() else {
        return Proof { is_true: false, text: format!("the permit of {dead} never came back") };
    };
    let after = back.at - kill.at;
    Proof {
        is_true: after + ROUNDING >= kill.lease_left && after <= LEASE + SLACK,
        text: format!(
            "the killed worker's permit came back after {:.2} s, to {}; \
             its lease had {:.2} s left",
            after.as_secs_f64(),
            crew::name(back.worker),
            kill.lease_left.as_secs_f64()
        ),
    }
}

fn permits_were_renewed(history: &History) -> Proof {
    let kept = history.holds.iter().filter(|hold| !hold.is_lost);
    let lengths = kept.filter_map(|hold| Some(hold.end? - hold.begin));
    let longest = lengths.max().unwrap_or_default();
    Proof {
        is_true: longest > LEASE,
        text: format!(
            "the longest hold took {:.2} s; its lease of {} s was renewed meanwhile",
            longest.as_secs_f64(),
            LEASE.as_secs()
        ),
    }
}
