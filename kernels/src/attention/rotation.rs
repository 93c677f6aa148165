//! Raw keys, which are stored before rotation and rotated as they are read.
//!
//! ```text
//! row of position p of a page = rows[(p + before) / group]        n_rot / 2 cosines, then sines
//! ```

use crate::{
    cache::{CacheFormat, UNIT, load_row},
    isa::{Isa, LANES},
    vector::rotated,
};

/// The row of cosines and sines that rotates the key at each position of a page.
///
/// A score depends only on the difference of the angles of query and key. Therefore keys are
/// rotated by their position within the page, by rows that are the same for all pages and stay in
/// the L1 or L2 cache, and queries by the remaining angle.
#[derive(Clone, Copy)]
pub struct Rotation<'a> {
    /// (rows, `n_rot`): for each row the cosines of all pairs, then their sines, as for
    /// [`crate::vector::rotate`].
    pub rows: &'a [f32],
    /// The number of values of a key that rotate.
    pub n_rot: usize,
    /// The number of neighbouring positions that share a row.
    pub group: usize,
    /// The number of positions of the first group that lie before the page, less than `group`.
    pub before: usize,
}

impl<'a> Rotation<'a> {
    /// Returns the rows for the keys from `position` of the page on.
    #[inline(always)]
    pub(super) fn rows_from(&self, position: usize) -> impl Iterator<Item = &'a [f32]> {
        let Rotation { rows, n_rot, group, before } = *self;
        let (mut row, mut used) = ((position + before) / group, (position + before) % group);
        std::iter::repeat_with(
            #[inline(always)]
            move || {
                let this = &rows[row * n_rot..][..n_rot];
                used += 1;
                if used == group {
                    (row, used) = (row + 1, 0);
                }
                this
            },
        )
    }

    /// Returns whether the elements of a pair are a whole number of cache units apart, so that no
    /// unit contains both.
    pub(super) fn is_by_units(&self) -> bool {
        self.n_rot.is_multiple_of(2 * UNIT)
    }

    /// Reads keys of `dim` values each, the first at `position` of the page, and writes them
    /// rotated to `out` (keys, dim).
    #[inline(always)]
    pub(super) fn load<I: Isa, C: CacheFormat>(
        &self,
        isa: I,
        dim: usize,
        position: usize,
        keys: &[C::Unit],
        out: &mut [[f32; LANES]],
    ) {
        let keys = keys.chunks_exact(dim / UNIT).zip(out.chunks_exact_mut(dim / LANES));
        for ((key, out), row) in keys.zip(self.rows_from(position)) {
            load_row::<I, C>(isa, key, out);
            rotated(isa, out.as_flattened_mut(), row);
        }
    }
}
