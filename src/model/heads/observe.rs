//! Copies the queries and keys of a layer to an observer.

use rope_cpu_kernels::vector::add;

use super::Heads;
use crate::model::{config::HEAD_DIM_MAX, observer::Observer, weights::Projection};

impl Heads<'_> {
    /// Copies the keys of the first sequence's rows, and its queries at the observed positions.
    pub fn observe(&self, observer: &Observer, query_key_value: &[f32]) {
        let (config, layer) = (&self.attention.config, self.attention.layer);
        let (dim, width) = (config.head_dim, config.kv_heads * config.head_dim);
        let stores = config.shared_with.is_none();
        let column = self.attention.column(Projection::Key);
        let observed = &mut *observer.lock();
        if let Some(sinks) = self.attention.sinks.filter(|_| observed.queries.contains_key(&layer))
        {
            observed.sinks.entry(layer).or_insert_with(|| sinks.to_vec());
        }
        let rows = self.pass.batch.rows.iter().zip(query_key_value.chunks(self.width()));
        for (row, x) in rows.filter(|(row, _)| row.sequence == 0) {
            let keys = observed.keys.get_mut(&layer).filter(|_| stores);
            let keys = keys.and_then(|keys| keys.get_mut(row.position * width..)?.get_mut(..width));
            if let Some(keys) = keys {
                for (head, key) in keys.chunks_exact_mut(dim).enumerate() {
                    self.raw(Projection::Key, head, &x[column + head * dim..][..dim], key);
                    self.add_separate_bias(head, key);
                }
            }
            let Ok(index) = observed.positions.binary_search(&row.position) else { continue };
            observed.effective_lengths[index] = row.effective_length;
            if let Some(queries) = observed.queries.get_mut(&layer) {
                let queries = &mut queries[index * config.query_width()..][..config.query_width()];
                let scale = self.query_scale(row);
                for (head, query) in queries.chunks_exact_mut(dim).enumerate() {
                    let x = &x[head * self.query_stride()..][..dim];
                    self.raw(Projection::Query, head, x, query);
                    query.iter_mut().for_each(|x| *x *= scale);
                }
            }
        }
    }

    /// Adds the bias that the KV cache leaves out of a key, if it does.
    fn add_separate_bias(&self, head: usize, key: &mut [f32]) {
        let Some(biases) = self.separate_key_bias() else { return };
        let bias = &mut [0.0; HEAD_DIM_MAX][..key.len()];
        bias.copy_from_slice(&biases[head * key.len()..][..key.len()]);
        self.reorder(bias);
        add(self.cpu(), key, bias);
    }
}
