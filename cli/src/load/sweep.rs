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
