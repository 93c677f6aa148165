//! The buffers of a forward pass, described once and allocated once.

use std::sync::Mutex;

use rope_cpu_kernels::{
    Input, Regime, Scratch,
    activations::{Span, quantize, spans_for},
    attention,
    isa::Cpu,
};

use super::{
    Config,
    adapter::LowRank,
    allocator::{Allocator, Amount},
    attention::{HEADS, Schedule, TILE_QUERIES},
    batch::Role,
    config,
    experts::{Choice, Slots},
    finite::FirstFault,
    weights::{Addition, Linear, Mixer, Mixture, Weights},
};
use crate::{
    kv_cache::POSITIONS,
    platform::memory::Refused,
    threads::{Phased, Threads},
};

/// The most rows whose logits are computed together.
pub const LOGIT_ROWS: usize = 16;

/// The inputs of products: activations as floats, and quantized to 8 bits.
pub struct Activations {
    pub floats: Phased<f32>, // (rows, columns)
    pub spans: Phased<Span>, // (rows, spans for the columns)
}

impl Activations {
    fn new(allocator: &mut Allocator<'_>, rows: Amount, columns: usize) -> Self {
        Activations {
            floats: allocator.shared(rows, columns),
            spans: allocator.shared(rows, spans_for(columns)),
        }
    }
}

/// A worker thread's own buffers.
pub struct WorkerBuffers {
    pub product: Scratch,
    pub attention: attention::Scratch,
    pub queries: Vec<f32>, // (TILE_QUERIES, padded dim), before rotation
    pub rotated: Vec<f32>, // (TILE_QUERIES, padded dim), after rotation
    pub visible: Vec<std::ops::Range<usize>>, // (TILE_QUERIES)
    pub partials: Vec<f32>, // (TILE_QUERIES, partial): of a part of the context, to be merged
    pub row: Vec<f32>,     // the longest row of any buffer
    pub head: Vec<f32>,    // (padded dim)
    pub bias: Vec<f32>,    // (HEADS, padded dim): of a task's keys, in the order of the cache
    pub slots: Slots,
    pub low_rank: LowRankInputs,
}

/// The inputs of products with one adapter's up-projection (B): its columns of
/// [`State::low_rank`].
#[derive(Default)]
pub struct LowRankInputs {
    /// The elements of a row of [`State::low_rank`].
    width: usize,
    floats: Vec<f32>, // (rows, rank), rank <= width
    spans: Vec<Span>, // (rows, spans for the rank)
}

impl LowRankInputs {
    fn new(allocator: &mut Allocator<'_>, width: usize) -> Self {
        let rows = Amount { fixed: LOGIT_ROWS, ..Amount::per_token(1) };
        LowRankInputs {
            width,
            floats: allocator.own(rows, width),
            spans: allocator.own(rows, spans_for(width)),
        }
    }

    /// Reads the inputs of an adapter's up-projection from `all`, (tokens, width), for the tokens
    /// of `input`.
    pub fn read(
        &mut self,
        cpu: Cpu,
        addition: &Addition<'_>,
        all: &[f32],
        input: Input<'_>,
    ) -> Input<'_> {
        let Input { regime, tokens, .. } = input;
        let rank = addition.up.columns();
        let floats = &mut self.floats[..tokens * rank];
        let spans = &mut self.spans[..tokens * spans_for(rank)];
        let to = floats.chunks_exact_mut(rank).zip(spans.chunks_exact_mut(spans_for(rank)));
        for ((floats, spans), all) in to.zip(all.chunks(self.width)) {
            floats.copy_from_slice(&all[addition.column..][..rank]);
            quantize(cpu, floats, spans);
        }
        Input { regime, tokens, floats, spans }
    }

    /// Reads one token's row of an adapter of the embeddings.
    pub fn look_up(&mut self, cpu: Cpu, addition: &LowRank<'_>, token: usize) -> Input<'_> {
        let rank = addition.up.columns();
        let (floats, spans) = (&mut self.floats[..rank], &mut self.spans[..spans_for(rank)]);
        addition.down.decode_row(token, floats);
        quantize(cpu, floats, spans);
        Input { regime: Regime::Few, tokens: 1, floats, spans }
    }
}

/// The additional buffers of a mixture of experts. A slot is a token and one of its experts.
pub struct ExpertState {
    pub scores: Phased<f32>,     // (rows, experts)
    pub choices: Phased<Choice>, // (rows, used)
    pub input: Activations,      // (slots, embedding)
    pub gate_up: Phased<f32>,    // (slots, 2 feed_forward)
    pub gated: Activations,      // (slots, feed_forward)
    pub output: Phased<f32>,     // (slots, embedding)
}

impl ExpertState {
    fn new(allocator: &mut Allocator<'_>, embedding: usize, mixture: &Mixture<'_>) -> Self {
        let (rows, slots) = (Amount::per_token(1), Amount::per_token(mixture.used));
        let network = &mixture.experts[0];
        ExpertState {
            scores: allocator.shared(rows, mixture.router.width),
            choices: allocator.shared(rows, mixture.used),
            input: Activations::new(allocator, slots, embedding),
            gate_up: allocator.shared(slots, network.gate_up.width),
            gated: Activations::new(allocator, slots, network.feed_forward),
            output: allocator.shared(slots, network.down.width),
        }
    }
}

/// The buffers of a forward pass, for up to `rows` tokens at a time.
pub struct State {
    pub hidden: Phased<f32>,          // (rows, embedding)
    pub normed: Activations,          // (rows, embedding)
    pub query_key_value: Phased<f32>, // (rows, heads + 2 kv_heads)
    pub partials: [Phased<f32>; 2],   // of each role: (tasks of attention, queries of a tile)
    pub attended: Activations,        // (rows, heads)
    pub gate_up: Phased<f32>,         // (rows, 2 feed_forward)
    pub gated: Activations,           // (rows, feed_forward)
    pub projected: Phased<f32>,       // (rows, embedding)
    pub experts: Option<ExpertState>, // of a model with experts
    pub low_rank: Phased<f32>,        // (rows or slots, low-rank width): adapters' A x
    pub logits: Phased<f32>,          // (LOGIT_ROWS, vocabulary)
    pub fault: FirstFault,
    pub workers: Vec<Mutex<WorkerBuffers>>, // one for each worker
}

impl State {
    /// Makes the buffers for a model whose heads have `dim` elements in the KV cache, padding
    /// included.
    pub fn new(
        allocator: &mut Allocator<'_>,
        config: &Config,
        weights: &Weights<'_>,
        dim: usize,
    ) -> Self {
        let (attention, embedding) = (config.attention(), config.embedding);
        let (mut query_key_value, mut gate_up, mut gated, mut experts) = (0, 0, 0, None);
        for mixer in weights.mixers() {
            match mixer {
                Mixer::Attention(attention) => {
                    query_key_value = query_key_value.max(attention.query_key_value.width);
                }
                Mixer::Dense(network) => {
                    gate_up = gate_up.max(network.gate_up.width);
                    gated = gated.max(network.feed_forward);
                }
                Mixer::Experts(mixture) => {
                    experts.get_or_insert_with(|| ExpertState::new(allocator, embedding, mixture));
                }
            }
        }
        // Partial results are allocated as they are needed: see `State::reserve_partials`.
        let partial_row = attention.heads * attention::partial_len(dim);
        allocator.count(Schedule::partials(attention).times(partial_row * size_of::<f32>()));
        let rows = Amount::per_token(1);
        let logit_rows = Amount::fixed(LOGIT_ROWS);
        let rows_or_logits = Amount { fixed: LOGIT_ROWS, ..rows };
        let used = config.mixture().map_or(1, |mixture| mixture.used);
        let slots_or_logits = Amount { per_token: used, ..logit_rows };
        State {
            hidden: allocator.shared(rows, embedding),
            normed: Activations::new(allocator, rows_or_logits, embedding),
            query_key_value: allocator.shared(rows, query_key_value),
            partials: [(); 2].map(|()| allocator.shared(Amount::default(), 0)),
            attended: Activations::new(allocator, rows, attention.query_width()),
            gate_up: allocator.shared(rows, gate_up),
            gated: Activations::new(allocator, rows, gated),
            projected: allocator.shared(rows, embedding.next_multiple_of(Linear::BLOCK)),
            experts,
            low_rank: allocator.shared(slots_or_logits, weights.low_rank_width),
            logits: allocator.shared(logit_rows, weights.output.width),
            fault: FirstFault::default(),
            workers: allocator
                .workers(|allocator| WorkerBuffers::new(allocator, config, weights, dim)),
        }
    }

    /// Enlarges the buffer of partial results of a role to `len` floats, if it is smaller.
    ///
    /// # Errors
    /// If the system has no memory left; the buffer stays as it is.
    pub fn reserve_partials(
        &mut self,
        team: &Threads,
        role: Role,
        len: usize,
    ) -> Result<(), Refused> {
        let partials = &mut self.partials[role as usize];
        if partials.width() < len {
            *partials = Phased::new(team, 1, len)?;
        }
        Ok(())
    }
}

impl WorkerBuffers {
    fn new(
        allocator: &mut Allocator<'_>,
        config: &Config,
        weights: &Weights<'_>,
        dim: usize,
    ) -> Self {
        let attention = config.attention();
        let widest = (config.embedding.max(config.feed_forward()))
            .max(attention.query_width())
            .max(weights.low_rank_width);
        let queries = TILE_QUERIES.max(attention.group());
        let tokens = allocator.rows(Amount::per_token(1));
        allocator.count(Amount {
            per_token: Scratch::bytes(0, 1) - Scratch::bytes(0, 0),
            ..Amount::fixed(Scratch::bytes(widest, 0))
        });
        // A page of keys; the scores of queries in whole panels, and the queries in three forms.
        let scores_and_queries = queries.next_multiple_of(16) * (POSITIONS + 3 * dim);
        allocator.count(Amount::fixed(4 * (POSITIONS * dim + scores_and_queries)));
        let slots = config.mixture().map(|config::Mixture { count, used, .. }| {
            allocator.count(Slots::bytes(count, used));
            Slots::new(count, tokens * used)
        });
        let (one, rows) = (Amount::fixed(1), Amount::fixed(queries));
        WorkerBuffers {
            product: Scratch::new(widest, tokens),
            attention: attention::Scratch::new(queries, dim),
            queries: allocator.own(rows, dim),
            rotated: allocator.own(rows, dim),
            visible: Vec::with_capacity(queries),
            partials: allocator.own(rows, attention::partial_len(dim)),
            row: allocator.own(one, widest),
            head: allocator.own(one, dim),
            bias: allocator.own(Amount::fixed(HEADS), dim),
            slots: slots.unwrap_or_default(),
            low_rank: LowRankInputs::new(allocator, weights.low_rank_width),
        }
    }
}
