//! Attention as a phase: how its work is cut into tasks, and how their partial results become rows.
//!
//! A task is one head of keys and values, one tile of rows (with all query heads that share the
//! head), and one part of the context; or several heads and a shorter part, for a single row, which
//! reads long runs of memory so. A context is attended in parts, always cut at the same positions and
//! merged in order. Where rows are few, each part is a task; where they are many, one task does all
//! parts in turn. So no result depends on the number of threads, on which of them was faster, or on
//! how many rows come together.

use std::ops::Range;

use rope_cpu_kernels::{
    Regime,
    attention::{faster_regime, finish, merge, partial_len},
    isa::Cpu,
};

use super::{
    Config,
    batch::{Role, Row, Tile},
    config::HEAD_DIM_MAX,
};
use crate::{
    kv_cache::{CacheType, POSITIONS, Shape},
    rope::{Part, Sight},
};

/// Queries that attend together, at most (or one token's group, where that is more).
pub const TILE_QUERIES: usize = 64;
/// Rows up to which parts are tasks.
const FEW_ROWS: usize = 8;
/// Positions of a part, at most.
const PART: usize = 4 * POSITIONS;
/// Heads of keys that one row reads together, at most, and the positions of a part then.
const HEADS: usize = 4;
const HEADS_PART: usize = 2 * POSITIONS;

/// How one forward pass attends.
pub struct Plan<'s> {
    pub tiles: &'s [Tile],
    kv_heads: usize,
    /// Query heads that share a head of keys.
    pub group: usize,
    /// Values of a head, with those that fill it up.
    pub dim: usize,
    tile_rows: usize,
    role: Role,
    /// Heads of keys of a task.
    heads: usize,
    /// Tasks that a context is cut into.
    parts: usize,
    /// Positions of a part.
    part: usize,
    /// Where the second task's part begins. The first task has all parts before, of which a context
    /// that rolls still holds little.
    second: usize,
}

/// Where one task's work lies.
pub struct Task {
    pub part: usize,
    pub tile: Tile,
    pub kv_heads: Range<usize>,
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
        let single = row * (context.div_ceil(HEADS_PART) + 2);
        all.max(few * row * (context.div_ceil(PART) + 2)).max(single)
    }

    /// The plan for `rows`, cut into `tiles` of at most [`Plan::tile_rows`], in layers of which the
    /// widest view is `sight`.
    pub fn new(
        config: &Config,
        shape: Shape,
        rows: &[Row],
        tiles: &'s [Tile],
        sight: Sight,
        role: Role,
    ) -> Self {
        let end = rows.iter().map(|row| row.position + 1).max().unwrap_or(0);
        let first = rows.iter().map(|row| row.position).min().unwrap_or(0);
        // Far keys are many, or few first ones that go with the first part.
        let start =
            if sight.first == usize::MAX { 0 } else { sight.visible(Part::Near, first).start };
        let together = |&heads: &usize| config.kv_heads.is_multiple_of(heads);
        let few =
            role == Role::Answer && faster_regime(config.group(), shape.keys, false) == Regime::Few;
        let heads = match few && rows.len() == 1 {
            true => (1..=HEADS).rfind(together).unwrap_or(1),
            false => 1,
        };
        let part = if few { HEADS_PART } else { PART };
        let second = start / part * part + part;
        Plan {
            tiles,
            kv_heads: config.kv_heads,
            group: config.group(),
            dim: shape.padded_dim(),
            tile_rows: Self::tile_rows(config, rows.len()),
            role,
            heads,
            parts: match rows.len() <= FEW_ROWS {
                true => 1 + end.saturating_sub(second).div_ceil(part),
                false => 1,
            },
            part,
            second,
        }
    }

    /// How many tasks there are.
    pub fn tasks(&self) -> usize {
        self.parts * self.tiles.len() * self.head_tasks()
    }

    /// Those for all heads of one tile and part.
    fn head_tasks(&self) -> usize {
        self.kv_heads / self.heads
    }

    /// Floats that a task writes.
    pub fn unit(&self) -> usize {
        self.heads * self.tile_rows * self.group * partial_len(self.dim)
    }

    /// What a task does.
    pub fn task(&self, task: usize) -> Task {
        let (head_task, rest) = (task % self.head_tasks(), task / self.head_tasks());
        let (tile, part) = (rest % self.tiles.len(), rest / self.tiles.len());
        let first = head_task * self.heads;
        Task { part, tile: self.tiles[tile], kv_heads: first..first + self.heads }
    }

    /// The positions that a task looks at.
    pub fn positions(&self, part: usize, visible: Range<usize>) -> Range<usize> {
        if self.parts == 1 {
            return visible;
        }
        let end = self.second + part * self.part;
        let start = if part == 0 { 0 } else { end - self.part };
        visible.start.max(start)..visible.end.min(end)
    }

    /// The regime for queries that are compared with keys of this type, rotated as they are read if
    /// `rotating`.
    pub fn regime(&self, keys: CacheType, rotating: bool) -> Regime {
        match self.role {
            Role::Prompt => Regime::Many,
            Role::Answer => faster_regime(self.group, keys, rotating),
        }
    }

    /// A task's positions, cut where parts begin.
    pub fn cut(&self, positions: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        let Range { start, end } = positions;
        let part = self.part;
        (start / part..end.div_ceil(part))
            .map(move |i| start.max(i * part)..end.min((i + 1) * part))
    }

    /// Writes a row's attention, all heads of `head_dim` values, to `out`: the parts of each head
    /// merged in order.
    pub fn gather(&self, cpu: Cpu, partials: &[f32], row: usize, head_dim: usize, out: &mut [f32]) {
        let Some(tile) = self.tiles.iter().rposition(|t| t.first <= row) else { return };
        let query = (row - self.tiles[tile].first) * self.group;
        let len = partial_len(self.dim);
        let of = |part: usize, head: usize| {
            let (kv_head, in_group) = (head / self.group, head % self.group);
            let (head_task, in_task) = (kv_head / self.heads, kv_head % self.heads);
            let task = (part * self.tiles.len() + tile) * self.head_tasks() + head_task;
            let partial = in_task * self.tile_rows * self.group + query + in_group;
            &partials[task * self.unit() + partial * len..][..len]
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
