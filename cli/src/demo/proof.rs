//! The promises of the demo. Each promise is checked against the reports of the workers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::demo::history::History;
use crate::demo::plan::{self, LEASE, LIMIT, PAGES, WORKERS};

pub struct Proof {
    pub is_true: bool,
    pub text: String,
}

/// Returns all proofs. `done` maps each finished page to the fencing token of its permit.
pub fn all(history: &History, done: &BTreeMap<u32, u64>) -> Vec<Proof> {
    vec![
        limit_was_kept(history),
        pages_were_done_once(history, done),
        permit_came_back(history),
        permits_were_refreshed(history),
    ]
}

/// Checks the largest number of holders at one moment. All processes read the same clock. Each
/// process counts itself as a holder from the grant of its permit until just before the release.
fn limit_was_kept(history: &History) -> Proof {
    let most = history.steps().iter().map(|step| step.holders).max().unwrap_or(0);
    let holds = history.holds.len();
    Proof {
        is_true: most == LIMIT,
        text: format!(
            "most holders at once: {most}, limit: {LIMIT}; \
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
        true => format!("all {PAGES} pages done once, each with its own permit"),
        false => format!(
            "{missing} of {PAGES} pages missing, {strangers} unknown, {repeats} repeated, \
             {} permits for {} pages",
            permits.len(),
            done.len()
        ),
    };
    if let Some(kill) = history.kill {
        text += &format!("; {begun} pages begun, page {} twice", kill.page);
    }
    if put_back > 0 {
        text += &format!(", {put_back} put back because a permit was lost");
    }
    Proof { is_true, text }
}

/// The permit must be granted again after the expiry of the dead worker's lease, and not much
/// later.
fn permit_came_back(history: &History) -> Proof {
    const SLACK: Duration = Duration::from_secs(1); // the extra time for a busy machine
    const ROUNDING: Duration = Duration::from_millis(1);
    let Some(kill) = history.kill else {
        return Proof { is_true: false, text: "no worker was killed".to_owned() };
    };
    let dead = plan::name_of(kill.worker);
    let Some(back) = history.permit_came_back() else {
        return Proof { is_true: false, text: format!("the permit of {dead} did not return") };
    };
    let after = back.at - kill.at;
    Proof {
        is_true: after + ROUNDING >= kill.lease_left && after <= LEASE + SLACK,
        text: format!(
            "the killed worker's permit went to {1} after {0:.2} s; \
             its lease had {2:.2} s left",
            after.as_secs_f64(),
            plan::name_of(back.worker),
            kill.lease_left.as_secs_f64()
        ),
    }
}

fn permits_were_refreshed(history: &History) -> Proof {
    let kept = history.holds.iter().filter(|hold| !hold.is_lost);
    let lengths = kept.filter_map(|hold| Some(hold.end? - hold.begin));
    let longest = lengths.max().unwrap_or_default();
    Proof {
        is_true: longest > LEASE,
        text: format!(
            "the longest hold took {:.2} s, because its lease of {} s was refreshed",
            longest.as_secs_f64(),
            LEASE.as_secs()
        ),
    }
}
