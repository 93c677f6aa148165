//! The schedule of attention: the division of its work into tasks, and the merging of their partial
//! results.
//!
//! A task is one KV head, one tile of rows (with all query heads that share the KV head), and one
//! part of the context. For a single row a task is several KV heads and a shorter part, so that it
//! reads longer runs of memory. The context is attended in parts, which are always cut at the same
//! positions and merged in order. If there are few rows, each part is a task; if there are many,
//! one task computes all parts in turn. Hence no result depends on the number of threads, on their
//! speed, or on the number of rows in a batch.

use std::ops::Range;

use rope_cpu_kernels::{
    Regime,
    attention::{Reading, faster_regime, finish, merge, partial_len},
    isa::Cpu,
};

use super::{
    allocator::Amount,
    batch::{Role, Row, Tile},
    config::{self, HEAD_DIM_MAX},
};
use crate::{
    kv_cache::{CacheType, POSITIONS, Shape},
    rope::{Region, Visibility},
};

/// The most queries of a tile (or those of one token's group, if that is larger).
pub const TILE_QUERIES: usize = 256;
/// The most queries of a tile if there are few rows.
const FEW_TILE_QUERIES: usize = 64;
/// The number of tasks below which tiles become smaller, so that all threads have some.
const TASKS: usize = 32;
/// The positions next to a row with which products are not computed in 8 bits. Most of a row's
/// attention is here, and so would be most of the error.
const NEAR: usize = 2 * POSITIONS;
/// The most rows for which each part is a task.
const FEW_ROWS: usize = 8;
/// The most positions of a part.
pub const PART: usize = 4 * POSITIONS;
/// The most KV heads of a task that has a single row.
pub const HEADS: usize = 4;
/// The most positions of a part if tasks have several KV heads.
const HEADS_PART: usize = 2 * POSITIONS;

/// The division of the attention of one role's rows into tasks.
pub struct Schedule<'s> {
    pub tiles: &'s [Tile],
    kv_heads: usize,
    /// The number of query heads that share a KV head.
    pub group: usize,
    /// The elements of a head, padding included.
    pub dim: usize,
    tile_rows: usize,
    role: Role,
    /// The type that keys are stored in.
    pub keys: CacheType,
    /// The type that values are stored in.
    pub values: CacheType,
    /// The number of KV heads of a task.
    heads: usize,
    /// The number of tasks that the context is cut into.
    parts: usize,
    /// The positions of a part.
    part: usize,
    /// The position at which the second task begins. The first task has all parts before it, of
    /// which little is left if the context rolls.
    second: usize,
}

/// The part of the context, the rows and the KV heads of one task.
pub struct Task {
    pub part: usize,
    pub tile: Tile,
    pub kv_heads: Range<usize>,
}

impl<'s> Schedule<'s> {
    /// Returns the most rows of a tile, where a role has `rows` rows.
    pub fn tile_rows(attention: &config::Attention, rows: usize) -> usize {
        let queries = rows.saturating_mul(attention.heads) / TASKS;
        (queries.clamp(FEW_TILE_QUERIES, TILE_QUERIES) / attention.group()).max(1)
    }

    /// Returns the most partial results for each query head: those of a prompt, and those of one
    /// answer.
    pub fn partials(attention: &config::Attention) -> Amount {
        // A rolling context begins within a part, and a micro-batch extends it before it rolls.
        let parts = |rows| Amount { fixed: 2 * rows, per_token: 0, per_part: rows };
        let prompt =
            Amount { fixed: Self::tile_rows(attention, usize::MAX), ..Amount::per_token(1) };
        let answer = parts(PART / HEADS_PART);
        let few = Self::tile_rows(attention, FEW_ROWS).min(FEW_ROWS);
        let mut all = parts(FEW_ROWS.next_multiple_of(few));
        all += prompt;
        all += answer;
        all
    }

    /// Creates the schedule for `rows`, cut into `tiles` of at most [`Schedule::tile_rows`].
    /// `visibility` is that of the layers whose queries attend to the most keys.
    pub fn new(
        attention: &config::Attention,
        shape: Shape,
        rows: &[Row],
        tiles: &'s [Tile],
        visibility: Visibility,
        role: Role,
    ) -> Self {
        let end = rows.iter().map(|row| row.position + 1).max().unwrap_or(0);
        let first = rows.iter().map(|row| row.position).min().unwrap_or(0);
        // Far keys are either all the rest or a few first ones, which belong to the first part.
        let start = if visibility.first == usize::MAX {
            0
        } else {
            visibility.visible(Region::Near, first).start
        };
        let together = |&heads: &usize| attention.kv_heads.is_multiple_of(heads);
        let few = role == Role::Answer
            && faster_regime(attention.group(), shape.keys, Reading::Stored) == Regime::Few;
        let heads = match few && rows.len() == 1 {
            true => (1..=HEADS).rfind(together).unwrap_or(1),
            false => 1,
        };
        let part = if few { HEADS_PART } else { PART };
        let second = start / part * part + part;
        Schedule {
            tiles,
            kv_heads: attention.kv_heads,
            group: attention.group(),
            dim: shape.padded_dim(),
            tile_rows: tiles.iter().map(|tile| tile.rows).max().unwrap_or(0),
            role,
            keys: shape.keys,
            values: shape.values,
            heads,
            parts: match rows.len() <= FEW_ROWS {
                true => 1 + end.saturating_sub(second).div_ceil(part),
                false => 1,
            },
            part,
            second,
        }
    }

    /// Returns the number of tasks.
    pub fn tasks(&self) -> usize {
        self.parts * self.tiles.len() * self.head_tasks()
    }

    /// Returns the number of tasks for all heads of one tile and part.
    fn head_tasks(&self) -> usize {
        self.kv_heads / self.heads
    }

    /// Returns the number of floats that all tasks write.
    pub fn partials_len(&self) -> usize {
        self.tasks() * self.unit()
    }

    /// Returns the number of floats that a task writes.
    pub fn unit(&self) -> usize {
        self.heads * self.tile_rows * self.group * partial_len(self.dim)
    }

    /// Returns the part, tile and KV heads of a task.
    pub fn task(&self, task: usize) -> Task {
        let (head_task, rest) = (task % self.head_tasks(), task / self.head_tasks());
        let (tile, part) = (rest % self.tiles.len(), rest / self.tiles.len());
        let first = head_task * self.heads;
        Task { part, tile: self.tiles[tile], kv_heads: first..first + self.heads }
    }

    /// Returns the positions of `visible` that are in a task's part of the context.
    pub fn positions(&self, part: usize, visible: Range<usize>) -> Range<usize> {
        if self.parts == 1 {
            return visible;
        }
        let end = self.second + part * self.part;
        let start = if part == 0 { 0 } else { end - self.part };
        visible.start.max(start)..visible.end.min(end)
    }

    /// Returns the regime of products with keys.
    pub fn regime(&self, reading: Reading) -> Regime {
        match self.role {
            Role::Prompt => Regime::Many,
            Role::Answer => faster_regime(self.group, self.keys, reading),
        }
    }

    /// Returns the position before which keys and values are far from a row at `position`: products
    /// with these are computed in 8 bits. It is where a page begins.
    ///
    /// An answer has too few rows to make rounding keys and values for them worth its time.
    pub fn far(&self, position: usize) -> usize {
        match self.role {
            Role::Prompt => (position / POSITIONS * POSITIONS).saturating_sub(NEAR),
            Role::Answer => 0,
        }
    }

    /// Cuts a task's positions at the boundaries of parts.
    pub fn cut(&self, positions: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        let Range { start, end } = positions;
        let part = self.part;
        (start / part..end.div_ceil(part))
            .map(move |i| start.max(i * part)..end.min((i + 1) * part))
    }

    /// Writes a row's attention, all heads of `head_dim` elements, to `out`: for each head, its
    /// parts merged in order.
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
            finish(cpu, self.values, merged, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Rotation, batch::Batch};

    #[test]
    fn partial_results_fit_in_what_is_counted() {
        let of = |heads, kv_heads| config::Attention {
            heads,
            kv_heads,
            head_dim: 64,
            n_rot: 64,
            window: None,
            rotation: Rotation::Global,
        };
        let (keys, values) = (CacheType::F16, CacheType::F16);
        // Returns the partial results of each head, for the last tokens of a context and for those
        // that extend a rolling one.
        let needed = |attention: &config::Attention, role, tokens: usize, context: usize| {
            let shape = Shape { kv_heads: attention.kv_heads, head_dim: 64, keys, values };
            let of = |first| {
                let row =
                    |i| Row { token: 0, position: first + i, sequence: 0, effective_length: 0 };
                let mut batch = Batch::default();
                batch.push(0, 0, false, (0..tokens).map(row));
                batch.end_role(role, |rows| Schedule::tile_rows(attention, rows));
                let (rows, tiles) = (&batch.rows, &batch.tiles[role as usize]);
                Schedule::new(attention, shape, rows, tiles, Visibility::ALL, role).partials_len()
            };
            let floats = of(context - tokens).max(of(context));
            floats / (attention.heads * partial_len(shape.padded_dim()))
        };
        for attention in [of(1, 1), of(9, 3), of(32, 8), of(71, 1), of(96, 1)] {
            for tokens in [1, 2, 3, 7, 8, 9, 63, 64, 65, 512] {
                for context in [1, 500, 1024, 1025, 10_000] {
                    let context = context.max(tokens);
                    let prompt = needed(&attention, Role::Prompt, tokens, context);
                    let answer = needed(&attention, Role::Answer, 1, context);
                    let Amount { fixed, per_token, per_part } = Schedule::partials(&attention);
                    let counted = fixed + per_token * tokens + per_part * context.div_ceil(PART);
                    assert!(prompt + answer <= counted, "{attention:?}, {tokens} of {context}");
                }
            }
        }
    }
}
