//! Computes the scores of probed tokens: see [`probe`](crate::model::probe).

use std::slice::from_ref;

use rope_cpu_kernels::{Regime, attention::scores};

use super::{Heads, QueryTile};
use crate::{
    kv_cache::PAGE,
    model::{batch::Role, probe::Probe, state::WorkerBuffers},
    threads::Phase,
};

impl Heads<'_> {
    /// Adds the attention of the first sequence's probed rows to a probe, in the heads of one KV head.
    pub fn probe(
        &self,
        probe: &Probe,
        phase: &Phase<'_>,
        kv_head: usize,
        query_key_value: &[f32],
        buffers: &mut WorkerBuffers,
    ) {
        let schedule = &self.schedules[Role::Answer as usize];
        let (length, heads, dim) = (probe.length(), schedule.group, schedule.dim);
        let visibility = self.visibility();
        let cap = self.pass.config.scales.score_cap;
        let rows = self.pass.batch.rows.iter().enumerate().filter(|(_, row)| row.sequence == 0);
        for (i, row) in rows {
            let Some(token) = probe.token_at(row.position) else { continue };
            let kv_heads = kv_head..kv_head + 1;
            let tile = QueryTile { schedule, rows: from_ref(row), kv_heads, heads, dim };
            self.load_queries(&tile, &query_key_value[i * self.width()..], &mut buffers.queries);
            let mut all = probe.scores(kv_head);
            let all = &mut all[..heads * length];
            all.fill(f32::NEG_INFINITY);
            for start in (0..length).step_by(PAGE) {
                let page = self.pass.tables[0].page(self.attention.source(), start);
                let Some(page) = page else { continue };
                let end = length.min(start + PAGE);
                for region in visibility.regions(start..end) {
                    let seen = self.visible(region, row.position);
                    let seen = seen.start.clamp(start, end)..seen.end.clamp(start, end);
                    if seen.is_empty() {
                        continue;
                    }
                    let in_page = seen.start - start..seen.end - start;
                    buffers.visible.clear();
                    buffers.visible.extend(std::iter::repeat_n(in_page.clone(), heads));
                    let raw = self.keys_are_raw().then_some(start);
                    self.prepare(&tile, region, raw, Some(Regime::Few), buffers);
                    let WorkerBuffers { visible, attention, bias, .. } = &mut *buffers;
                    let rotation = self.rotation(&tile, region, start, bias);
                    let keys = page.keys(phase, tile.kv_heads.clone());
                    let found = scores(self.cpu(), visible, keys, rotation, attention);
                    for (all, found) in all.chunks_exact_mut(length).zip(found) {
                        all[seen.clone()].copy_from_slice(&found[in_page.clone()]);
                    }
                }
            }
            for (head, scores) in all.chunks_exact_mut(length).enumerate() {
                if let Some(cap) = cap {
                    // The cap must not let a token attend to what it does not see.
                    let seen = scores.iter_mut().filter(|score| score.is_finite());
                    seen.for_each(|score| *score = cap * (*score / cap).tanh());
                }
                let sink = self.attention.sinks.map(|sinks| sinks[kv_head * heads + head]);
                probe.add(token, scores, sink);
            }
        }
    }
}
