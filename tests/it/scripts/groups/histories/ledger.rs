//! The ledger of a history: who waits and who holds, and the checks after each event.

use std::collections::BTreeMap;

/// A group, and the weights of its requests.
#[derive(Debug, Clone)]
pub struct Group {
    pub share: i64,
    /// 0: none
    pub cap: i64,
    /// The largest weight of a request.
    pub heaviest: i64,
    /// The weight of its permits.
    pub held: i64,
    /// The weight of all grants.
    granted: i64,
    /// The waiting requests: number of the request -> weight.
    pub waiting: BTreeMap<u64, i64>,
}

impl Group {
    pub fn new(share: i64, cap: i64, heaviest: i64) -> Self {
        Self { share, cap, heaviest, held: 0, granted: 0, waiting: BTreeMap::new() }
    }

    /// Returns the weight of the first waiting request, if the request fits the cap.
    pub fn first_that_may_be_granted(&self) -> Option<i64> {
        let weight = *self.waiting.values().next()?;
        self.fits_cap(weight).then_some(weight)
    }

    pub fn fits_cap(&self, weight: i64) -> bool {
        self.cap == 0 || self.held + weight <= self.cap
    }

    fn largest_step(&self) -> f64 {
        self.heaviest as f64 / self.share as f64
    }
}

/// A permit: its group, its weight, and the expiry of its lease.
#[derive(Debug, Clone, Copy)]
pub struct Permit {
    pub group: usize,
    weight: i64,
    end: i64,
}

/// Requests have numbers in the order in which they were first asked for.
#[derive(Debug)]
pub struct Ledger {
    pub limit: i64,
    pub groups: Vec<Group>,
    pub permits: BTreeMap<u64, Permit>,
    /// For each pair of groups that both wait below their caps: the least and the largest
    /// difference of their grants since then.
    differences: BTreeMap<(usize, usize), (f64, f64)>,
    pub grants: u64,
    /// The largest difference, as a part of the bound.
    pub worst: f64,
}

impl Ledger {
    pub fn new(limit: i64, groups: Vec<Group>) -> Self {
        let (permits, differences) = Default::default();
        Self { limit, groups, permits, differences, grants: 0, worst: 0.0 }
    }

    pub fn held(&self) -> i64 {
        self.groups.iter().map(|group| group.held).sum()
    }

    pub fn anybody_waits(&self) -> bool {
        self.groups.iter().any(|group| !group.waiting.is_empty())
    }

    pub fn anybody_may_be_granted(&self) -> bool {
        self.groups.iter().any(|group| group.first_that_may_be_granted().is_some())
    }

    pub fn waits(&mut self, number: u64, group: usize, weight: i64) {
        self.groups[group].waiting.insert(number, weight);
    }

    /// Removes a waiting request, and returns whether it was waiting.
    pub fn leaves(&mut self, number: u64, group: usize) -> bool {
        self.groups[group].waiting.remove(&number).is_some()
    }

    /// Grants a waiting request, which must be the first of its group.
    pub fn granted(&mut self, number: u64, group: usize, end: i64) {
        let first = self.groups[group].waiting.pop_first();
        let Some((first, weight)) = first else { panic!("{number} did not wait") };
        assert_eq!(number, first, "granted out of order in the group {group}");
        self.groups[group].granted += weight;
        // The last grant belongs to the interval in which both groups waited.
        self.compare(group);
        self.begins(number, group, weight, end);
        self.end_intervals();
    }

    /// Begins a permit, and checks the limit and the cap.
    pub fn begins(&mut self, number: u64, group: usize, weight: i64, end: i64) {
        self.permits.insert(number, Permit { group, weight, end });
        self.groups[group].held += weight;
        self.grants += 1;
        let Group { cap, held, .. } = self.groups[group];
        assert!(cap == 0 || held <= cap, "the group {group} holds {held}, its cap is {cap}");
        assert!(self.held() <= self.limit, "{} held, the limit is {}", self.held(), self.limit);
    }

    pub fn ends(&mut self, number: u64) -> bool {
        let Some(permit) = self.permits.remove(&number) else { return false };
        self.groups[permit.group].held -= permit.weight;
        true
    }

    pub fn expire(&mut self, now: i64) {
        let ended = self.permits.iter().filter(|(_, permit)| permit.end <= now);
        for number in ended.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.ends(number);
        }
    }

    /// Begins an interval for each pair of groups that now wait below their caps.
    pub fn begin_intervals(&mut self) {
        self.end_intervals();
        for this in 0..self.groups.len() {
            for other in this + 1..self.groups.len() {
                if self.both_may_be_granted((this, other)) {
                    let now = self.difference(this, other);
                    self.differences.entry((this, other)).or_insert((now, now));
                }
            }
        }
    }

    /// Ends the intervals of groups that do not wait, or are at their caps.
    fn end_intervals(&mut self) {
        let mut differences = std::mem::take(&mut self.differences);
        differences.retain(|pair, _| self.both_may_be_granted(*pair));
        self.differences = differences;
    }

    fn both_may_be_granted(&self, pair: (usize, usize)) -> bool {
        let may = |group: usize| self.groups[group].first_that_may_be_granted().is_some();
        may(pair.0) && may(pair.1)
    }

    fn difference(&self, this: usize, other: usize) -> f64 {
        let of = |group: &Group| group.granted as f64 / group.share as f64;
        of(&self.groups[this]) - of(&self.groups[other])
    }

    /// Checks the bound for the pairs of this group.
    fn compare(&mut self, group: usize) {
        let pairs: Vec<_> = self.differences.keys().copied().collect();
        for (this, other) in pairs.into_iter().filter(|pair| pair.0 == group || pair.1 == group) {
            let now = self.difference(this, other);
            let seen = self.differences.get_mut(&(this, other)).unwrap();
            *seen = (seen.0.min(now), seen.1.max(now));
            let bound = self.groups[this].largest_step() + self.groups[other].largest_step();
            let part = (seen.1 - seen.0) / bound;
            assert!(part < 1.0 + 1e-9, "shares of {this} and {other}: {part} of the bound");
            self.worst = self.worst.max(part);
        }
    }

    /// Checks that no request waits that fits. `next` is the group whose turn starts first.
    pub fn check_that_nobody_waits_in_vain(&self, next: Option<usize>) {
        let free = self.limit - self.held();
        if free > 0 && self.anybody_may_be_granted() {
            let first = next.and_then(|group| self.groups[group].first_that_may_be_granted());
            let is_too_heavy = first.is_some_and(|weight| weight > free);
            assert!(is_too_heavy, "the group {next:?} is next, {free} is free: {self:#?}");
        }
    }
}
