//! Checks the invariants of the protocol in the keys before and after each successful call.

use std::collections::{BTreeMap, BTreeSet};

use super::calls::{Call, LISTENED};
use super::replies::Response;
use test_support::contents::Contents;
pub use test_support::contents::ensure;
use test_support::scripts::{part, weight};

/// State of earlier calls, for comparison.
#[derive(Default)]
pub struct Rules {
    pub before: Contents,
    /// For each permit, the largest effective limit since it was granted.
    largest_limit: BTreeMap<String, i64>,
    /// Whether a permit was moved to another ID, which may have another cap.
    has_moved: bool,
}

impl Rules {
    pub fn check(
        &mut self,
        call: &Call,
        response: &Response,
        after: &Contents,
        keys: &[String],
    ) -> Result<(), String> {
        self.check_permits(call, response, after)?;
        self.check_order(call, after)?;
        if !["inspect", "probe"].contains(&call.script) && response.wake_in != 0 {
            check_head(response.now, after)?;
        }
        after.check_bookkeeping()?;
        after.check_expiry(response.now, keys)
    }

    /// Checks the rules that hold even if `order` and `turns` have forged members.
    pub fn check_permits(
        &mut self,
        call: &Call,
        response: &Response,
        after: &Contents,
    ) -> Result<(), String> {
        self.check_weight(call, response.now, after)?;
        self.check_removals(call, response.now, after)?;
        self.check_caps(call, response.now, after)?;
        self.check_numbers(response, after)
    }

    /// Checks G23: no group holds more than the largest cap of its permits.
    fn check_caps(&mut self, call: &Call, now: i64, after: &Contents) -> Result<(), String> {
        let is_new = |id: &String| !self.before.permits.contains_key(id);
        self.has_moved |= call.script == "refresh" && after.permits.keys().any(is_new);
        for (name, _) in after.live(now).filter_map(|id| group(id)) {
            let of_group = || after.live(now).filter(|id| group(id).is_some_and(|it| it.0 == name));
            let cap = of_group().filter_map(|id| group(id)).map(|it| it.1).max().unwrap_or(0);
            let held: i64 = of_group().map(|id| weight(id)).sum();
            ensure(held <= cap || self.has_moved, || format!("G23: {name} holds {held}"))?;
        }
        Ok(())
    }

    /// Checks S1: the weight held is limited.
    fn check_weight(&mut self, call: &Call, now: i64, after: &Contents) -> Result<(), String> {
        let (limit, largest) = (after.limit(), &mut self.largest_limit);
        let earlier = self.before.live(now).filter_map(|id| largest.get(id)).max().copied();
        // `refresh` may exchange the ID of a permit.
        let of_new = if call.script == "refresh" { earlier } else { None };
        largest.retain(|id, _| after.permits.contains_key(id));
        for id in after.permits.keys() {
            let known = largest.entry(id.clone()).or_insert(of_new.unwrap_or(limit));
            *known = limit.max(*known);
        }
        let held: i64 = after.live(now).map(|id| weight(id)).sum();
        let allowed = after.live(now).map(|id| largest[id]).max().unwrap_or(0).max(limit);
        // If this call forgets a permit, the permit was held under the earlier limit.
        let allowed = allowed.max(self.before.limit()).max(earlier.unwrap_or(0));
        ensure(held <= allowed, || format!("S1: {held} held, the largest limit was {allowed}"))
    }

    /// Checks S2: only certain calls, or an expiry, remove a permit.
    fn check_removals(&self, call: &Call, now: i64, after: &Contents) -> Result<(), String> {
        let named = |id: &str| {
            ["release", "refresh"].contains(&call.script) && call.arguments.contains(&bytes(id))
        };
        let lives_on = |id: &str| after.permits.contains_key(id);
        let gone = self.before.live(now).find(|id| !lives_on(id) && !named(id));
        ensure(gone.is_none(), || format!("S2: {gone:?} was removed"))
    }

    /// Checks S3: when a request is granted, no request of its group in front of it continues to
    /// wait.
    fn check_order(&self, call: &Call, after: &Contents) -> Result<(), String> {
        let stays = |(id, _): &(&String, &i64)| after.queue.contains_key(*id);
        for id in after.permits.keys() {
            let of_group = |(other, _): &(&String, &i64)| name_of_group(other) == name_of_group(id);
            let before = self.before.queue.iter().filter(stays).filter(of_group);
            let Some(first) = before.map(|(_, ticket)| *ticket).min() else { continue };
            let is_exchanged = call.script == "refresh" && call.arguments.contains(&bytes(id));
            if self.before.permits.contains_key(id) || weight(id) == 0 || is_exchanged {
                continue;
            }
            let ticket = self.before.queue.get(id);
            // A request that is sent again with its ticket may return to the front.
            let overtakes = ticket.map_or(!brings_ticket(call, id), |ticket| *ticket > first);
            ensure(!overtakes, || format!("S3: {id:?} ({ticket:?}) overtook {first}"))?;
        }
        Ok(())
    }

    /// Checks S4: tokens and tickets increase.
    fn check_numbers(&self, response: &Response, after: &Contents) -> Result<(), String> {
        let (before, now) = (self.before.last(), after.last());
        ensure(now >= before, || format!("S4: {now} after {before}"))?;
        let mut tokens = response.tokens.clone();
        tokens.sort_unstable();
        let grow = tokens.is_sorted_by(|one, next| one < next);
        let fresh = tokens.first().is_none_or(|first| *first > before);
        let last = tokens.last().is_none_or(|last| *last <= now);
        ensure(grow && fresh && last, || format!("S4: {tokens:?}, from {before} to {now}"))
    }
}

/// Returns the bytes of an ID, in which each char represents one byte.
fn bytes(id: &str) -> Vec<u8> {
    id.chars().map(|c| c as u8).collect()
}

fn brings_ticket(call: &Call, id: &str) -> bool {
    let mut requests = call.arguments.get(3..).unwrap_or_default().chunks_exact(2);
    let its = requests.find(|request| request[0] == bytes(id));
    call.script == "acquire"
        && its.is_some_and(|request| request[1].iter().all(|byte| b"+0123456789".contains(byte)))
}

/// Returns the group of an ID, and the cap. Without a cap, the cap is the largest integer.
fn group(id: &str) -> Option<(&str, i64)> {
    let (name, rest) = part(id, 4).split_once(',')?;
    let cap = rest.split_once(',')?.1.parse().ok()?;
    Some((name, if cap == 0 { i64::MAX } else { cap }))
}

fn name_of_group(id: &str) -> &str {
    group(id).map_or("", |(name, _)| name)
}

/// Checks S5: no request is first in its group and fits its cap, or one such request does not fit
/// the limit. A dead request at the head would have been removed if a permit were free.
fn check_head(now: i64, after: &Contents) -> Result<(), String> {
    let held_by = |name: &str| -> i64 {
        let of_group = after.live(now).filter(|id| name_of_group(id) == name);
        of_group.map(|id| weight(id)).sum()
    };
    let fits_cap =
        |id: &String| group(id).is_none_or(|(name, cap)| held_by(name) + weight(id) <= cap);
    let names: BTreeSet<_> = after.queue.keys().map(|id| name_of_group(id)).collect();
    let of_group = |name| after.queue.iter().filter(move |(id, _)| name_of_group(id) == name);
    let first = names.into_iter().filter_map(|name| of_group(name).min_by_key(|it| (it.1, it.0)));
    let first: Vec<_> = first.map(|(id, _)| id).filter(|id| fits_cap(id)).collect();
    let (held, limit) = (after.live(now).map(|id| weight(id)).sum::<i64>(), after.limit());
    let is_blocked = first.is_empty() || first.iter().any(|id| held + weight(id) > limit);
    ensure(is_blocked, || format!("S5: {first:?} wait, {held} of {limit} held"))
}

/// Checks that a message has the protocol's format, and that its channel has a subscriber.
pub fn check_message(channel: &str, text: &[u8], name: &str) -> Result<(), String> {
    ensure(LISTENED.contains(&channel), || format!("no client listens to {channel}"))?;
    if text.is_empty() {
        // A probe sends this message.
        return Ok(());
    }
    let mut lines = text.split(|byte| *byte == b'\n');
    ensure(lines.next() == Some(name.as_bytes()), || "names another semaphore".to_owned())?;
    for line in lines {
        let ids: Vec<_> = line.split(|byte| *byte == b' ').collect();
        let digits = |id: &[u8]| !id.is_empty() && id.iter().all(u8::is_ascii_digit);
        let fits =
            matches!(*ids, [id, token, end] if !id.is_empty() && digits(token) && digits(end));
        ensure(fits, || format!("line {}", line.escape_ascii()))?;
    }
    Ok(())
}
