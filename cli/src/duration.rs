//! Options that are times, within bounds.

use std::time::Duration;

use humantime::{format_duration, parse_duration};

pub const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// Reads one that is no shorter and no longer.
pub fn duration(
    least: Duration,
    most: Duration,
) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    move |text| {
        let time = parse_duration(text).map_err(|error| error.to_string())?;
        if time < least {
            return Err(format!("must be {} or more", format_duration(least)));
        }
        if time > most {
            return Err(format!("must be {} or less", format_duration(most)));
        }
        Ok(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_bounds() {
        let read = duration(Duration::from_millis(50), WEEK);
        assert_eq!(read("50ms"), Ok(Duration::from_millis(50)));
        assert_eq!(read("7days"), Ok(WEEK));
        assert_eq!(read("49ms"), Err("must be 50ms or more".to_owned()));
        for long in ["604801s", "500000000000years"] {
            assert_eq!(read(long), Err("must be 7days or less".to_owned()));
        }
        assert!(read("").is_err() && read("1").is_err());
    }
}
