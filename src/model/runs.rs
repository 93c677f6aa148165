//! The positions that a task attends to.

use std::ops::Range;

use rope_cpu_kernels::attention::BLOCK;

use crate::kv_cache::{Gaps, PAGE};

/// Positions in ascending order, in runs that each lie within a page.
#[derive(Clone)]
pub enum Runs<'s> {
    /// All positions of a range, except for gaps.
    All(Range<usize>, &'s Gaps),
    /// The positions of blocks with these indices, before an end.
    Blocks(&'s [u32], usize),
}

impl Runs<'_> {
    /// Returns the indices of the parts with `len` positions each that have some of these: positions
    /// of the sequence, or of all chosen blocks.
    pub fn parts(&self, len: usize) -> Range<usize> {
        match self {
            Runs::All(Range { start, end }, _) if start < end => start / len..end.div_ceil(len),
            Runs::All(..) => 0..0,
            Runs::Blocks(blocks, _) => 0..(blocks.len() * BLOCK).div_ceil(len),
        }
    }

    /// Returns one of these parts.
    pub fn part(&self, part: usize, len: usize) -> Self {
        match self {
            Runs::All(Range { start, end }, gaps) => {
                Runs::All(*start.max(&(part * len))..*end.min(&((part + 1) * len)), gaps)
            }
            Runs::Blocks(blocks, end) => {
                let len = len / BLOCK;
                let [from, to] = [part, part + 1].map(|part| (part * len).min(blocks.len()));
                Runs::Blocks(&blocks[from..to], *end)
            }
        }
    }
}

impl Iterator for Runs<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let run = match self {
            Runs::All(Range { start, end }, gaps) => {
                let run = gaps.run(*start..*end);
                let run = run.start..page_end(run.start).min(run.end);
                *start = run.end.max(*start);
                run
            }
            Runs::Blocks(blocks, end) => {
                let start = *blocks.first()? as usize * BLOCK;
                let page_end = page_end(start);
                let next = |i: usize| Some(start + i * BLOCK).filter(|next| *next < page_end);
                let adjacent =
                    |(i, block): &(usize, &u32)| next(*i) == Some(**block as usize * BLOCK);
                let count = blocks.iter().enumerate().take_while(adjacent).count();
                *blocks = &blocks[count..];
                start..(start + count * BLOCK).min(*end)
            }
        };
        Some(run).filter(|run| !run.is_empty())
    }
}

/// Returns the position after the page that `position` is in.
fn page_end(position: usize) -> usize {
    (position / PAGE + 1) * PAGE
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::Runs;
    use crate::kv_cache::Gaps;

    fn one(range: Range<usize>) -> Vec<Range<usize>> {
        vec![range]
    }

    #[test]
    fn runs_lie_within_a_page() {
        let all = |range| Runs::All(range, &Gaps::NONE).collect::<Vec<_>>();
        assert_eq!(all(10..700), [10..256, 256..512, 512..700]);
        assert_eq!(all(256..512), one(256..512));
        assert!(all(5..5).is_empty());
        let blocks = |blocks: &[u32], end| Runs::Blocks(blocks, end).collect::<Vec<_>>();
        assert_eq!(blocks(&[0, 1, 3, 7, 8, 9], 300), [0..64, 96..128, 224..256, 256..300]);
        assert_eq!(blocks(&(0..16).collect::<Vec<_>>(), 512), all(0..512));
        assert!(blocks(&[], 5).is_empty());
        let gaps = Gaps::new(vec![32..64, 200..300, 500..900]);
        let runs = |range| Runs::All(range, &gaps).collect::<Vec<_>>();
        assert_eq!(runs(0..1000), [0..32, 64..200, 300..500, 900..1000]);
        assert_eq!(runs(40..310), [64..200, 300..310]);
        assert!(runs(510..899).is_empty());
    }

    #[test]
    fn parts_have_a_number_of_positions_of_the_sequence_or_of_the_choice() {
        let parts = |keys: Runs<'_>| {
            let parts = keys.parts(512).map(|part| keys.part(part, 512).collect::<Vec<_>>());
            parts.collect::<Vec<_>>()
        };
        let all = [one(300..512), vec![512..768, 768..1024], one(1024..1100)];
        assert_eq!(parts(Runs::All(300..1100, &Gaps::NONE)), all);
        assert!(parts(Runs::All(512..512, &Gaps::NONE)).is_empty());
        let chosen: Vec<_> = (0..20).map(|block| 3 * block).collect();
        let found = parts(Runs::Blocks(&chosen, 1830));
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [16, 4]);
        assert_eq!((&found[1][0], &found[1][3]), (&(1536..1568), &(1824..1830)));
        // Gaps do not change where parts are cut.
        let gaps = &Gaps::new(one(400..1000));
        assert_eq!(
            parts(Runs::All(300..1100, gaps)),
            [one(300..400), one(1000..1024), one(1024..1100)]
        );
        // All blocks are cut as the sequence is.
        let blocks: Vec<_> = (0..35).collect();
        assert_eq!(parts(Runs::Blocks(&blocks, 1100)), parts(Runs::All(0..1100, &Gaps::NONE)));
    }
}
