//! The buffers of a forward pass, allocated once.

use std::sync::Mutex;

use bytemuck::Zeroable;
use rope_cpu_kernels::{
    Input, Regime, Scratch,
    activations::{Span, quantize, spans_for},
    attention,
    isa::Cpu,
};

use super::{
    Config,
    adapter::LowRank,
    attention::TILE_QUERIES,
    batch::Role,
    experts::{Choice, Slots},
    weights::{Addition, Mixer, Mixture, Weights},
};
use crate::{
    kv_cache::Shape,
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
    fn new(team: &Threads, rows: usize, columns: usize) -> Self {
        Activations {
            floats: Phased::new(team, rows, columns),
            spans: Phased::new(team, rows, spans_for(columns)),
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
    fn new(rows: usize, width: usize) -> Self {
        let spans = vec![Span::zeroed(); rows * spans_for(width)];
        LowRankInputs { width, floats: vec![0.0; rows * width], spans }
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
    fn new(team: &Threads, rows: usize, config: &Config, mixture: &Mixture<'_>) -> Self {
        let slots = rows * mixture.used;
        let network = &mixture.experts[0];
        ExpertState {
            scores: Phased::new(team, rows, mixture.router.width),
            choices: Phased::new(team, rows, mixture.used),
            input: Activations::new(team, slots, config.embedding),
            gate_up: Phased::new(team, slots, network.gate_up.width),
            gated: Activations::new(team, slots, config.feed_forward()),
            output: Phased::new(team, slots, network.down.width),
        }
    }
}

/// The buffers of a forward pass, for up to `rows` tokens at a time.
pub struct State {
    pub hidden: Phased<f32>,                // (rows, embedding)
    pub normed: Activations,                // (rows, embedding)
    pub query_key_value: Phased<f32>,       // (rows, heads + 2 kv_heads)
    pub partials: [Phased<f32>; 2],         // of each role: (tasks of attention, queries of a tile)
    pub attended: Activations,              // (rows, heads)
    pub gate_up: Phased<f32>,               // (rows, 2 feed_forward)
    pub gated: Activations,                 // (rows, feed_forward)
    pub projected: Phased<f32>,             // (rows, embedding)
    pub experts: Option<ExpertState>,       // of a model with experts
    pub low_rank: Phased<f32>,              // (rows or slots, low-rank width): adapters' A x
    pub logits: Phased<f32>,                // (LOGIT_ROWS, vocabulary)
    pub workers: Vec<Mutex<WorkerBuffers>>, // one for each worker
}

impl State {
    /// Allocates buffers for `rows` tokens at a time.
    pub fn new(
        team: &Threads,
        config: &Config,
        weights: &Weights<'_>,
        shape: Shape,
        rows: usize,
    ) -> Self {
        let attention = config.attention();
        let (heads, feed_forward) = (attention.query_width(), config.feed_forward());
        let widest = config.embedding.max(feed_forward).max(heads).max(weights.low_rank_width);
        let queries = TILE_QUERIES.max(attention.group());
        let worker = || {
            Mutex::new(WorkerBuffers {
                product: Scratch::new(widest, rows),
                attention: attention::Scratch::new(queries, shape.padded_dim()),
                queries: vec![0.0; queries * shape.padded_dim()],
                rotated: vec![0.0; queries * shape.padded_dim()],
                visible: Vec::with_capacity(queries),
                partials: vec![0.0; queries * attention::partial_len(shape.padded_dim())],
                row: vec![0.0; widest],
                head: vec![0.0; shape.padded_dim()],
                slots: config
                    .mixture()
                    .map_or_else(Slots::default, |m| Slots::new(m.count, rows * m.used)),
                low_rank: LowRankInputs::new(rows.max(LOGIT_ROWS), weights.low_rank_width),
            })
        };
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
                    experts.get_or_insert_with(|| ExpertState::new(team, rows, config, mixture));
                }
            }
        }
        let slots = rows * config.mixture().map_or(1, |mixture| mixture.used);
        State {
            hidden: Phased::new(team, rows, config.embedding),
            normed: Activations::new(team, rows.max(LOGIT_ROWS), config.embedding),
            query_key_value: Phased::new(team, rows, query_key_value),
            partials: [(); 2].map(|()| Phased::new(team, 1, 0)),
            attended: Activations::new(team, rows, heads),
            gate_up: Phased::new(team, rows, gate_up),
            gated: Activations::new(team, rows, gated),
            projected: Phased::new(team, rows, config.embedding.next_multiple_of(16)),
            experts,
            low_rank: Phased::new(team, slots.max(LOGIT_ROWS), weights.low_rank_width),
            logits: Phased::new(team, LOGIT_ROWS, weights.output.width),
            workers: (0..team.count()).map(|_| worker()).collect(),
        }
    }

    /// Enlarges the buffer of partial results of a role to `len` floats, if it is smaller.
    pub fn reserve_partials(&mut self, team: &Threads, role: Role, len: usize) {
        let partials = &mut self.partials[role as usize];
        if partials.width() < len {
            *partials = Phased::new(team, 1, len);
        }
    }
}
