//! Raw keys are stored before rotation and rotated when they are used. Biases are rotated and added
//! to keys that are stored without them.
//!
//! ```text
//! row of position p of a page = rows[(p + before) / group]        n_rot / 2 cosines, then sines
//! ```

use super::arcs::Arcs;
use crate::{
    cache::{CacheFormat, UNIT, load_row},
    hadamard::mix_row,
    isa::{Isa, Kernel, LANES},
    vector::{add_rotated, rotated},
};

/// The row of cosines and sines that rotates the key, or its bias, at each position of a page.
///
/// A score depends only on the difference between the angles of query and key. So keys are rotated
/// by their position within the page. These rows are the same for all pages and stay in the L1 or
/// L2 cache. Queries are rotated by the remaining angle. If only the bias rotates, it has been
/// rotated to the page's start already.
#[derive(Clone, Copy)]
pub struct Rotation<'a> {
    /// (rows, `n_rot`): for each row the cosines of all pairs, then their sines, as for
    /// [`crate::vector::rotate`].
    pub rows: &'a [f32],
    /// The number of values of a key that rotate.
    pub n_rot: usize,
    /// The number of neighbouring positions that share a row.
    pub group: usize,
    /// The number of positions of the first group that are before the page, less than `group`.
    pub before: usize,
    /// Set if keys are stored rotated, and only their bias rotates.
    pub arcs: Option<&'a Arcs>,
    /// Vectors to rotate and add to each KV head's keys: (heads, dim), or empty.
    pub bias: &'a [f32],
}

/// How keys are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Keys are used as stored.
    Stored,
    /// A rotated bias is added to keys that are stored rotated.
    Biased,
    /// Keys are rotated, and a rotated bias may be added.
    Rotated,
}

impl Reading {
    /// Returns how keys are read with `rotation`.
    pub fn of(rotation: Option<Rotation<'_>>) -> Self {
        match rotation {
            None => Reading::Stored,
            Some(Rotation { arcs: Some(_), .. }) => Reading::Biased,
            Some(_) => Reading::Rotated,
        }
    }
}

impl<'a> Rotation<'a> {
    /// Returns the rows for the keys from `position` of the page on.
    #[inline(always)]
    pub(super) fn rows_from(&self, position: usize) -> impl Iterator<Item = &'a [f32]> {
        let Rotation { rows, n_rot, group, before, .. } = *self;
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

    /// Returns the rotation of the keys of one of several KV heads, of `dim` values each.
    #[inline(always)]
    pub(super) fn of_head(self, head: usize, dim: usize) -> Self {
        let bias = self.bias.chunks_exact(dim).nth(head).unwrap_or_default();
        Rotation { bias, ..self }
    }

    /// Returns whether keys need only rotation, and the elements of a pair are a whole number of
    /// units apart. Then no unit contains both elements.
    pub(super) fn is_by_units(&self) -> bool {
        self.n_rot.is_multiple_of(2 * UNIT) && self.arcs.is_none() && self.bias.is_empty()
    }

    /// Returns the arcs for scores with the bias alone; `None` unless only the bias rotates, and
    /// its pairs fill the lanes.
    #[inline(always)]
    pub(super) fn bias_arcs(&self) -> Option<&'a Arcs> {
        let whole = self.n_rot > 0 && self.n_rot.is_multiple_of(2 * LANES) && self.group == 1;
        self.arcs.filter(|_| whole)
    }
}

/// Reads keys as floats. Keys with a rotation are unmixed, rotated, and get their bias. Other keys
/// stay as stored, and may be mixed.
pub(super) struct LoadKeys<'a, C: CacheFormat> {
    /// The number of values of a key.
    pub dim: usize,
    /// The position of the first key in the page.
    pub position: usize,
    /// (keys, units)
    pub keys: &'a [C::Unit],
    pub rotation: Option<Rotation<'a>>,
    /// (keys, dim)
    pub out: &'a mut [[f32; LANES]],
}

impl<C: CacheFormat> Kernel for LoadKeys<'_, C> {
    const FLOATS: bool = true;
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let LoadKeys { dim, position, keys, rotation, out } = self;
        let Some(rotation) = rotation else { return load_row::<I, C>(isa, keys, out) };
        let keys = keys.chunks_exact(dim / UNIT).zip(out.chunks_exact_mut(dim / LANES));
        for ((key, out), row) in keys.zip(rotation.rows_from(position)) {
            load_row::<I, C>(isa, key, out);
            if C::MIXED && rotation.arcs.is_some() {
                mix_row(isa, out);
            }
            let out = out.as_flattened_mut();
            if rotation.arcs.is_none() {
                rotated(isa, out, row);
            }
            if !rotation.bias.is_empty() {
                add_rotated(isa, out, rotation.bias, row);
            }
        }
    }
}
