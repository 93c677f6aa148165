//! Tiles that weigh values for up to 16 queries. A tile has 16 or 32 values of each row and a few
//! queries. Lanes are values.

use super::partial::partial_len;
use crate::{
    isa::{Isa, LANES},
    tile::{Tile, tiles},
};

/// Values of some positions, and their probabilities for up to 16 queries.
pub(super) trait Weighted<I: Isa> {
    /// Maximum queries of a tile.
    const LARGEST: usize;
    /// Adds vectors `vector .. vector + W` of the weighted values to the partials of queries
    /// `query .. query + N`.
    fn add<const W: usize, const N: usize>(
        &self,
        isa: I,
        vector: usize,
        query: usize,
        partials: &mut Partials<'_>,
    );
}

/// The partials of up to 16 queries.
pub(super) struct Partials<'a> {
    dim: usize,
    all: &'a mut [f32],
}

impl Partials<'_> {
    /// Returns a vector of a query's values.
    #[inline(always)]
    pub fn vector(&mut self, query: usize, vector: usize) -> Option<&mut [f32; LANES]> {
        self.all[query * partial_len(self.dim) + vector * LANES..].first_chunk_mut()
    }
}

/// Adds weighted values, `dim` at each position, to the partials (queries, [`partial_len`]): the
/// elements from `from` on, a multiple of two vectors.
#[inline(always)]
pub(super) fn weigh<I: Isa, V: Weighted<I>>(
    isa: I,
    dim: usize,
    from: usize,
    values: &V,
    partials: &mut [f32],
) {
    // Code with a constant takes 5% fewer instructions.
    match from {
        0 => weigh_from(isa, dim, 0, values, partials),
        _ => weigh_from(isa, dim, from, values, partials),
    }
}

#[inline(always)]
fn weigh_from<I: Isa, V: Weighted<I>>(
    isa: I,
    dim: usize,
    from: usize,
    values: &V,
    partials: &mut [f32],
) {
    let queries = partials.len() / partial_len(dim);
    let partials = Partials { dim, all: partials };
    let mut tile = ValueTile { isa, values, vector: from / LANES, partials };
    while tile.vector < dim / LANES {
        tiles(queries, &mut tile);
        tile.vector += I::TILE_PANELS;
    }
}

struct ValueTile<'a, I, V> {
    isa: I,
    values: &'a V,
    vector: usize,
    partials: Partials<'a>,
}

impl<I: Isa, V: Weighted<I>> Tile for ValueTile<'_, I, V> {
    const LARGEST: usize = V::LARGEST;
    #[inline(always)]
    fn run<const N: usize>(&mut self, first: usize) {
        let ValueTile { isa, values, vector, ref mut partials } = *self;
        if const { I::TILE_PANELS == 2 } {
            values.add::<2, N>(isa, vector, first, partials);
        } else {
            values.add::<1, N>(isa, vector, first, partials);
        }
    }
}
