//! Checks the invariants of the protocol in the keys before and after each successful call.

use std::collections::BTreeMap;

use super::calls::{Call, LISTENED};
use super::replies::Response;
use test_support::contents::Contents;
pub use test_support::contents::ensure;
use test_support::scripts::weight;

/// State of earlier calls, for comparison.
#[derive(Default)]
pub struct Rules {
    pub before: Contents,
    /// For each permit, the largest effective limit since it was granted.
    largest_limit: BTreeMap<String, i64>,
}

impl Rules {
    pub fn check(
        &mut self,
        call: &Call,
        response: &Response,
        after: &Contents,
        keys: &[String],
    ) -> Result<(), String> {
        self.check_weight(call, response.now, after)?;
        self.check_removals(call, response.now, after)?;
        self.check_order(call, after)?;
        self.check_numbers(response, after)?;
        if !["inspect", "probe"].contains(&call.script) && response.wake_in != 0 {
            check_head(response.now, after)?;
        }
        after.check_bookkeeping()?;
        after.check_expiry(response.now, keys)
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

    /// Checks S3: when a request is granted, no request in front of it continues to wait.
    fn check_order(&self, call: &Call, after: &Contents) -> Result<(), String> {
        let stays = |(id, _): &(&String, &i64)| after.queue.contains_key(*id);
        let first = self.before.queue.iter().filter(stays).map(|(_, ticket)| *ticket).min();
        let Some(first) = first else {
            return Ok(());
        };
        for id in after.permits.keys() {
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

/// Checks S5: the queue is empty, or its head does not fit. A dead request at the head would have
/// been removed if a permit were free.
fn check_head(now: i64, after: &Contents) -> Result<(), String> {
    let Some((id, _)) = after.queue.iter().min_by_key(|(id, ticket)| (**ticket, *id)) else {
        return Ok(());
    };
    let held: i64 = after.live(now).map(|id| weight(id)).sum();
    let limit = after.limit();
    ensure(held + weight(id) > limit, || format!("S5: {id:?} waits, {held} of {limit} held"))
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
