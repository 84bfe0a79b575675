//! How many held at once, from the intervals of all holders.

/// The most intervals that overlap at one moment. One that ends when another begins does not
/// overlap with it.
pub fn most_at_once(intervals: impl Iterator<Item = (u64, u64)>) -> usize {
    let (mut begins, mut ends): (Vec<u64>, Vec<u64>) = intervals.unzip();
    begins.sort_unstable();
    ends.sort_unstable();
    let mut ended = 0;
    let after_each = begins.iter().enumerate().map(|(begun_before, begin)| {
        ended += ends[ended..].iter().take_while(|end| *end <= begin).count();
        // Of several that begin and end in this moment, those are among the ended that have not
        // begun here yet.
        (begun_before + 1).saturating_sub(ended)
    });
    after_each.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sweep_counts_what_overlaps() {
        let most = |intervals: &[(u64, u64)]| most_at_once(intervals.iter().copied());
        assert_eq!(most(&[]), 0);
        assert_eq!(most(&[(1, 5)]), 1);
        // In any order; the third overlaps with both others, which don't with each other.
        assert_eq!(most(&[(6, 9), (1, 5), (2, 8)]), 2);
        // All at once, for one tick.
        assert_eq!(most(&[(1, 5), (2, 6), (3, 7), (4, 8)]), 4);
        assert_eq!(most(&[(3, 7), (3, 7), (3, 7)]), 3);
        // An end comes before a beginning at the same time: that is a hand-over.
        assert_eq!(most(&[(1, 5), (5, 9), (9, 12)]), 1);
        assert_eq!(most(&[(1, 5), (4, 9), (5, 7)]), 2);
        // No time is no hold, and hides no other.
        assert_eq!(most(&[(5, 5), (5, 5)]), 0);
        assert_eq!(most(&[(1, 9), (5, 5), (5, 7)]), 2);
    }
}
