//! Calls the scripts by name, with arguments and replies as on a server. The headers of `lua/*.lua`
//! describe the arguments and replies.

use super::acquire::{Place, Request};
use super::{Inspected, Refusal, Semaphore, id};

const MAX_COUNT: i64 = u32::MAX as i64;

#[derive(Debug, PartialEq)]
pub enum Reply {
    Numbers(Vec<i64>),
    Inspected(Inspected),
}

impl Semaphore {
    /// Accepts the calls that a client of this crate can send. The client validates nearly all
    /// arguments.
    pub fn call(&mut self, script: &str, arguments: &[&str]) -> Result<Reply, Refusal> {
        self.note_held_by_groups();
        Ok(Reply::Numbers(match (script, arguments) {
            ("acquire", [kind, limit, heartbeat_timeout, requests @ ..]) => {
                let requests = requests.chunks_exact(2);
                let request = requests.map(|two| Request { id: two[0], place: place(two[1]) });
                let requests: Vec<_> = request.collect();
                self.acquire((kind, number(limit)), number(heartbeat_timeout), &requests)?
            }
            ("release", [release_mode, ids @ ..]) => self.release(*release_mode == "forget", ids),
            ("refresh", requests) => self.refresh(requests)?,
            ("wake", []) => self.wake(),
            ("limit", [kind, limit, change @ ..]) => {
                self.change_limit((kind, number(limit)), change)?
            }
            ("inspect", [h, holders, w, waiters, g, groups]) => {
                let page = |index, name, offset: &&str, count: &&str| {
                    Ok((skip(index, name, offset)?, number(count) as usize))
                };
                let holders = page(1, "holders_offset", h, holders)?;
                let waiters = page(3, "waiters_offset", w, waiters)?;
                let groups = page(5, "groups_offset", g, groups)?;
                return Ok(Reply::Inspected(self.inspect(holders, waiters, groups)));
            }
            _ => unreachable!("no client calls {script} with {arguments:?}"),
        }))
    }

    fn release(&mut self, consumes: bool, ids: &[&str]) -> Vec<i64> {
        self.purge();
        let mut reply = vec![self.now(), -1];
        let mut consumed = 0;
        for id in ids {
            let is_held = self.permits.remove(*id).is_some();
            reply.push(if self.leave_queue(id) { 2 } else { is_held.into() });
            consumed += if is_held && consumes { id::weight(id) } else { 0 };
        }
        // If no limit exists, none is set.
        if consumed > 0 && self.known_limit().is_some() {
            self.runtime = Some((self.limit() - consumed).max(0));
        }
        self.hand_off(vec![]);
        reply
    }

    /// Each request is an ID with a lease, or with a new ID to which the permit moves.
    fn refresh(&mut self, requests: &[&str]) -> Result<Vec<i64>, Refusal> {
        for (number, two) in requests.chunks_exact(2).enumerate() {
            id::check(2 * number + 1, "id", two[0])?;
        }
        let (mut reply, mut kept) = (vec![self.now(), -1], vec![]);
        for two in requests.chunks_exact(2) {
            let (id, next) = (two[0], two[1]);
            let (name, lease) = match next.contains(':') {
                true => (next, id::lease(next)),
                false => (id, number(next)),
            };
            // An earlier call may have moved the permit already.
            let is_held = self.holds(name) || self.holds(id);
            if !self.holds(name) {
                self.permits.remove(id);
                self.permits.remove(name);
            }
            if is_held {
                kept.push((name, lease));
            }
            reply.push(if is_held { self.now() + lease } else { 0 });
            // A request whose permit is held or lost does not wait.
            self.leave_queue(id);
            self.leave_queue(name);
        }
        self.hand_off(kept);
        Ok(reply)
    }

    fn wake(&mut self) -> Vec<i64> {
        self.hand_off(vec![]);
        let wake_in = if self.queue.is_empty() { -1 } else { self.wake_in() };
        vec![self.now(), wake_in, self.queue.len() as i64]
    }

    /// `change`: "set" or "add" with a number, "clear", or "cap" with a number and a group; then an
    /// idempotency key.
    fn change_limit(
        &mut self,
        (kind, limit): (&str, i64),
        change: &[&str],
    ) -> Result<Vec<i64>, Refusal> {
        let before = (self.known_limit(), self.declared);
        let (declared, runtime) = self.configured(kind, limit);
        let now = self.now();
        let is_known = |mark: &str| self.marks.get(mark).is_some_and(|until| *until > now);
        let change = change.split_last().filter(|(mark, _)| !is_known(mark));
        let effective = runtime.or(declared).unwrap_or(0);
        let runtime = match change {
            None => runtime,
            Some((_, ["set", n])) => Some(number(n)),
            Some((_, ["add", n])) => Some(sum(effective, n)?),
            Some((_, ["cap", n, group])) => {
                self.set_cap(group, n.parse().ok())?;
                runtime
            }
            Some(_) => None,
        };
        (self.declared, self.runtime) = (declared, runtime);
        if let Some((mark, _)) = change {
            self.remember(mark, id::lease(mark));
        }
        self.hand_off(vec![]);
        let none = |limit: Option<i64>| limit.unwrap_or(-1);
        let limit = none(self.known_limit());
        Ok(vec![now, -1, limit, none(before.0), none(self.declared), none(before.1)])
    }
}

fn sum(limit: i64, n: &str) -> Result<i64, Refusal> {
    let most = MAX_COUNT - limit;
    if number(n) > most {
        let wanted = format!("at most {most}: the limit cannot exceed {MAX_COUNT}");
        return Err(Refusal::argument(4, "n", &wanted, n));
    }
    Ok(limit + number(n))
}

fn place(text: &str) -> Place {
    match (text, text.strip_prefix('+')) {
        ("try", _) => Place::Try,
        ("wait", _) => Place::Wait,
        (_, Some(ms)) => Place::Ahead(number(ms)),
        _ => Place::Ticket(number(text)),
    }
}

/// Parses the number of entries to skip.
fn skip(index: usize, name: &str, text: &str) -> Result<usize, Refusal> {
    const MOST: u64 = (1 << 53) - 1;
    let count = text.parse().ok().filter(|count: &u64| *count <= MOST);
    let refusal = || Refusal::argument(index, name, &format!("an integer from 0 to {MOST}"), text);
    count.map(|count| count as usize).ok_or_else(refusal)
}

fn number(text: &str) -> i64 {
    text.parse().unwrap_or_default()
}
