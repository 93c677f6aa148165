//! Attention as a phase: how its work is cut into tasks, and how their partial results become rows.
//!
//! A task is one head of keys and values, one tile of rows (with all query heads that share the
//! head), and one part of the context. Long contexts are cut into parts only where rows are few,
//! always at the same positions, and parts are merged in order: the cut depends on neither the
//! number of threads nor on which of them was faster.

use std::ops::Range;

use rope_cpu_kernels::{
    attention::{finish, merge, partial_len},
    isa::Cpu,
};

use super::{Config, batch::Row, batch::Tile, config::HEAD_DIM_MAX};
use crate::{
    kv_cache::{POSITIONS, Shape},
    rope::{Part, Sight},
};

/// Queries that attend together, at most (or one token's group, where that is more).
pub const TILE_QUERIES: usize = 64;
/// Rows up to which the context is cut into parts.
const FEW_ROWS: usize = 8;
/// Positions of a part.
const PART: usize = 4 * POSITIONS;

/// How one forward pass attends.
pub struct Plan<'s> {
    pub tiles: &'s [Tile],
    kv_heads: usize,
    /// Query heads that share a head of keys.
    pub group: usize,
    /// Values of a head, with those that fill it up.
    pub dim: usize,
    tile_rows: usize,
    parts: usize,
    /// Where the second part begins. The first one has all before, of which a context that rolls
    /// still holds little.
    second: usize,
}

/// Where one task's work lies.
pub struct Task {
    pub part: usize,
    pub tile: Tile,
    pub kv_head: usize,
}

impl<'s> Plan<'s> {
    /// Rows of a tile.
    pub fn tile_rows(config: &Config, rows: usize) -> usize {
        (TILE_QUERIES / config.group()).clamp(1, rows.max(1))
    }

    /// Floats of partial results for up to `rows` rows in a context of `context`.
    pub fn partials_len(config: &Config, shape: Shape, rows: usize, context: usize) -> usize {
        let row = config.heads * partial_len(shape.padded_dim());
        let all = rows.next_multiple_of(Self::tile_rows(config, rows)) * row;
        let few = rows.min(FEW_ROWS);
        let few = few.next_multiple_of(Self::tile_rows(config, few));
        // Where a context rolls, it begins within a part and is longer by what comes together.
        all.max(few * row * (context.div_ceil(PART) + 2))
    }

    /// The plan for `rows`, cut into `tiles` of at most [`Plan::tile_rows`], in layers of which the
    /// widest view is `sight`.
    pub fn new(
        config: &Config,
        shape: Shape,
        rows: &[Row],
        tiles: &'s [Tile],
        sight: Sight,
    ) -> Self {
        let end = rows.iter().map(|row| row.position + 1).max().unwrap_or(0);
        let first = rows.iter().map(|row| row.position).min().unwrap_or(0);
        // Far keys are many, or few first ones that go with the first part.
        let start =
            if sight.first == usize::MAX { 0 } else { sight.visible(Part::Near, first).start };
        let second = start / PART * PART + PART;
        Plan {
            tiles,
            kv_heads: config.kv_heads,
            group: config.group(),
            dim: shape.padded_dim(),
            tile_rows: Self::tile_rows(config, rows.len()),
            parts: match rows.len() <= FEW_ROWS {
                true => 1 + end.saturating_sub(second).div_ceil(PART),
                false => 1,
            },
            second,
        }
    }

    /// How many tasks there are.
    pub fn tasks(&self) -> usize {
        self.parts * self.tiles.len() * self.kv_heads
    }

    /// Floats that a task writes.
    pub fn unit(&self) -> usize {
        self.tile_rows * self.group * partial_len(self.dim)
    }

    /// What a task does.
    pub fn task(&self, task: usize) -> Task {
        let (kv_head, rest) = (task % self.kv_heads, task / self.kv_heads);
        let (tile, part) = (rest % self.tiles.len(), rest / self.tiles.len());
        Task { part, tile: self.tiles[tile], kv_head }
    }

    /// The positions that a task looks at.
    pub fn positions(&self, part: usize, visible: Range<usize>) -> Range<usize> {
        if self.parts == 1 {
            return visible;
        }
        let end = self.second + part * PART;
        let start = if part == 0 { 0 } else { end - PART };
        visible.start.max(start)..visible.end.min(end)
    }

    /// Writes a row's attention, all heads of `head_dim` values, to `out`: the parts of each head
    /// merged in order.
    pub fn gather(&self, cpu: Cpu, partials: &[f32], row: usize, head_dim: usize, out: &mut [f32]) {
        let Some(tile) = self.tiles.iter().rposition(|t| t.first <= row) else { return };
        let query = (row - self.tiles[tile].first) * self.group;
        let len = partial_len(self.dim);
        let of = |part: usize, head: usize| {
            let task = (part * self.tiles.len() + tile) * self.kv_heads + head / self.group;
            &partials[task * self.unit() + (query + head % self.group) * len..][..len]
        };
        let mut merged = [0.0; partial_len(HEAD_DIM_MAX)];
        for (head, out) in out.chunks_exact_mut(head_dim).enumerate() {
            let merged = &mut merged[..len];
            merged.copy_from_slice(of(0, head));
            for part in 1..self.parts {
                merge(cpu, merged, of(part, head));
            }
            finish(merged, out);
        }
    }
}
