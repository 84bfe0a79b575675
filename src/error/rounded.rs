//! Durations in texts for people, rounded to a useful precision.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

/// A measured duration, such as `201 ms`, `4.2 s` or `35 s`.
pub(crate) struct Rounded(pub(crate) Duration);

impl Display for Rounded {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        let millis = (seconds * 1e3).round();
        let tenths = (seconds * 10.0).round() / 10.0;
        match millis {
            0.0 if !self.0.is_zero() => f.write_str("less than 1 ms"),
            _ if millis < 1000.0 => write!(f, "{millis} ms"),
            _ if tenths < 10.0 => write!(f, "{tenths} s"),
            _ => write!(f, "{} s", seconds.round()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded() {
        for (micros, text) in [
            (0, "0 ms"),
            (499, "less than 1 ms"),
            (200_571, "201 ms"),
            (999_499, "999 ms"),
            (999_500, "1 s"),
            (4_000_000, "4 s"),
            (4_249_000, "4.2 s"),
            (9_960_000, "10 s"),
            (35_400_000, "35 s"),
        ] {
            assert_eq!(Rounded(Duration::from_micros(micros)).to_string(), text);
        }
    }
}
