//! The schedule of attention: divides its work into tasks, and merges their partial results.
//!
//! A task is one KV head, one tile of rows (with all query heads that share the KV head), and one
//! part of the context. For a single row a task is several KV heads and a shorter part, so that it
//! reads longer runs of memory. The context is cut into parts, always at the same positions, which
//! are merged in order. With few rows, each part is a task; with many, one task computes all parts
//! in turn. So no result depends on the number of threads, on their speed, or on the number of rows
//! in a batch.

use std::ops::Range;

use rope_cpu_kernels::{
    Regime,
    attention::{BLOCK, Reading, faster_regime, finish, merge, partial_len},
    isa::Cpu,
};

use super::{
    allocator::Amount,
    batch::{Batch, Role, Row, Tile, cut},
    config::{self, HEAD_DIM_MAX},
    runs::Runs,
    sparse::{Group, SparseAttention, group_rows},
};
use crate::{
    kv_cache::{CacheType, PAGE, Shape},
    rope::{Region, Visibility},
};

/// Maximum queries of a tile (or one token's group, if that is larger).
pub const TILE_QUERIES: usize = 256;
/// Maximum queries of a tile if there are few rows.
const FEW_TILE_QUERIES: usize = 64;
/// The number of tasks below which tiles become smaller, so that all threads have some.
const TASKS: usize = 32;
/// The nearest positions to a row, without 8-bit products. Most of a row's attention is here, so
/// most of the error would be too.
const NEAR: usize = 2 * PAGE;
/// Maximum rows for making each part a task.
const FEW_ROWS: usize = 8;
/// Maximum positions of a part.
pub const PART: usize = 4 * PAGE;
/// Maximum KV heads of a task that has a single row.
pub const HEADS: usize = 4;
/// Maximum positions of a part if tasks have several KV heads.
const HEADS_PART: usize = 2 * PAGE;

/// Maximum positions of a part of an answer if values are a part of keys: all query heads share these,
/// so that the parts alone divide the work.
const LATENT_PART: usize = PAGE;

/// The schedules of a model: layers with heads of the same numbers and length share them.
pub struct Schedules {
    groups: Vec<[Schedule; 2]>,
    /// The index of the group of each layer that attends.
    layers: Vec<Option<usize>>,
}

/// The division of the attention of one role's rows into tasks, in layers with the same heads.
pub struct Schedule {
    kv_heads: usize,
    /// The number of query heads that share a KV head.
    pub group: usize,
    /// The elements of a head, padding included.
    pub dim: usize,
    /// The first element of values in a row that holds them: more than 0 if they are a part of keys.
    values_at: usize,
    role: Role,
    /// Whether tokens attend to earlier tokens only.
    causal: bool,
    /// The type that keys are stored in.
    pub keys: CacheType,
    /// The type that values are stored in; `None` if values are a part of keys.
    pub values: Option<CacheType>,
    /// The widest visibility of the layers.
    visibility: Visibility,
    tiles: Vec<Tile>,
    tile_rows: usize,
    /// The number of KV heads of a task.
    heads: usize,
    /// The number of tasks that the context is cut into.
    parts: usize,
    /// The positions of a part.
    part: usize,
    /// The first position of the second task. The first task has all parts before it, and little of
    /// them is left if the context rolls.
    second: usize,
    /// Set if rows may attend to chosen keys only.
    sparse: Option<SparseAttention>,
    /// Whether some of the rows do.
    sparse_rows: bool,
    /// The length of a list of chosen blocks, with their number before it.
    choice_len: usize,
}

/// The part of the context, the rows and the KV heads of one task.
pub struct Task {
    pub part: usize,
    /// The index of the tile.
    pub index: usize,
    pub tile: Tile,
    pub kv_heads: Range<usize>,
}

/// The partial results of a role's rows in a layer.
pub struct Partials<'a> {
    pub cpu: Cpu,
    pub partials: &'a [f32],
    /// A score of each query head without a value.
    pub sinks: Option<&'a [f32]>,
    /// Whether the cache holds mixed rows of values.
    pub mixed: bool,
}

impl Schedules {
    /// Creates the schedules of layers with these heads, pages and visibilities; `None` for a layer
    /// that does not attend. Layers with summaries of keys have the `sparse` attention of each role.
    pub fn new<'a>(
        layers: impl Iterator<Item = Option<(&'a config::Attention, (Shape, Visibility))>>,
        sparse: [Option<SparseAttention>; 2],
    ) -> Self {
        let mut groups: Vec<[Schedule; 2]> = Vec::new();
        let layers = layers.map(|layer| {
            let (attention, (shape, visibility)) = layer?;
            let sparse = sparse.map(|sparse| sparse.filter(|_| shape.summaries));
            let like = |group: &[Schedule; 2]| {
                let mut schedules = group.iter().zip(sparse);
                group[0].serves(attention, shape) && schedules.all(|(own, one)| own.sparse == one)
            };
            let index = groups.iter().position(like).unwrap_or_else(|| {
                groups.push(Role::ALL.map(|role| {
                    let sparse = sparse[role as usize];
                    Schedule { sparse, ..Schedule::new(attention, shape, role) }
                }));
                groups.len() - 1
            });
            groups[index].iter_mut().for_each(|schedule| schedule.widen(visibility));
            Some(index)
        });
        let layers = layers.collect();
        Schedules { groups, layers }
    }

    /// Divides the attention of a batch, which is dense in all layers for a role that is not `sparse`.
    pub fn divide(&mut self, batch: &Batch, sparse: [bool; 2]) {
        for schedule in self.groups.iter_mut().flatten() {
            let role = schedule.role;
            schedule.divide(&batch.rows[batch.roles.range(role)], sparse[role as usize]);
        }
    }

    /// Returns the preferred chunk length of a prompt in tokens, for steps up to position `end`; 1 if
    /// attention is dense up to there. Chunks end at its multiples.
    pub fn prompt_rows(&self, end: usize) -> usize {
        let prompts = self.groups.iter().map(|group| &group[Role::Prompt as usize]);
        let sparse = prompts.filter(|one| one.sparse.is_some_and(|sparse| sparse.applies(end)));
        sparse.map(Schedule::group_rows).max().unwrap_or(1)
    }

    /// Returns the maximum number of elements that all lists of chosen blocks have in a layer.
    pub fn choices_len(&self) -> usize {
        let lens = self.groups.iter().flatten().map(|group| group.choices() * group.choice_len);
        lens.max().unwrap_or(0)
    }

    /// Returns the schedules of a layer, one for each role, if it attends.
    pub fn of_layer(&self, layer: usize) -> Option<&[Schedule; 2]> {
        self.layers[layer].map(|group| &self.groups[group])
    }

    /// Returns the maximum number of floats that all tasks of a role write in a layer.
    pub fn partials_len(&self, role: Role) -> usize {
        let lens = self.groups.iter().map(|group| group[role as usize].partials_len());
        lens.max().unwrap_or(0)
    }
}

impl Schedule {
    /// Returns the maximum number of partial results for each query head, of a prompt and of one
    /// answer.
    pub fn partials(attention: &config::Attention) -> Amount {
        // A rolling context starts within a part, and a micro-batch extends it before it rolls.
        let parts = |rows| Amount { fixed: 2 * rows, per_token: 0, per_part: rows };
        let tile_rows = |rows| tile_rows(attention.heads, attention.group(), rows);
        // Tiles that are aligned may leave rows out at both ends.
        let prompt = Amount { fixed: 2 * tile_rows(usize::MAX), ..Amount::per_token(1) };
        let part = if attention.latent.is_some() { LATENT_PART } else { HEADS_PART };
        let answer = parts(PART / part);
        let few = tile_rows(FEW_ROWS).min(FEW_ROWS);
        let mut all = parts(FEW_ROWS.next_multiple_of(few));
        all += prompt;
        all += answer;
        all
    }

    /// Creates the schedule of layers with these heads and pages.
    fn new(attention: &config::Attention, shape: Shape, role: Role) -> Self {
        Schedule {
            kv_heads: attention.kv_heads,
            group: attention.group(),
            dim: shape.padded_dim(),
            values_at: attention.head_dim - attention.value_dim(),
            role,
            causal: attention.ahead == 0,
            keys: shape.keys,
            values: shape.values,
            visibility: Visibility::window(0),
            tiles: Vec::new(),
            tile_rows: 0,
            heads: 1,
            parts: 1,
            part: PART,
            second: PART,
            sparse: None,
            sparse_rows: false,
            choice_len: 0,
        }
    }

    /// Returns whether these heads and pages have the schedule's dimensions.
    fn serves(&self, attention: &config::Attention, shape: Shape) -> bool {
        let own = (self.kv_heads, self.group, self.dim, self.causal);
        own == (attention.kv_heads, attention.group(), shape.padded_dim(), attention.ahead == 0)
    }

    /// Adds a layer with this visibility.
    fn widen(&mut self, visibility: Visibility) {
        let keys = |one: Visibility| one.near.saturating_add(one.first);
        if keys(visibility) > keys(self.visibility) {
            self.visibility = visibility;
        }
    }

    /// Divides the attention of `rows`.
    fn divide(&mut self, rows: &[Row], sparse: bool) {
        let heads = self.kv_heads * self.group;
        self.sparse_rows = sparse && rows.iter().any(|row| self.applies(row));
        let rows_max = match self.sparse_rows {
            true => self.group_rows(),
            false => tile_rows(heads, self.group, rows.len()),
        };
        cut(rows, rows_max, self.sparse_rows, &mut self.tiles);
        self.tile_rows = self.tiles.iter().map(|tile| tile.rows).max().unwrap_or(0);
        let blocks = self.sparse.filter(|_| self.sparse_rows).and_then(|sparse| {
            let tiles = self.tiles.iter().map(|tile| &rows[tile.first..][..tile.rows]);
            let chosen = tiles.filter(|rows| self.applies(&rows[0]));
            chosen.map(|rows| sparse.blocks_max(&Group::of(rows, self.role))).max()
        });
        self.choice_len = blocks.map_or(0, |blocks| 1 + blocks);
        let end = rows.iter().map(|row| row.position + 1).max().unwrap_or(0);
        let first = rows.iter().map(|row| row.position).min().unwrap_or(0);
        // Far keys are either all the rest or a few first ones, which belong to the first part.
        let start = if self.visibility.first == usize::MAX {
            0
        } else {
            self.visibility.visible(Region::Near, first).start
        };
        let together = |&heads: &usize| self.kv_heads.is_multiple_of(heads);
        let few = self.role == Role::Answer
            && faster_regime(self.group, self.keys, Reading::Stored) == Regime::Few;
        self.heads = match few && rows.len() == 1 && !self.sparse_rows {
            true => (1..=HEADS).rfind(together).unwrap_or(1),
            false => 1,
        };
        self.part = match self.values {
            None if self.role == Role::Answer => LATENT_PART,
            _ if few => HEADS_PART,
            _ => PART,
        };
        self.second = start / self.part * self.part + self.part;
        self.parts = match rows.len() <= FEW_ROWS {
            true => {
                let dense = 1 + end.saturating_sub(self.second).div_ceil(self.part);
                match rows.iter().all(|row| self.is_sparse(row)) {
                    true => (blocks.unwrap_or(0) * BLOCK).div_ceil(self.part).max(1),
                    false => dense,
                }
            }
            false => 1,
        };
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
    fn partials_len(&self) -> usize {
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
        let kv_heads = first..first + self.heads;
        Task { part, index: tile, tile: self.tiles[tile], kv_heads }
    }

    /// Returns whether a row attends to chosen keys only, and with it all rows of its tile.
    pub fn is_sparse(&self, row: &Row) -> bool {
        self.sparse_rows && self.applies(row)
    }

    fn applies(&self, row: &Row) -> bool {
        let group = row.position / self.group_rows() * self.group_rows();
        self.sparse.is_some_and(|sparse| sparse.applies(group))
    }

    /// Returns the number of positions that choose keys together.
    fn group_rows(&self) -> usize {
        group_rows(self.role, self.group)
    }

    /// Returns a tile.
    pub fn tile(&self, index: usize) -> Tile {
        self.tiles[index]
    }

    /// Returns the settings of sparse attention.
    pub fn sparse(&self) -> Option<&SparseAttention> {
        self.sparse.as_ref()
    }

    /// Returns the number of lists of chosen blocks: one for each tile and KV head.
    pub fn choices(&self) -> usize {
        if self.sparse_rows { self.tiles.len() * self.kv_heads } else { 0 }
    }

    /// Returns the number of elements that a list of chosen blocks takes.
    pub fn choice_len(&self) -> usize {
        self.choice_len
    }

    /// Returns the blocks that were chosen for a tile and a KV head, from the lists of all.
    pub fn choice<'c>(&self, all: &'c [u32], tile: usize, kv_head: usize) -> &'c [u32] {
        let list = &all[(tile * self.kv_heads + kv_head) * self.choice_len..][..self.choice_len];
        &list[1..=list[0] as usize]
    }

    /// Returns the parts of `keys` that belong to a task.
    pub fn parts<'k>(&self, task_part: usize, keys: &Runs<'k>) -> impl Iterator<Item = Runs<'k>> {
        let (all, second) = (keys.parts(self.part), self.second / self.part);
        let own = match task_part {
            _ if self.parts == 1 => all.clone(),
            0 => 0..second,
            later => second + later - 1..second + later,
        };
        let (len, keys) = (self.part, keys.clone());
        (own.start.max(all.start)..own.end.min(all.end)).map(move |part| keys.part(part, len))
    }

    /// Returns the regime of products with keys.
    pub fn regime(&self, reading: Reading) -> Regime {
        match self.role {
            Role::Prompt => Regime::Many,
            Role::Answer => faster_regime(self.group, self.keys, reading),
        }
    }

    /// Returns the boundary of far keys and values for a row at `position`: products with positions
    /// before it are computed in 8 bits. It is the start of a page.
    ///
    /// An answer has too few rows to make rounding keys and values for them worth its time, and so do
    /// the texts of encoders, which are short.
    pub fn far(&self, position: usize) -> usize {
        match self.role {
            Role::Prompt if self.causal => (position / PAGE * PAGE).saturating_sub(NEAR),
            Role::Prompt | Role::Answer => 0,
        }
    }

    /// Returns the first element of values that the kernel sums. Elements before it, which belong to
    /// keys alone, take part if the cache mixes them with values.
    pub fn values_from(&self) -> usize {
        let run = 1 << self.dim.trailing_zeros();
        let apart = !self.keys.is_mixed() || self.values_at.is_multiple_of(run);
        if apart { self.values_at } else { 0 }
    }

    /// Writes a row's attention in some query heads to `out`, the same number of elements for each:
    /// its parts merged in order.
    pub fn gather(&self, from: &Partials<'_>, row: usize, heads: Range<usize>, out: &mut [f32]) {
        let Partials { cpu, partials, sinks, mixed } = *from;
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
        let value_dim = out.len() / heads.len();
        for (head, out) in heads.zip(out.chunks_exact_mut(value_dim)) {
            let merged = &mut merged[..len];
            merged.copy_from_slice(of(0, head));
            for part in 1..self.parts {
                merge(cpu, merged, of(part, head));
            }
            if let Some(sinks) = sinks {
                let mut sink = [0.0; partial_len(HEAD_DIM_MAX)];
                (sink[self.dim], sink[self.dim + 1]) = (sinks[head], 1.0);
                merge(cpu, merged, &sink[..len]);
            }
            finish(cpu, mixed, self.values_at, merged, out);
        }
    }
}

/// Returns the maximum rows of a tile, for `rows` rows of `heads` query heads in groups of `group`.
fn tile_rows(heads: usize, group: usize, rows: usize) -> usize {
    let queries = rows.saturating_mul(heads) / TASKS;
    (queries.clamp(FEW_TILE_QUERIES, TILE_QUERIES) / group).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Rotation;

    #[test]
    fn partial_results_fit_in_what_is_counted() {
        let of = |heads, kv_heads| config::Attention {
            heads,
            kv_heads,
            head_dim: 64,
            n_rot: 64,
            window: None,
            ahead: 0,
            rotation: Rotation::Global,
            scale: 1.0,
            shared_with: None,
            latent: None,
        };
        let (keys, values) = (CacheType::F16, CacheType::F16);
        // Returns the partial results of each head, for the last tokens of a context and for tokens
        // that extend a rolling one.
        let needed = |attention: &config::Attention, role, tokens: usize, context: usize| {
            let (kv_heads, head_dim) = (attention.kv_heads, attention.head_dim);
            let values = Some(values).filter(|_| attention.latent.is_none());
            let shape = Shape { kv_heads, head_dim, keys, values, summaries: false };
            let of = |first| {
                let row =
                    |i| Row { token: 0, position: first + i, sequence: 0, effective_length: 0 };
                let mut schedule = Schedule::new(attention, shape, role);
                schedule.widen(Visibility::ALL);
                schedule.divide(&(0..tokens).map(row).collect::<Vec<_>>(), false);
                schedule.partials_len()
            };
            let floats = of(context - tokens).max(of(context));
            floats / (attention.heads * partial_len(shape.padded_dim()))
        };
        let latent = |heads| config::Attention {
            latent: Some(config::Latent { unrotated: 32, value_dim: 32, joined: false }),
            head_dim: 96,
            n_rot: 32,
            ..of(heads, 1)
        };
        let plain = [of(1, 1), of(9, 3), of(32, 8), of(71, 1), of(96, 1)];
        for attention in plain.into_iter().chain([latent(2), latent(16), latent(128)]) {
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
