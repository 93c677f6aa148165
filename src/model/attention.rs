//! Attention as a phase: how its work is cut into tasks, and how their partial results become rows.
//!
//! A task is one head of keys and values, one tile of rows (with all query heads that share the
//! head), and one part of the context. Long contexts are cut into parts only where rows are few,
//! always at the same positions, and parts are merged in order: the cut depends on neither the
//! number of threads nor on which of them was faster.

use std::ops::Range;

use rope_cpu_kernels::{
    attention::{Queries, Rotation, attend, clear, finish, merge, partial_len},
    isa::Cpu,
    vector::{add, rms_norm, rotate},
};

use super::{
    Config, Pairing, batch::Row, batch::Tile, config::HEAD_DIM_MAX, state::Private, weights::Layer,
};
use crate::{
    kv_cache::{CacheType, KvCache, POSITIONS, Shape},
    rope::{Layers, Rope},
    threads::{Phase, Run},
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
    group: usize,
    dim: usize,
    tile_rows: usize,
    parts: usize,
}

/// Where one task's work lies.
struct Task {
    part: usize,
    tile: Tile,
    kv_head: usize,
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
        all.max(few * row * context.div_ceil(PART))
    }

    /// The plan for `rows`, cut into `tiles` of at most [`Plan::tile_rows`].
    pub fn new(config: &Config, shape: Shape, rows: &[Row], tiles: &'s [Tile]) -> Self {
        let end = rows.iter().map(|row| row.position + 1).max().unwrap_or(0);
        Plan {
            tiles,
            kv_heads: config.kv_heads,
            group: config.group(),
            dim: shape.padded_dim(),
            tile_rows: Self::tile_rows(config, rows.len()),
            parts: if rows.len() <= FEW_ROWS { end.div_ceil(PART) } else { 1 },
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

    fn task(&self, task: usize) -> Task {
        let (kv_head, rest) = (task % self.kv_heads, task / self.kv_heads);
        let (tile, part) = (rest % self.tiles.len(), rest / self.tiles.len());
        Task { part, tile: self.tiles[tile], kv_head }
    }

    /// The positions that a task looks at.
    fn positions(&self, part: usize, visible: Range<usize>) -> Range<usize> {
        if self.parts == 1 {
            return visible;
        }
        visible.start.max(part * PART)..visible.end.min((part + 1) * PART)
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

/// What all heads of a layer have in common.
pub struct Heads<'a> {
    pub cpu: Cpu,
    pub config: &'a Config,
    pub layer: &'a Layer<'a>,
    pub index: usize,
    pub rope: &'a Rope,
    pub effective_length: usize,
}

/// Rows that attend together, with the query heads that share a head of keys.
struct Group<'a> {
    rows: &'a [Row],
    heads: usize,
    /// Values of a head, with those that fill it up.
    dim: usize,
}

impl Heads<'_> {
    /// Adds its bias to a head of `part` (0 queries, 1 keys, 2 values), in the file's order.
    fn biased(&self, part: usize, head: usize, x: &[f32], out: &mut [f32]) {
        let dim = self.config.head_dim;
        out[..dim].copy_from_slice(x);
        out[dim..].fill(0.0);
        if let Some(bias) = self.layer.query_key_value.parts[part].bias {
            add(self.cpu, &mut out[..dim], &bias[head * dim..][..dim]);
        }
    }

    /// A head of queries or keys, to be rotated: biased, normed, in halves order.
    fn raw(&self, part: usize, head: usize, x: &[f32], out: &mut [f32]) {
        self.biased(part, head, x, out);
        let norm = if part == 0 { self.layer.query_norm } else { self.layer.key_norm };
        if let Some(norm) = norm {
            rms_norm(self.cpu, &mut out[..self.config.head_dim], norm, self.config.epsilon);
        }
        let n_rot = self.config.n_rot;
        if self.config.pairing == Pairing::Adjacent {
            to_halves(&mut out[..n_rot]);
        }
    }

    fn layers(&self) -> Layers {
        match self.config.layer_window(self.index) {
            Some(_) => Layers::Window,
            None => Layers::Global,
        }
    }

    /// Whether the cache holds keys before rotation.
    fn keys_are_raw(&self) -> bool {
        self.layers() == Layers::Global && self.rope.plan().raw_keys()
    }

    fn rope_row(&self, position: usize) -> &[f32] {
        self.rope.row(self.layers(), self.effective_length, position)
    }

    /// Stores the keys and values of one head at the positions of one block of each page.
    pub fn store(
        &self,
        cache: &KvCache,
        run: &mut Run<'_>,
        rows: &[Row],
        query_key_value: &[f32],
        head_buffer: &mut [f32],
    ) {
        use crate::kv_cache::{BLOCK, BLOCKS};
        let linear = &self.layer.query_key_value;
        let [_, keys, values] = linear.columns();
        let (head, block, dim) = (run.task() / BLOCKS, run.task() % BLOCKS, self.config.head_dim);
        for (i, row) in rows.iter().enumerate() {
            if row.position % POSITIONS / BLOCK != block {
                continue;
            }
            let Some(page) = cache.page(row.sequence, self.index, row.position) else { continue };
            let x = &query_key_value[i * linear.width..][..linear.width];
            self.raw(1, head, &x[keys + head * dim..][..dim], head_buffer);
            if !self.keys_are_raw() {
                rotate(self.cpu, head_buffer, self.rope_row(row.position));
            }
            page.store_key(self.cpu, run, row.position, head_buffer);
            self.biased(2, head, &x[values + head * dim..][..dim], head_buffer);
            page.store_value(self.cpu, run, row.position, head_buffer);
        }
    }

    /// Computes one task of attention into its partials.
    #[expect(clippy::too_many_arguments, reason = "what a task reads is shared by the phase")]
    pub fn attend(
        &self,
        plan: &Plan<'_>,
        cache: &KvCache,
        phase: &Phase<'_>,
        task: usize,
        rows: &[Row],
        query_key_value: &[f32],
        private: &mut Private,
        partials: &mut [f32],
    ) {
        let Task { part, tile, kv_head } = plan.task(task);
        let (group, dim) = (plan.group, plan.dim);
        let count = tile.rows * group;
        let partials = &mut partials[..count * partial_len(dim)];
        clear(partials, dim);
        let tile_rows = &rows[tile.first..][..tile.rows];
        let [first, last] = [tile_rows[0], tile_rows[tile.rows - 1]];
        let all = cache.first_visible(self.index, first.position)..last.position + 1;
        let positions = plan.positions(part, all);
        if positions.is_empty() {
            return;
        }

        let width = self.layer.query_key_value.width;
        for i in 0..tile.rows {
            for g in 0..group {
                let head = kv_head * group + g;
                let x = &query_key_value[(tile.first + i) * width..][head * self.config.head_dim..];
                let query = &mut private.queries[(i * group + g) * dim..][..dim];
                self.raw(0, head, &x[..self.config.head_dim], query);
                query.iter_mut().for_each(|x| *x *= self.config.attention_scale);
            }
        }
        let tile = Group { rows: tile_rows, heads: group, dim };
        let rotation = self.keys_are_raw().then(|| Rotation {
            rows: self.rope.first_rows(self.layers(), self.effective_length),
            n_rot: self.config.n_rot,
            group: 1,
            before: 0,
        });
        if rotation.is_none() {
            self.prepare(&tile, 0, rotation, cache.shape().keys, private);
        }

        for page in positions.start / POSITIONS..positions.end.div_ceil(POSITIONS) {
            let start = page * POSITIONS;
            let Some(page) = cache.page(first.sequence, self.index, start) else { continue };
            private.visible.clear();
            for row in tile_rows {
                let from = cache.first_visible(self.index, row.position).max(positions.start);
                let within = |p: usize| p.clamp(start, start + POSITIONS) - start;
                let visible = within(from)..within((row.position + 1).min(positions.end));
                private.visible.extend(std::iter::repeat_n(visible, group));
            }
            if rotation.is_some() {
                self.prepare(&tile, start, rotation, cache.shape().keys, private);
            }
            let (keys, values) = (page.keys(phase, kv_head), page.values(phase, kv_head));
            let Private { visible, attention, .. } = private;
            attend(self.cpu, visible, keys, rotation, values, attention, partials);
        }
    }

    /// Rotates queries by their distance from position `start`, and hands them to the kernel. Those
    /// from before it see nothing there.
    fn prepare(
        &self,
        tile: &Group<'_>,
        start: usize,
        rotation: Option<Rotation<'_>>,
        keys: CacheType,
        private: &mut Private,
    ) {
        let Group { rows, heads, dim } = *tile;
        let Private { attention, queries, rotated, .. } = private;
        let rotated = &mut rotated[..rows.len() * heads * dim];
        rotated.copy_from_slice(&queries[..rotated.len()]);
        for (row, rotated) in rows.iter().zip(rotated.chunks_exact_mut(heads * dim)) {
            if row.position >= start {
                let row = self.rope_row(row.position - start);
                rotated.chunks_exact_mut(dim).for_each(|query| rotate(self.cpu, query, row));
            }
        }
        let soft_cap = self.config.attention_soft_cap;
        attention.prepare(
            self.cpu,
            Queries { queries: rotated, dim, soft_cap },
            keys,
            rotation.is_some(),
        );
    }
}

/// From pairs side by side to pairs half a head apart: all first elements, then all second ones.
fn to_halves(x: &mut [f32]) {
    let mut seconds = [0.0; HEAD_DIM_MAX / 2];
    let half = x.len() / 2;
    for i in 0..half {
        seconds[i] = x[2 * i + 1];
        x[i] = x[2 * i];
    }
    x[half..].copy_from_slice(&seconds[..half]);
}
