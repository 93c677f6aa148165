//! The choice of the blocks of keys that the answers of long sequences attend to: see
//! [`sparse`](crate::model::sparse).

use std::{slice::from_ref, sync::atomic::Ordering::Relaxed};

use rope_cpu_kernels::attention::{BLOCK, estimate, summarize, summary_bytes};

use super::{Heads, QueryTile};
use crate::{
    kv_cache::{PAGE, SUMMARIES},
    model::{batch::Role, state::WorkerBuffers},
    rope::Region,
    threads::{Claim, Phase},
};

impl Heads<'_> {
    /// Returns whether a phase of [`Heads::summarize`] has summaries to write.
    pub fn has_new_blocks(&self) -> bool {
        let stores = self.attention.config.shared_with.is_none();
        let summarizes = self.schedules[Role::Answer as usize].sparse().is_some();
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

    /// Chooses the blocks of keys that a row attends to. The claimed task selects the row, which is an
    /// answer, and the KV head.
    pub fn choose(
        &self,
        phase: &Phase<'_>,
        claim: &mut Claim<'_>,
        query_key_value: &[f32],
        buffers: &mut WorkerBuffers,
    ) {
        let schedule = &self.schedules[Role::Answer as usize];
        let (state, kv_heads) = (self.pass.state, self.attention.config.kv_heads);
        let (index, head) = (claim.task() / kv_heads, claim.task() % kv_heads);
        let list = state.choices.write(claim, schedule.choice_len());
        let row = &self.pass.batch.rows[index];
        let Some(sparse) = schedule.sparse().filter(|_| schedule.is_sparse(row)) else { return };

        let (heads, dim) = (schedule.group, schedule.dim);
        let tile =
            QueryTile { schedule, rows: from_ref(row), kv_heads: head..head + 1, heads, dim };
        self.load_queries(&tile, &query_key_value[index * self.width()..], &mut buffers.queries);
        let raw = self.keys_are_raw();
        if !raw {
            self.rotate_queries(&tile, Region::Near, None, buffers);
        }
        let blocks = row.position / BLOCK;
        buffers.estimates.reset(heads, blocks);
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
        if let Some(cap) = self.pass.config.attention_soft_cap {
            buffers.estimates.cap(cap);
        }
        sparse.choose(row.position, &mut buffers.estimates, list);
        let [chosen, all] = &state.blocks_read;
        chosen.fetch_add(u64::from(list[0]), Relaxed);
        all.fetch_add(blocks as u64 + 1, Relaxed);
    }
}
