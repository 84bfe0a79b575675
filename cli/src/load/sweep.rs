//! Computes how many permits were held at the same time. The input is the intervals of all holders.

/// Returns the largest number of intervals that overlap at one moment. Two intervals do not overlap
/// if one begins when the other ends.
pub fn most_at_once(intervals: impl Iterator<Item = (u64, u64)>) -> usize {
    let (mut begins, mut ends): (Vec<u64>, Vec<u64>) = intervals.unzip();
    begins.sort_unstable();
    ends.sort_unstable();
    let mut ended = 0;
    let after_each = begins.iter().enumerate().map(|(begun_before, begin)| {
        ended += ends[ended..].iter().take_while(|end| *end <= begin).count();
        // The difference may be negative: all intervals of length 0 that begin at this moment are
        // already counted as ended, but not all of them as begun.
        (begun_before + 1).saturating_sub(ended)
    });
    after_each.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sweep_returns_the_maximum_number_of_overlapping_intervals() {
        let most = |intervals: &[(u64, u64)]| most_at_once(intervals.iter().copied());
        assert_eq!(most(&[]), 0);
        assert_eq!(most(&[(1, 5)]), 1);
        // The order does not matter. Only the third interval overlaps with the other two.
        assert_eq!(most(&[(6, 9), (1, 5), (2, 8)]), 2);
        // All intervals overlap for one tick.
        assert_eq!(most(&[(1, 5), (2, 6), (3, 7), (4, 8)]), 4);
        assert_eq!(most(&[(3, 7), (3, 7), (3, 7)]), 3);
        // If one interval ends at the moment when another begins, the end counts first: this is a
        // handoff.
        assert_eq!(most(&[(1, 5), (5, 9), (9, 12)]), 1);
        assert_eq!(most(&[(1, 5), (4, 9), (5, 7)]), 2);
        // An interval without length is no hold, and hides no other hold.
        assert_eq!(most(&[(5, 5), (5, 5)]), 0);
        assert_eq!(most(&[(1, 9), (5, 5), (5, 7)]), 2);
    }
}
