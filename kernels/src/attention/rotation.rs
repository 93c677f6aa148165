//! Keys that are stored before rotation, and rotated as they are read.

use crate::{
    cache::{CacheFormat, UNIT, load_row},
    isa::{Isa, LANES},
    vector::rotated,
};

/// Which row of cosines and sines rotates the key at each position of a page.
///
/// A score depends on the difference of two angles alone. So keys turn by their place in the page, by
/// rows that are the same for all pages and stay in a near cache, and queries by the rest.
#[derive(Clone, Copy)]
pub struct Rotation<'a> {
    /// (rows, `n_rot`): for each row the cosines of all pairs, then their sines; as
    /// [`crate::vector::rotate`] takes them.
    pub rows: &'a [f32],
    /// Values of a key that rotate.
    pub n_rot: usize,
    /// Neighbouring positions that rotate alike.
    pub group: usize,
    /// How many positions of the first group lie before the page: less than `group`.
    pub before: usize,
}

impl<'a> Rotation<'a> {
    /// The rows for the keys from `position` of the page on.
    #[inline(always)]
    pub(super) fn rows_from(&self, position: usize) -> impl Iterator<Item = &'a [f32]> {
        let Rotation { rows, n_rot, group, before } = *self;
        let (mut row, mut alike) = ((position + before) / group, (position + before) % group);
        std::iter::repeat_with(
            #[inline(always)]
            move || {
                let this = &rows[row * n_rot..][..n_rot];
                alike += 1;
                if alike == group {
                    (row, alike) = (row + 1, 0);
                }
                this
            },
        )
    }

    /// Whether pairs lie whole units of the cache apart, so that no unit holds both elements of one.
    pub(super) fn is_by_units(&self) -> bool {
        self.n_rot.is_multiple_of(2 * UNIT)
    }

    /// Reads `keys`, which are those from `position` of the page on and of `dim` values each, and
    /// writes them rotated.
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
