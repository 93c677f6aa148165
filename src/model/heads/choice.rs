//! The choice of the blocks of keys that tokens of long sequences attend to: see
//! [`sparse`](crate::model::sparse).

use std::{slice::from_ref, sync::atomic::Ordering::Relaxed};

use rope_cpu_kernels::attention::{BLOCK, estimate, summarize, summary_bytes};

use super::{Heads, QueryTile};
use crate::{
    kv_cache::{PAGE, SUMMARIES},
    model::{
        batch::{Role, Row},
        sparse::{Group, speaks},
        state::WorkerBuffers,
    },
    rope::Region,
    threads::{Claim, Phase},
};

impl Heads<'_> {
    /// Returns whether a phase of [`Heads::summarize`] has summaries to write.
    pub fn has_new_blocks(&self) -> bool {
        let stores = self.attention.config.shared_with.is_none();
        let summarizes = self.schedules.iter().any(|schedule| schedule.sparse().is_some());
        stores && summarizes && self.new_blocks().next().is_some()
    }

    /// Returns the index of each feed with its blocks that are whole and have no summary.
    fn new_blocks(&self) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
        let (batch, tables) = (self.pass.batch, self.pass.tables);
        let blocks = batch.parts.iter().map(|part| {
            let end = batch.rows[part.rows.end - 1].position + 1;
            (part.feed, tables[part.feed].summarized() / BLOCK..end / BLOCK)
        });
        blocks.filter(|(_, blocks)| !blocks.is_empty())
    }

    /// Writes the summaries of new blocks of keys. The claimed task selects the head and a block of
    /// each page.
    pub fn summarize(&self, phase: &Phase<'_>, claim: &mut Claim<'_>, buffers: &mut WorkerBuffers) {
        let schedule = &self.schedules[Role::Answer as usize];
        let (head, in_page) = (claim.task() / SUMMARIES, claim.task() % SUMMARIES);
        for (feed, blocks) in self.new_blocks() {
            let mut rows = self.pass.batch.rows.iter().rev();
            let Some(row) = rows.find(|row| row.sequence == feed) else { continue };
            for block in blocks.filter(|block| block % SUMMARIES == in_page) {
                let start = block / SUMMARIES * PAGE;
                let page = self.pass.tables[feed].page(self.attention.layer, start);
                let Some(page) = page else { continue };
                let (heads, dim) = (schedule.group, schedule.dim);
                let tile = QueryTile {
                    schedule,
                    rows: from_ref(row),
                    kv_heads: head..head + 1,
                    heads,
                    dim,
                };
                let WorkerBuffers { attention, bias, .. } = buffers;
                let rotation = self.rotation(&tile, Region::Near, start, bias);
                let keys = page.keys(phase, head..head + 1);
                let (cpu, out) = (self.cpu(), page.summary(claim, dim));
                summarize(cpu, keys, rotation, dim, in_page * BLOCK, attention, out);
            }
        }
    }

    /// Chooses the blocks of keys that a tile of a role's rows attends to. The claimed task selects
    /// the tile and the KV head.
    pub fn choose(
        &self,
        role: Role,
        phase: &Phase<'_>,
        claim: &mut Claim<'_>,
        query_key_value: &[f32],
        buffers: &mut WorkerBuffers,
    ) {
        let schedule = &self.schedules[role as usize];
        let (state, kv_heads) = (self.pass.state, self.attention.config.kv_heads);
        let (tile, head) = (schedule.tile(claim.task() / kv_heads), claim.task() % kv_heads);
        let list = state.choices.write(claim, schedule.choice_len());
        let first_row = self.pass.batch.roles.range(role).start + tile.first;
        let rows = &self.pass.batch.rows[first_row..][..tile.rows];
        let Some(sparse) = schedule.sparse().filter(|_| schedule.is_sparse(&rows[0])) else {
            return;
        };
        let group = Group::of(rows, role);
        buffers.estimates.reset(group.positions.start() / BLOCK);
        for (i, row) in rows.iter().enumerate().filter(|(i, _)| speaks(rows, *i)) {
            let inputs = &query_key_value[(first_row + i) * self.width()..];
            self.estimate(role, row, head, phase, inputs, buffers);
        }
        sparse.choose(&group, &mut buffers.estimates, list);
        let [chosen, all] = &state.blocks_read;
        chosen.fetch_add(u64::from(list[0]), Relaxed);
        all.fetch_add((group.positions.end() / BLOCK + 1) as u64, Relaxed);
    }

    /// Adds a row's shares of the attention of one KV head to the estimates. `inputs` starts at the
    /// row.
    fn estimate(
        &self,
        role: Role,
        row: &Row,
        head: usize,
        phase: &Phase<'_>,
        inputs: &[f32],
        buffers: &mut WorkerBuffers,
    ) {
        let schedule = &self.schedules[role as usize];
        let (heads, dim) = (schedule.group, schedule.dim);
        let tile =
            QueryTile { schedule, rows: from_ref(row), kv_heads: head..head + 1, heads, dim };
        self.load_queries(&tile, inputs, &mut buffers.queries);
        let raw = self.keys_are_raw();
        if !raw {
            self.rotate_queries(&tile, Region::Near, None, buffers);
        }
        buffers.estimates.start_row(heads);
        let blocks = buffers.estimates.logs.len() / heads;
        for first in (0..blocks).step_by(SUMMARIES) {
            let start = first * BLOCK;
            let page = self.pass.tables[row.sequence].page(self.attention.layer, start);
            let Some(page) = page else { continue };
            if raw {
                buffers.visible.clear();
                buffers.visible.extend(std::iter::repeat_n(0..PAGE, heads));
                self.rotate_queries(&tile, Region::Near, Some(start), buffers);
            }
            let count = SUMMARIES.min(blocks - first);
            let summaries = &page.summaries(phase, head, dim)[..count * summary_bytes(dim)];
            let out = &mut buffers.estimates.logs[first * heads..][..count * heads];
            estimate(self.cpu(), &buffers.rotated[..heads * dim], dim, summaries, out);
        }
        buffers.estimates.end_row(heads, self.pass.config.scales.score_cap);
    }
}
