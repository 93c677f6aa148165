//! Positions without keys: tokens that a sequence holds but never computed.

use std::{ops::Range, sync::Arc};

/// Positions of a sequence that have no keys and values, as ranges in ascending order. No token
/// attends to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gaps(Option<Arc<[Range<usize>]>>);

impl Gaps {
    /// No gaps.
    pub const NONE: Gaps = Gaps(None);

    /// Creates gaps at these ranges, which are not empty and in ascending order.
    pub fn new(ranges: Vec<Range<usize>>) -> Self {
        Gaps(Some(ranges.into()).filter(|ranges: &Arc<[_]>| !ranges.is_empty()))
    }

    fn ranges(&self) -> &[Range<usize>] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Returns the first position without a key; `None` if all positions have one.
    pub fn first(&self) -> Option<usize> {
        self.ranges().first().map(|gap| gap.start)
    }

    /// Returns the longest run of positions with keys within a range, from its start on. If there is
    /// no key at the start, the run starts after the gap.
    pub fn run(&self, Range { start, end }: Range<usize>) -> Range<usize> {
        let gaps = self.ranges();
        let mut next = gaps.partition_point(|gap| gap.end <= start);
        let mut from = start;
        while let Some(gap) = gaps.get(next).filter(|gap| gap.start <= from) {
            from = gap.end;
            next += 1;
        }
        let to = gaps.get(next).map_or(end, |gap| gap.start.min(end));
        from.min(end)..to.max(from.min(end))
    }

    /// Returns the positions with keys within a range.
    pub fn keys(&self, range: Range<usize>) -> impl Iterator<Item = usize> + Clone + '_ {
        let Range { start, end } = range;
        let runs = std::iter::successors(Some(self.run(start..end)), move |run| {
            Some(self.run(run.end..end))
        });
        runs.take_while(|run| !run.is_empty()).flatten()
    }

    /// Returns the number of positions with keys within a range.
    pub fn count(&self, Range { start, end }: Range<usize>) -> usize {
        let within = |gap: &Range<usize>| gap.end.min(end).saturating_sub(gap.start.max(start));
        end.saturating_sub(start) - self.ranges().iter().map(within).sum::<usize>()
    }

    /// Returns the gaps before `len`.
    pub fn until(&self, len: usize) -> impl Iterator<Item = Range<usize>> + '_ {
        let before = self.ranges().iter().take_while(move |gap| gap.start < len);
        before.map(move |gap| gap.start..gap.end.min(len))
    }

    /// Removes the gaps from `len` on.
    pub fn truncate(&mut self, len: usize) {
        if self.ranges().last().is_some_and(|last| last.end > len) {
            *self = Gaps::new(self.until(len).collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Gaps;

    #[test]
    fn runs_are_what_lies_between_gaps() {
        let gaps = Gaps::new(vec![2..4, 4..5, 9..12]);
        let runs =
            [gaps.run(0..20), gaps.run(2..20), gaps.run(3..4), gaps.run(10..11), gaps.run(12..20)];
        assert_eq!(runs, [0..2, 5..9, 4..4, 11..11, 12..20]);
        let keys = |range| gaps.keys(range).collect::<Vec<_>>();
        assert_eq!(keys(0..14), [0, 1, 5, 6, 7, 8, 12, 13]);
        assert_eq!((keys(3..8), keys(9..12)), (vec![5, 6, 7], vec![]));
        assert_eq!([gaps.count(0..14), gaps.count(3..8), gaps.count(9..12)], [8, 3, 0]);
        assert_eq!(Gaps::NONE.run(3..8), 3..8);
    }

    #[test]
    fn truncated_gaps_end_with_the_sequence() {
        let mut gaps = Gaps::new(vec![2..5, 9..12]);
        gaps.truncate(10);
        assert_eq!(gaps, Gaps::new(vec![2..5, 9..10]));
        gaps.truncate(2);
        assert_eq!((gaps.first(), gaps), (None, Gaps::NONE));
    }
}
