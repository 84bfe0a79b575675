//! Duration options.

use std::time::Duration;

use humantime::format_duration;

pub const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// Parses a duration. Every option for a duration uses this function.
pub fn duration(text: &str) -> Result<Duration, String> {
    if text.starts_with("--") {
        return Err("must be a duration such as 30s".to_owned());
    }
    if text.starts_with('-') {
        return Err("must not be negative".to_owned());
    }
    // humantime reads 5M as five months.
    const TOO_LONG: [&str; 8] = ["M", "month", "months", "y", "yr", "yrs", "year", "years"];
    if text.split(|c: char| !c.is_alphabetic()).any(|unit| TOO_LONG.contains(&unit)) {
        return Err("months and years are no units here: minutes are m, as in 5m".to_owned());
    }
    let parsed = humantime::parse_duration(text);
    parsed.map_err(|error| error.to_string().replace(", months, years", ""))
}

/// Returns a parser for durations in this range.
pub fn duration_within(
    least: Duration,
    most: Duration,
) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    move |text| {
        let time = duration(text)?;
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
    fn durations_outside_the_bounds_are_rejected() {
        let read = duration_within(Duration::from_millis(50), WEEK);
        assert_eq!(read("50ms"), Ok(Duration::from_millis(50)));
        assert_eq!(read("7days"), Ok(WEEK));
        assert_eq!(read("49ms"), Err("must be 50ms or more".to_owned()));
        for long in ["604801s", "500000000000weeks"] {
            assert_eq!(read(long), Err("must be 7days or less".to_owned()));
        }
        assert!(read("").is_err() && read("1").is_err());
    }

    #[test]
    fn months_and_years_are_rejected_as_units() {
        for wrong in
            ["5M", "1h 5M", "1M30s", "1month", "2 months", "1y", "2yrs", "1 year", "3years"]
        {
            assert!(duration(wrong).unwrap_err().contains("minutes are m, as in 5m"), "{wrong}");
        }
        let unknown = duration("5S").unwrap_err();
        assert!(unknown.contains("weeks") && !unknown.contains("months"), "{unknown}");
        assert_eq!(duration("1h 5m"), Ok(Duration::from_secs(3900)));
        assert_eq!(duration("1ms 2min 3minutes"), Ok(Duration::from_millis(300_001)));
    }
}
