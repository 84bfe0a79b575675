//! Pauses between attempts. The pauses increase. They are random, so that clients that lost Redis
//! at the same moment do not connect again at the same moment.

use std::time::Duration;

#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    last: Duration,
}

impl Backoff {
    /// The pauses between attempts of a call.
    pub(crate) fn of_calls(response_timeout: Duration) -> Self {
        Self::between(5, 250, response_timeout)
    }

    /// The pauses between attempts to connect.
    pub(crate) fn of_connections(response_timeout: Duration) -> Self {
        Self::between(20, 1_000, response_timeout)
    }

    /// `first` and `longest` are in ms. A call is retried for two response timeouts, and no pause
    /// takes more than a quarter of that time.
    fn between(first: u64, longest: u64, response_timeout: Duration) -> Self {
        let longest = Duration::from_millis(longest).min(response_timeout / 2);
        let first = Duration::from_millis(first).min(longest);
        Self { first, longest, last: Duration::ZERO }
    }

    /// Returns a random pause between half of the current maximum and the whole maximum.
    pub(crate) fn next(&mut self) -> Duration {
        self.last = (self.last * 2).clamp(self.first, self.longest);
        self.last.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With longer pauses, a call that is retried for two timeouts might end before the first
    /// timeout has passed.
    #[test]
    fn no_pause_takes_more_than_half_a_timeout() {
        let timeout = Duration::from_millis(200);
        for mut backoff in [Backoff::of_calls(timeout), Backoff::of_connections(timeout)] {
            assert!((0..10).all(|_| backoff.next() <= timeout / 2), "{backoff:?}");
        }
    }

    /// Checks the pauses themselves, because a test with a thousand reconnecting clients would fail
    /// on a busy machine.
    #[test]
    fn pauses_grow_to_the_maximum_and_differ_between_clients() {
        let timeout = Duration::from_secs(60);
        let [mut one, mut other] = [(); 2].map(|()| Backoff::of_connections(timeout));
        for most in [20, 40, 80, 160, 320, 640, 1000, 1000] {
            let most = Duration::from_millis(most);
            let (its, others) = (one.next(), other.next());
            assert!(its <= most && its >= most / 2, "{its:?} of {most:?}");
            assert_ne!(its, others);
        }
    }
}
