//! Every buffer that a forward pass needs, made once.

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
    attention::{Plan, TILE_QUERIES},
    batch::Tile,
    experts::{Choice, Slots},
    weights::{Addition, FeedForward, Mixture, Weights},
};
use crate::{
    kv_cache::Shape,
    threads::{Phased, Threads},
};

/// Rows whose logits are computed together.
pub const LOGIT_ROWS: usize = 16;

/// Activations as products read them: as floats, and rounded to 8 bits.
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

/// What one worker has for itself.
pub struct Private {
    pub product: Scratch,
    pub attention: attention::Scratch,
    pub queries: Vec<f32>, // (TILE_QUERIES, padded dim), before rotation
    pub rotated: Vec<f32>, // the same, rotated
    pub visible: Vec<std::ops::Range<usize>>, // (TILE_QUERIES)
    pub partials: Vec<f32>, // (TILE_QUERIES, partial): of a part of a context, to be merged
    pub row: Vec<f32>,     // the longest row of any buffer
    pub head: Vec<f32>,    // (padded dim)
    pub slots: Slots,
    pub low: Low,
}

/// One adapter's part of [`State::low`], as products read it.
#[derive(Default)]
pub struct Low {
    /// Values of a token in the whole of it.
    width: usize,
    floats: Vec<f32>, // (rows, at most width)
    spans: Vec<Span>, // (rows, spans for these)
}

impl Low {
    fn new(rows: usize, width: usize) -> Self {
        let spans = vec![Span::zeroed(); rows * spans_for(width)];
        Low { width, floats: vec![0.0; rows * width], spans }
    }

    /// What an adapter made of each of the tokens that have products in `input`.
    pub fn take(
        &mut self,
        cpu: Cpu,
        of: &Addition<'_>,
        all: &[f32],
        input: Input<'_>,
    ) -> Input<'_> {
        let Input { regime, tokens, .. } = input;
        let rank = of.up.columns();
        let floats = &mut self.floats[..tokens * rank];
        let spans = &mut self.spans[..tokens * spans_for(rank)];
        let to = floats.chunks_exact_mut(rank).zip(spans.chunks_exact_mut(spans_for(rank)));
        for ((floats, spans), all) in to.zip(all.chunks(self.width)) {
            floats.copy_from_slice(&all[of.column..][..rank]);
            quantize(cpu, floats, spans);
        }
        Input { regime, tokens, floats, spans }
    }

    /// What an adapter of embeddings has for one token.
    pub fn look_up(&mut self, cpu: Cpu, of: &LowRank<'_>, token: usize) -> Input<'_> {
        let rank = of.up.columns();
        let (floats, spans) = (&mut self.floats[..rank], &mut self.spans[..spans_for(rank)]);
        of.down.decode_row(token, floats);
        quantize(cpu, floats, spans);
        Input { regime: Regime::Few, tokens: 1, floats, spans }
    }
}

/// What a mixture of experts needs besides; a slot is a token and one of its experts.
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
            gated: Activations::new(team, slots, config.feed_forward),
            output: Phased::new(team, slots, network.down.width),
        }
    }
}

/// The buffers, for up to `rows` tokens at a time.
pub struct State {
    pub cpu: Cpu,
    pub hidden: Phased<f32>,          // (rows, embedding)
    pub normed: Activations,          // (rows, embedding)
    pub query_key_value: Phased<f32>, // (rows, heads + 2 kv_heads)
    pub partials: Phased<f32>,        // (tasks of attention, queries of a tile)
    pub attended: Activations,        // (rows, heads)
    pub gate_up: Phased<f32>,         // (rows, 2 feed_forward)
    pub gated: Activations,           // (rows, feed_forward)
    pub projected: Phased<f32>,       // (rows, embedding)
    pub experts: Option<ExpertState>, // of a model that has any
    pub low: Phased<f32>,             // (rows or slots, low width): what adapters make of inputs
    pub logits: Phased<f32>,          // (LOGIT_ROWS, vocabulary)
    pub private: Vec<Mutex<Private>>, // one for each worker
    pub tiles: Vec<Tile>,
}

impl State {
    /// Buffers for `rows` tokens at a time in a context of `context`.
    pub fn new(
        team: &Threads,
        cpu: Cpu,
        config: &Config,
        weights: &Weights<'_>,
        shape: Shape,
        rows: usize,
        context: usize,
    ) -> Self {
        let layer = &weights.layers[0];
        let heads = config.heads * config.head_dim;
        let widest = config.embedding.max(config.feed_forward).max(heads).max(weights.low_width);
        let queries = TILE_QUERIES.max(config.group());
        let private = || {
            Mutex::new(Private {
                product: Scratch::new(widest, rows),
                attention: attention::Scratch::new(queries, shape.padded_dim()),
                queries: vec![0.0; queries * shape.padded_dim()],
                rotated: vec![0.0; queries * shape.padded_dim()],
                visible: Vec::with_capacity(queries),
                partials: vec![0.0; queries * attention::partial_len(shape.padded_dim())],
                row: vec![0.0; widest],
                head: vec![0.0; shape.padded_dim()],
                slots: config
                    .experts
                    .map_or_else(Slots::default, |m| Slots::new(m.count, rows * m.used)),
                low: Low::new(rows.max(LOGIT_ROWS), weights.low_width),
            })
        };
        let (gate_up, experts) = match &layer.feed_forward {
            FeedForward::Dense(network) => (network.gate_up.width, None),
            FeedForward::Experts(mixture) => {
                (0, Some(ExpertState::new(team, rows, config, mixture)))
            }
        };
        let gated = if experts.is_none() { config.feed_forward } else { 0 };
        let slots = rows * config.experts.map_or(1, |mixture| mixture.used);
        State {
            cpu,
            hidden: Phased::new(team, rows, config.embedding),
            normed: Activations::new(team, rows.max(LOGIT_ROWS), config.embedding),
            query_key_value: Phased::new(team, rows, layer.query_key_value.width),
            partials: Phased::new(team, 1, Plan::partials_len(config, shape, rows, context)),
            attended: Activations::new(team, rows, heads),
            gate_up: Phased::new(team, rows, gate_up),
            gated: Activations::new(team, rows, gated),
            projected: Phased::new(team, rows, config.embedding.next_multiple_of(16)),
            experts,
            low: Phased::new(team, slots.max(LOGIT_ROWS), weights.low_width),
            logits: Phased::new(team, LOGIT_ROWS, weights.output.width),
            private: (0..team.count()).map(|_| private()).collect(),
            tiles: Vec::with_capacity(rows),
        }
    }
}
