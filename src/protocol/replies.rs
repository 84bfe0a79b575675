//! The replies of the scripts, and the details in their errors.

use std::time::Duration;

use redis::RedisError;

use super::id::LAST_NUMBER;

/// If this is the only status in a reply, it applies to all requests.
const ALL: i64 = 3;

/// The reply of `acquire` to one request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Acquired {
    Granted { token: u64 },
    Queued(Place),
    NotGranted,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) ticket: u64,
    pub(crate) position: u64,
}

impl Acquired {
    fn granted(token: i64) -> Option<Self> {
        Some(Self::Granted { token: given(token)? })
    }

    fn read(numbers: &[i64]) -> Option<Self> {
        match *numbers {
            [0, 0, 0] => Some(Self::NotGranted),
            [1, token, _] => Self::granted(token),
            [2, ticket, position] => {
                Some(Self::Queued(Place { ticket: given(ticket)?, position: given(position)? }))
            }
            _ => None,
        }
    }
}

/// A number that a script can have issued.
fn given(number: i64) -> Option<u64> {
    u64::try_from(number).ok().filter(|number| (1..=LAST_NUMBER).contains(number))
}

/// Reads the part of `acquire`'s reply that is about `count` requests. Returns fewer than `count`
/// results if a result is invalid.
pub(crate) fn acquired(responses: &[i64], count: usize) -> Vec<Acquired> {
    match *responses {
        [ALL, first, _] => (first..).take(count).map_while(Acquired::granted).collect(),
        _ => responses.chunks_exact(3).map_while(Acquired::read).collect(),
    }
}

/// The effect of a release on the limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ReleaseMode {
    Return,
    /// Subtracts the weight from the limit: the permits are used up.
    Forget,
}

impl ReleaseMode {
    /// The argument of `release`.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Return => "return",
            Self::Forget => "forget",
        }
    }
}

/// Reads the reply of `release` to `count` requests. Returns for each request whether it held a
/// permit.
pub(crate) fn released(statuses: &[i64], count: usize) -> Vec<bool> {
    match statuses {
        [ALL] => vec![true; count],
        statuses => statuses.iter().map(|status| *status == 1).collect(),
    }
}

/// Reads the reply of `refresh`. Returns for each request whether the permit is held.
pub(crate) fn refreshed(statuses: &[i64]) -> Vec<bool> {
    statuses.iter().map(|end| *end > 0).collect()
}

/// The time after which `wake` should be called.
pub(crate) fn wake_in_of(reply: i64) -> Option<Duration> {
    u64::try_from(reply).ok().map(Duration::from_millis)
}

/// A time in ms, as the scripts take it.
pub(crate) fn millis(duration: Duration) -> u64 {
    duration.as_millis().clamp(1, u64::MAX.into()) as u64
}

/// Reads the weight and limit from `SEM_TOO_HEAVY ARGV[4] (id) weighs 8, the limit is 5`.
pub(crate) fn too_heavy(error: &RedisError) -> Option<(u32, u32)> {
    if error.code() != Some("SEM_TOO_HEAVY") {
        return None;
    }
    let (weight, limit) =
        error.detail()?.split_once(" weighs ")?.1.split_once(", the limit is ")?;
    let limit = limit.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((weight.parse().ok()?, limit.parse().ok()?))
}
