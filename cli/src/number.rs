//! Number options with bounds.

use std::ops::RangeInclusive;

/// Returns a parser for numbers in this range.
pub fn number(allowed: RangeInclusive<u32>) -> impl Fn(&str) -> Result<u32, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| allowed.contains(number));
        let is_plain = text.chars().all(|c| c.is_ascii_digit());
        number.filter(|_| is_plain).ok_or_else(|| {
            let (start, end) = (allowed.start(), allowed.end());
            let is_too_large = is_plain && text.parse::<u32>().is_err() && !text.is_empty();
            let advice = match is_too_large && *end == u32::MAX {
                true => ": use a larger unit, for example MiB instead of bytes",
                false => "",
            };
            format!("must be a number from {start} to {end}{advice}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_outside_the_bounds_are_rejected() {
        let read = number(1..=10);
        assert_eq!((read("1"), read("10")), (Ok(1), Ok(10)));
        for wrong in ["", "0", "11", "+1", "-1", "1x", "4294967296"] {
            assert_eq!(read(wrong), Err("must be a number from 1 to 10".to_owned()));
        }
    }

    #[test]
    fn the_error_for_a_number_above_u32_suggests_a_larger_unit() {
        let read = number(0..=u32::MAX);
        assert_eq!(read("4294967295"), Ok(u32::MAX));
        assert!(read("4294967296").unwrap_err().ends_with("for example MiB instead of bytes"));
        assert_eq!(read("x"), Err("must be a number from 0 to 4294967295".to_owned()));
    }
}
