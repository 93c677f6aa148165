//! Computes single heads of a layer: stores keys and values in the KV cache, and attends in tasks.

mod choice;
mod observe;
mod probe;

use std::{mem, ops::Range};

use rope_cpu_kernels::{
    Regime,
    attention::{self, Queries, Reading, attend, attend_in_eight_bits, clear, merge, partial_len},
    hadamard::mix_rows,
    isa::Cpu,
    vector::{add, rotate},
};

use super::{
    Pairing, Rotation,
    attention::{Partials, Schedule, Task},
    batch::{Role, Row},
    config::HEAD_DIM_MAX,
    forward::Forward,
    runs::Runs,
    state::WorkerBuffers,
    weights::{Attention, Gates, NormWeights, Projection},
};
use crate::{
    kv_cache::{PAGE, TASK_POSITIONS, TASKS},
    rope::{Layers, Region, Rope, Visibility},
    threads::{Claim, Phase},
};

/// The weights of a norm without weights.
static ONES: [f32; HEAD_DIM_MAX] = [1.0; HEAD_DIM_MAX];

/// The data that all heads of a layer share.
pub struct Heads<'a> {
    pub pass: &'a Forward<'a>,
    pub attention: &'a Attention<'a>,
    /// The attention that stored the keys and values.
    pub stored: &'a Attention<'a>,
    /// The schedule of each role.
    pub schedules: &'a [Schedule; 2],
}

/// The queries of one task: rows that attend together, with the query heads of its KV heads.
struct QueryTile<'a> {
    schedule: &'a Schedule,
    rows: &'a [Row],
    kv_heads: Range<usize>,
    /// The number of query heads for each KV head.
    heads: usize,
    /// The elements of a head, padding included.
    dim: usize,
}

impl Heads<'_> {
    /// Copies a head of a projection to `out`, with its bias added unless that is separate, and pads it
    /// with zeros. The elements are in the file's order.
    fn biased(&self, projection: Projection, head: usize, x: &[f32], out: &mut [f32]) {
        let dim = self.attention.config.head_dim;
        out[..dim].copy_from_slice(x);
        out[dim..].fill(0.0);
        let separate = projection == Projection::Key && self.separate_key_bias().is_some();
        if let Some(bias) = self.attention.later_bias(projection)
            && !separate
        {
            add(self.cpu(), &mut out[..dim], &bias[head * dim..][..dim]);
        }
    }

    /// Writes the separate biases of keys to `out`, (KV heads, padded dim), as [`Heads::raw`] returns
    /// keys. Returns nothing if they have none.
    fn key_biases<'b>(&self, tile: &QueryTile<'_>, out: &'b mut [f32]) -> &'b mut [f32] {
        let Some(biases) = self.separate_key_bias() else { return &mut [] };
        let out = &mut out[..tile.kv_heads.len() * tile.dim];
        out.fill(0.0);
        let biases = biases.chunks_exact(self.attention.config.head_dim).skip(tile.kv_heads.start);
        for (bias, out) in biases.zip(out.chunks_exact_mut(tile.dim)) {
            out[..bias.len()].copy_from_slice(bias);
            self.reorder(out);
        }
        out
    }

    /// Brings a head of queries or keys from the file's order to halves order.
    fn reorder(&self, x: &mut [f32]) {
        if self.attention.pairing == Pairing::Adjacent {
            to_halves(&mut x[..self.attention.config.n_rot]);
        }
    }

    /// Copies a head of queries or keys to `out` as they are before rotation: with the bias added
    /// unless it is separate, normalized unless that comes after rotation, in halves order.
    fn raw(&self, projection: Projection, head: usize, x: &[f32], out: &mut [f32]) {
        self.biased(projection, head, x, out);
        let norm = match projection {
            Projection::Query => self.attention.query_norm,
            Projection::Key => self.attention.key_norm,
            Projection::Value => None,
        };
        let dim = self.attention.config.head_dim;
        if !self.attention.norms_after_rotation {
            self.norm(out, norm.map(|all| all.of_head(head, dim)));
        }
        self.reorder(out);
    }

    /// Normalizes a head, if there is a norm.
    fn norm(&self, head: &mut [f32], norm: Option<NormWeights<'_>>) {
        self.pass.norm(&mut head[..self.attention.config.head_dim], norm);
    }

    /// Returns the factor of a row's queries.
    fn query_scale(&self, row: &Row) -> f32 {
        let (scale, plan) = (self.attention.config.scale, self.rope().plan());
        match self.follows_methods() {
            true => {
                let scale = scale * plan.query_scale(row.position);
                scale * plan.score_scale(row.effective_length)
            }
            false => scale,
        }
    }

    fn cpu(&self) -> Cpu {
        self.pass.cpu
    }

    fn rope(&self) -> &Rope {
        self.pass.rope
    }

    /// Returns whether RoPE methods act on this layer.
    fn follows_methods(&self) -> bool {
        self.attention.config.rotation == Rotation::Global
    }

    /// Returns whether the KV cache holds raw keys (before rotation), which rotate when they are
    /// used.
    fn keys_are_raw(&self) -> bool {
        let plan = self.rope().plan();
        match self.attention.config.rotation {
            Rotation::Global => plan.shifts || plan.raw_keys(),
            Rotation::Window => plan.shifts,
            Rotation::None => false,
        }
    }

    /// Returns the bias of keys, (KV heads, head dim), if the KV cache holds keys without it. It is
    /// then added when keys are used.
    ///
    /// Some models (Qwen 2) have biases that are far larger than the differences of their keys: a
    /// step of 4 bits would be larger than these. Layers keep the bias in their keys if their
    /// cosines and sines are not prepared from the first position on.
    fn separate_key_bias(&self) -> Option<&[f32]> {
        let bias = self.stored.later_bias(Projection::Key)?;
        let by_type = self.schedules[Role::Answer as usize].keys.separates_bias();
        let separate = by_type && self.follows_methods() && self.stored.key_norm.is_none();
        separate.then_some(bias)
    }

    /// Returns whether raw keys need more than a read although they do not rotate: they are not
    /// mixed, unlike others of their type, or lack their bias.
    fn raw_keys_differ(&self, schedule: &Schedule) -> bool {
        schedule.keys.is_mixed() || self.separate_key_bias().is_some()
    }

    /// Returns the partial results of a role, from which a schedule gathers.
    pub fn partials<'p>(&self, role: Role, partials: &'p [f32]) -> Partials<'p>
    where
        Self: 'p,
    {
        let Schedule { keys, values, .. } = self.schedules[role as usize];
        let mixed = match values {
            Some(values) => values.is_mixed(),
            None => keys.is_mixed() && !self.keys_are_raw(),
        };
        Partials { cpu: self.cpu(), partials, sinks: self.attention.sinks, mixed }
    }

    /// Returns the keys that queries of this layer attend to.
    fn visibility(&self) -> Visibility {
        self.attention.config.window.map_or(self.rope().plan().visibility, Visibility::window)
    }

    /// Returns the positions of the keys in a region that the query at `position` attends to. They
    /// may continue past the end of the text.
    fn visible(&self, region: Region, position: usize) -> Range<usize> {
        let Range { start, end } = self.visibility().visible(region, position);
        let ahead = match region {
            Region::Near => self.attention.config.ahead,
            Region::Far | Region::Chunk(_) => 0,
        };
        start..end.saturating_add(ahead)
    }

    /// Returns the table of cosines and sines for a region of keys; `None` if they do not rotate.
    fn layers(&self, region: Region) -> Option<Layers> {
        match self.attention.config.rotation {
            Rotation::Global => Some(self.visibility().layers(region)),
            Rotation::Window => Some(Layers::Window),
            Rotation::None => None,
        }
    }

    fn rope_row(&self, layers: Layers, effective_length: usize, position: usize) -> &[f32] {
        self.rope().row(layers, effective_length, position)
    }

    /// Stores the keys and values of one head in the KV cache. The claimed task selects the head
    /// and a part of each page: the rows with positions in that part are stored.
    pub fn store(&self, claim: &mut Claim<'_>, query_key_value: &[f32], head_buffer: &mut [f32]) {
        let [keys, values] =
            [Projection::Key, Projection::Value].map(|one| self.attention.column(one));
        let width = self.pass.state.query_key_value.width();
        let schedule = &self.schedules[Role::Answer as usize];
        let (head, part, dim) =
            (claim.task() / TASKS, claim.task() % TASKS, self.attention.config.head_dim);
        let head_buffer = &mut head_buffer[..schedule.dim];
        for (i, row) in self.pass.batch.rows.iter().enumerate() {
            if row.position % PAGE / TASK_POSITIONS != part {
                continue;
            }
            let page = self.pass.tables[row.sequence].page(self.attention.layer, row.position);
            let Some(page) = page else { continue };
            let x = &query_key_value[i * width..][..width];
            self.raw(Projection::Key, head, &x[keys + head * dim..][..dim], head_buffer);
            if !self.keys_are_raw()
                && let Some(layers) = self.layers(Region::Near)
            {
                let position = self.visibility().from_origin(row.position);
                let rotation = self.rope_row(layers, row.effective_length, position);
                rotate(self.cpu(), head_buffer, rotation);
            }
            if self.attention.norms_after_rotation {
                self.norm(head_buffer, self.attention.key_norm);
            }
            if schedule.keys.is_mixed() && !self.keys_are_raw() {
                mix_rows(self.cpu(), head_buffer, head_buffer.len());
            }
            page.store_key(self.cpu(), claim, row.position, head_buffer);
            let Some(values_type) = schedule.values else { continue };
            self.biased(Projection::Value, head, &x[values + head * dim..][..dim], head_buffer);
            if let Some(norm) = self.attention.value_norm {
                norm.apply(self.cpu(), &mut head_buffer[..dim], &ONES[..dim]);
            }
            if values_type.is_mixed() {
                mix_rows(self.cpu(), head_buffer, head_buffer.len());
            }
            page.store_value(self.cpu(), claim, row.position, head_buffer);
        }
    }

    /// Computes one task of a role's attention, and writes its partial results to `partials`.
    pub fn attend(
        &self,
        role: Role,
        phase: &Phase<'_>,
        task: usize,
        query_key_value: &[f32],
        buffers: &mut WorkerBuffers,
        partials: &mut [f32],
    ) {
        let batch = self.pass.batch;
        let (schedule, rows) = (&self.schedules[role as usize], batch.roles.range(role));
        let first_row = rows.start;
        let rows = &batch.rows[rows];
        let Task { part, index, tile, kv_heads } = schedule.task(task);
        let (group, dim) = (schedule.group, schedule.dim);
        let count = kv_heads.len() * tile.rows * group;
        let partials = &mut partials[..count * partial_len(dim)];
        clear(partials, dim);
        let tile_rows = &rows[tile.first..][..tile.rows];
        let [first, last] = [tile_rows[0], tile_rows[tile.rows - 1]];
        let end = self.visible(Region::Near, last.position).end;
        let end = end.min(batch.end(first_row + tile.first));
        let chosen = schedule.is_sparse(&first).then(|| {
            let lists = self.pass.state.choices.read(phase);
            schedule.choice(lists, index, kv_heads.start)
        });
        let keys = match chosen {
            Some(blocks) => Runs::Blocks(blocks, end),
            None => {
                let gaps = self.pass.tables[first.sequence].gaps();
                Runs::All(self.visibility().start(first.position)..end, gaps)
            }
        };
        let mut parts = schedule.parts(part, &keys);
        let Some(first_part) = parts.next() else { return };

        let inputs = &query_key_value[(first_row + tile.first) * self.width()..];
        let tile = QueryTile { schedule, rows: tile_rows, kv_heads, heads: group, dim };
        self.load_queries(&tile, inputs, &mut buffers.queries);
        let mut prepared = None;
        self.attend_part(phase, &tile, first_part, &mut prepared, buffers, partials);
        for runs in parts {
            let mut more = mem::take(&mut buffers.partials);
            let part = &mut more[..partials.len()];
            clear(part, dim);
            self.attend_part(phase, &tile, runs, &mut prepared, buffers, part);
            let queries = partials.chunks_exact_mut(partial_len(dim));
            for (all, part) in queries.zip(part.chunks_exact(partial_len(dim))) {
                merge(self.cpu(), all, part);
            }
            buffers.partials = more;
        }
    }

    /// Returns the number of elements of a row of queries, keys and values.
    fn width(&self) -> usize {
        self.pass.state.query_key_value.width()
    }

    /// Returns the number of elements from a head of queries to the next one.
    fn query_stride(&self) -> usize {
        let gated = matches!(self.attention.gates, Some(Gates::WithQueries));
        self.attention.config.head_dim * (1 + usize::from(gated))
    }

    /// Writes the queries of a tile, not rotated, to `out`. They are scaled, unless their norm follows
    /// the rotation: its constant belongs to queries that are not. `inputs` starts at the tile's first
    /// row.
    fn load_queries(&self, tile: &QueryTile<'_>, inputs: &[f32], out: &mut [f32]) {
        let QueryTile { rows, kv_heads, heads: group, dim, .. } = tile;
        let (head_dim, stride) = (self.attention.config.head_dim, self.query_stride());
        for (i, row) in rows.iter().enumerate() {
            let scale =
                if self.attention.norms_after_rotation { 1.0 } else { self.query_scale(row) };
            for head in kv_heads.start * group..kv_heads.end * group {
                let x = &inputs[i * self.width()..][head * stride..];
                let (kv_head, g) = (head / group - kv_heads.start, head % group);
                let query = (kv_head * rows.len() + i) * group + g;
                let query = &mut out[query * dim..][..*dim];
                self.raw(Projection::Query, head, &x[..head_dim], query);
                query.iter_mut().for_each(|x| *x *= scale);
            }
        }
    }

    /// Attends to one part of the context. A row may attend to some of its positions only. `prepared` is the
    /// region that queries are rotated for, if keys are not raw.
    fn attend_part(
        &self,
        phase: &Phase<'_>,
        tile: &QueryTile<'_>,
        runs: Runs<'_>,
        prepared: &mut Option<Region>,
        buffers: &mut WorkerBuffers,
        partials: &mut [f32],
    ) {
        let raw = self.keys_are_raw();
        let QueryTile { rows, kv_heads, heads, .. } = tile;
        let table = self.pass.tables[rows[0].sequence];
        let page = |start| table.page(self.attention.source(), start);
        let mut runs = runs.peekable();
        while let Some(run) = runs.next() {
            let start = run.start / PAGE * PAGE;
            let Some(here) = page(start) else { continue };
            let keys = here.keys(phase, kv_heads.clone());
            let values = here.values(phase, kv_heads.clone());
            let next = runs.peek().filter(|next| next.start.is_multiple_of(PAGE));
            let next = next.and_then(|next| page(next.start));
            let next_keys = next.map_or(&[][..], |page| page.keys(phase, kv_heads.clone()).bytes);
            // Rows are in order of their positions.
            let far = |row: &Row| start < tile.schedule.far(row.position);
            let (some_far, all_far) = (far(&rows[rows.len() - 1]), far(&rows[0]));
            let regions = self.visibility().regions(run.clone());
            let kinds = regions.flat_map(|region| [(region, false), (region, true)]);
            let computed = |eight_bits: bool| if eight_bits { some_far } else { !all_far };
            for (region, eight_bits) in kinds.filter(|kind| computed(kind.1)) {
                buffers.visible.clear();
                for row in *rows {
                    let seen = self.visible(region, row.position);
                    let within = |p: usize| p.clamp(run.start, run.end) - start;
                    let seen = if far(row) == eight_bits { seen } else { 0..0 };
                    let visible = within(seen.start)..within(seen.end);
                    buffers.visible.extend(std::iter::repeat_n(visible, *heads));
                }
                if buffers.visible.iter().all(Range::is_empty) {
                    continue;
                }
                if raw || *prepared != Some(region) {
                    self.prepare(tile, region, raw.then_some(start), None, buffers);
                    *prepared = Some(region);
                }
                let WorkerBuffers { visible, attention, bias, .. } = buffers;
                let (cpu, rotation) = (self.cpu(), self.rotation(tile, region, start, bias));
                if eight_bits {
                    let anchor = table.gaps().run(start..run.end).start - start;
                    attend_in_eight_bits(
                        cpu, visible, keys, rotation, anchor, values, attention, partials,
                    );
                } else {
                    attend(cpu, visible, keys, rotation, values, next_keys, attention, partials);
                }
            }
        }
    }

    /// Returns the rotation of keys of a page that starts at `start`, or of their bias; `None` if
    /// they are used as they are stored. `bias` is a buffer.
    fn rotation<'b>(
        &'b self,
        tile: &QueryTile<'_>,
        region: Region,
        start: usize,
        bias: &'b mut [f32],
    ) -> Option<attention::Rotation<'b>> {
        let raw = self.keys_are_raw();
        if !raw && self.separate_key_bias().is_none() {
            return None;
        }
        let (layers, len) = (self.layers(region)?, tile.rows[0].effective_length);
        let (bias, n_rot) = (self.key_biases(tile, bias), self.attention.config.n_rot);
        let Some(group) = self.visibility().group(region) else {
            // A rotation of no values.
            let (rows, n_rot, group, before, arcs) = (&[][..], 0, 1, 0, None);
            let rotation = attention::Rotation { rows, n_rot, group, before, arcs, bias };
            return self.raw_keys_differ(tile.schedule).then_some(rotation);
        };
        let mut arcs = None;
        if !raw {
            arcs = self.rope().arcs(layers, len);
            // Rotation to the page's start, and from there to a position, each multiply by this scale.
            let inverse = 1.0 / self.rope().scale(layers, len);
            let origin = self.visibility().origin(region);
            let row = self.rope_row(layers, len, start.abs_diff(origin));
            let mut back = [0.0; HEAD_DIM_MAX];
            let row = match start < origin {
                true => reversed(row, &mut back),
                false => row,
            };
            for head in bias.chunks_exact_mut(tile.dim) {
                rotate(self.cpu(), head, row);
                head[..n_rot].iter_mut().for_each(|x| *x *= inverse);
            }
        }
        let (rows, before) = (self.rope().first_rows(layers, len), start % group);
        Some(attention::Rotation { rows, n_rot, group, before, arcs, bias })
    }

    /// Writes rotated queries to `buffers.rotated`. If `start` is set, keys are raw: queries that
    /// attend to keys of the page at `start` rotate by their distance from its first key. Otherwise
    /// keys are already rotated, and queries rotate by their position, counted like that of the keys.
    fn rotate_queries(
        &self,
        tile: &QueryTile<'_>,
        region: Region,
        start: Option<usize>,
        buffers: &mut WorkerBuffers,
    ) {
        let QueryTile { rows, heads, dim, .. } = *tile;
        let kv_heads = tile.kv_heads.len();
        let WorkerBuffers { queries, rotated, visible, .. } = buffers;
        let rotated = &mut rotated[..kv_heads * rows.len() * heads * dim];
        rotated.copy_from_slice(&queries[..rotated.len()]);
        let visibility = self.visibility();
        let group = visibility.group(region);
        let origin = visibility.origin(region);
        let first_key = group.map_or(0, |group| start.unwrap_or(origin) / group);
        for (i, rotated) in rotated.chunks_exact_mut(heads * dim).enumerate() {
            let i = i % rows.len();
            if start.is_some() && visible[i * heads].is_empty() {
                continue;
            }
            let Some(layers) = self.layers(region) else { break };
            let effective_length = rows[i].effective_length;
            let position = visibility.query(region, rows[i].position) - first_key;
            let row = self.rope_row(layers, effective_length, position);
            for query in rotated.chunks_exact_mut(dim) {
                rotate(self.cpu(), query, row);
                if self.attention.norms_after_rotation {
                    self.norm(query, self.attention.query_norm);
                    let scale = self.query_scale(&rows[i]);
                    query.iter_mut().for_each(|x| *x *= scale);
                }
                if group.is_none() {
                    // Rotation would multiply the keys by this scale, but these do not rotate.
                    let scale = self.rope().scale(layers, effective_length);
                    query[..self.attention.config.n_rot].iter_mut().for_each(|x| *x *= scale);
                }
            }
        }
    }

    /// Rotates queries as [`Heads::rotate_queries`] does, and passes them to the kernel, by default in
    /// the regime of the schedule.
    fn prepare(
        &self,
        tile: &QueryTile<'_>,
        region: Region,
        start: Option<usize>,
        regime: Option<Regime>,
        buffers: &mut WorkerBuffers,
    ) {
        self.rotate_queries(tile, region, start, buffers);
        let QueryTile { schedule, rows, heads, dim, .. } = *tile;
        let kv_heads = tile.kv_heads.len();
        let WorkerBuffers { attention, rotated, .. } = buffers;
        let group = self.visibility().group(region);
        let soft_cap = self.pass.config.scales.score_cap;
        let reading = match start {
            Some(_) if group.is_some() || self.raw_keys_differ(schedule) => Reading::Rotated,
            None if self.separate_key_bias().is_some() => Reading::Biased,
            _ => Reading::Stored,
        };
        let regime = regime.unwrap_or_else(|| schedule.regime(reading));
        let eight_bits = schedule.far(rows[rows.len() - 1].position) > 0;
        let values_from = schedule.values_from();
        let queries = Queries {
            queries: &mut rotated[..kv_heads * rows.len() * heads * dim],
            regime,
            eight_bits,
            heads: kv_heads,
            dim,
            values_from,
            soft_cap,
        };
        attention.prepare(self.cpu(), queries, schedule.keys, reading);
    }
}

/// Returns the row of a rotation in the other direction. `out` is a buffer.
fn reversed<'b>(row: &[f32], out: &'b mut [f32]) -> &'b [f32] {
    let out = &mut out[..row.len()];
    out.copy_from_slice(row);
    out[row.len() / 2..].iter_mut().for_each(|sin| *sin = -*sin);
    out
}

/// Reorders adjacent pairs into halves order: all first elements, then all second ones.
fn to_halves(x: &mut [f32]) {
    let mut seconds = [0.0; HEAD_DIM_MAX / 2];
    let half = x.len() / 2;
    for i in 0..half {
        seconds[i] = x[2 * i + 1];
        x[i] = x[2 * i];
    }
    x[half..].copy_from_slice(&seconds[..half]);
}
