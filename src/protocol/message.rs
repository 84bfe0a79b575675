//! Grant messages: their content, and whether a script can have sent them.
//!
//! A user with the permission to publish on the channel can send anything. A message that no script
//! can have sent is ignored, and costs little time and memory.

use super::id::number;

/// The maximum size of a message. A script reads at most 1,000 waiters, and the line of a waiter
/// has less than 300 bytes.
const LONGEST: usize = 1 << 20;

/// A request that left the queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct HandOff<'a> {
    pub(crate) id: &'a str,
    /// 0 if the request left the queue without a permit. Another `acquire` returns the reason.
    pub(crate) token: u64,
    /// The expiry of the permit's lease, on the server's clock.
    pub(crate) ends: i64,
}

/// Returns the name of the semaphore, and the handoffs.
pub(crate) fn read(payload: &[u8]) -> Result<(&str, Vec<HandOff<'_>>), &'static str> {
    if payload.len() > LONGEST {
        return Err("it is too long");
    }
    let text = std::str::from_utf8(payload).map_err(|_| "it is not UTF-8")?;
    let mut lines = text.split('\n');
    // An empty message has an empty name, which no semaphore has.
    let name = lines.next().unwrap_or_default();
    let hand_offs: Option<Vec<_>> = lines.map(hand_off).collect();
    Ok((name, hand_offs.ok_or("a line is not an ID, a token and an expiry")?))
}

fn hand_off(line: &str) -> Option<HandOff<'_>> {
    let mut parts = line.split(' ');
    let id = parts.next()?;
    let mut number = || number(parts.next()?);
    let (token, ends) = (number()?, number()?);
    parts.next().is_none().then_some(HandOff { id, token, ends: ends as i64 })
}
