//! Options that are numbers, within bounds.

use std::ops::RangeInclusive;

/// Reads one that is in there.
pub fn number(allowed: RangeInclusive<u32>) -> impl Fn(&str) -> Result<u32, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| allowed.contains(number));
        let is_plain = text.chars().all(|c| c.is_ascii_digit());
        number.filter(|_| is_plain).ok_or_else(|| {
            format!("must be a number from {} to {}", allowed.start(), allowed.end())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_bounds() {
        let read = number(1..=10);
        assert_eq!((read("1"), read("10")), (Ok(1), Ok(10)));
        for wrong in ["", "0", "11", "+1", "-1", "1x", "4294967296"] {
            assert_eq!(read(wrong), Err("must be a number from 1 to 10".to_owned()));
        }
    }
}
