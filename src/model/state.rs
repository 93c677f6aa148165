//! The buffers of a forward pass, described once and allocated once.

use std::{
    array,
    sync::{Mutex, atomic::AtomicU64},
};

use rope_cpu_kernels::{
    Input, Regime, Scratch,
    activations::{Span, quantize, spans_for},
    attention,
    cache::UNIT,
    isa::{Cpu, LANES},
};

use super::{
    Config, Recurrence,
    adapter::LowRank,
    allocator::{Allocator, Amount},
    attention::{HEADS, Schedule, TILE_QUERIES},
    batch::Role,
    config,
    experts::{Choice, Slots},
    finite::FirstFault,
    sparse::Estimates,
    weights::{Addition, Attention, Branch, Latent, Linear, Mixer, Mixture, Weights},
};
use crate::{
    kv_cache::PAGE,
    platform::memory::Refused,
    threads::{Phased, Threads},
};

/// Maximum rows of logits that are computed together.
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
    pub other: Vec<f32>,   // (embedding), for norms of single mixers or of embeddings
    pub head: Vec<f32>,    // (padded dim, or the length of a recurrent layer's values)
    pub state: Vec<f32>,   // a task's part of the state of a recurrent layer
    pub bias: Vec<f32>,    // (HEADS, padded dim): of a task's keys, in the order of the cache
    pub ranks: Vec<f32>,   // of all experts for one token, and of their groups
    pub estimates: Estimates, // of the attention of a tile's rows to blocks of keys
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
    pub slots: Slots,
    pub input: Activations,   // (slots, embedding)
    pub gate_up: Phased<f32>, // (slots, 2 feed_forward)
    pub gated: Activations,   // (slots, feed_forward)
    pub output: Phased<f32>,  // (slots, embedding)
}

impl ExpertState {
    fn new(allocator: &mut Allocator<'_>, embedding: usize, mixture: &Mixture<'_>) -> Self {
        let (rows, slots) = (Amount::per_token(1), Amount::per_token(mixture.used));
        let network = &mixture.experts[0];
        ExpertState {
            scores: allocator.shared(rows, mixture.router.width),
            choices: allocator.shared(rows, mixture.used),
            slots: Slots::new(allocator, mixture.experts.len(), mixture.used),
            input: Activations::new(allocator, slots, embedding),
            gate_up: allocator.shared(slots, network.gate_up.width),
            gated: Activations::new(allocator, slots, network.feed_forward),
            output: allocator.shared(slots, network.down.width),
        }
    }
}

/// The additional buffers of attention to latents.
pub struct LatentState {
    pub input: Phased<f32>, // (rows, queries or their rank, latent and part of keys)
    pub low: Activations,   // (rows, query rank)
    pub queries: Phased<f32>, // (rows, heads of queries)
    pub unrotated: Activations, // (heads, rows, elements of a query that do not rotate)
    pub attended: Activations, // (heads, rows, rank)
    pub values: Phased<f32>, // (rows, heads of values)
}

impl LatentState {
    fn new(allocator: &mut Allocator<'_>, config: &Config, weights: &Weights<'_>) -> Option<Self> {
        let all: Vec<_> = weights
            .mixers()
            .filter_map(|mixer| match mixer {
                Mixer::Attention(attention) => attention.latent.as_ref(),
                _ => None,
            })
            .collect();
        let most = |of: fn(&Latent<'_>) -> usize| all.iter().map(|one| of(one)).max().unwrap_or(0);
        let (rows, of_heads) =
            (Amount::per_token(1), Amount::per_token(config.attention_max(|layer| layer.heads)));
        let unrotated =
            config.attention_max(|layer| layer.latent.map_or(0, |latent| latent.unrotated));
        all.first()?;
        Some(LatentState {
            input: allocator.shared(rows, most(|latent| latent.input.width)),
            low: Activations::new(allocator, rows, most(|latent| latent.query_rank())),
            queries: allocator.shared(
                rows,
                most(|latent| latent.queries.as_ref().map_or(0, |(_, linear)| linear.width)),
            ),
            unrotated: Activations::new(allocator, of_heads, unrotated),
            attended: Activations::new(
                allocator,
                of_heads,
                config.attention_max(|l| l.value_dim()),
            ),
            values: allocator.shared(rows, most(|latent| latent.values.width)),
        })
    }
}

/// The additional buffers of recurrent layers.
pub struct RecurrentState {
    pub input: Phased<f32>,  // (rows, the input's projections)
    pub mixed: Phased<f32>,  // (rows, channels of the convolution, then decays and rates)
    pub output: Phased<f32>, // (rows, values)
}

impl RecurrentState {
    fn new(allocator: &mut Allocator<'_>, weights: &Weights<'_>) -> Option<Self> {
        let (mut input, mut mixed, mut output) = (0, 0, 0);
        for mixer in weights.mixers() {
            match mixer {
                Mixer::ShortConvolution(convolution) => {
                    input = input.max(convolution.input.width);
                    mixed = mixed.max(convolution.config.tasks() * LANES);
                }
                Mixer::Scan(scan) => {
                    input = input.max(scan.input.width);
                    mixed = mixed.max(scan.config.mixed_width());
                    output = output.max(scan.config.value_width());
                }
                Mixer::Attention(_)
                | Mixer::Dense(_)
                | Mixer::Experts(_)
                | Mixer::LayerInput(_) => {}
            }
        }
        let rows = Amount::per_token(1);
        (input > 0).then(|| RecurrentState {
            input: allocator.shared(rows, input),
            mixed: allocator.shared(rows, mixed),
            output: allocator.shared(rows, output),
        })
    }
}

/// The buffers of a forward pass, for up to `rows` tokens at a time.
pub struct State {
    pub hidden: Phased<f32>,                          // (rows, embedding)
    pub normed: Activations,                          // (rows, embedding)
    pub layer_inputs: Phased<f32>,                    // (rows, layers layer_input)
    pub query_key_value: Phased<f32>,                 // (rows, heads + 2 kv_heads)
    pub partials: [Phased<f32>; 2], // of each role: (tasks of attention, queries of a tile)
    pub choices: Phased<u32>,       // of sparse attention, one role: (tiles, KV heads, blocks)
    pub blocks_read: [AtomicU64; 2], // blocks that sparse attention has chosen, and all of them
    pub attended: Activations,      // (rows, heads): inputs of the projections of outputs
    pub latent: Option<LatentState>, // of a model that attends to latents
    pub recurrent: Option<RecurrentState>, // of a model with recurrent layers
    pub gate_up: Phased<f32>,       // (rows, 2 feed_forward)
    pub gated: Activations,         // (rows, feed_forward)
    pub projected: [Phased<f32>; Branch::MIXERS_MAX], // of each mixer of a branch: (rows, embedding)
    pub experts: Option<ExpertState>,                 // of a model with experts
    pub predictor_inputs: Option<Activations>,        // (rows, inputs of a predictor or assistant)
    pub low_rank: Phased<f32>, // (rows or slots, low-rank width): adapters' A x
    pub logits: Phased<f32>,   // (LOGIT_ROWS, vocabulary)
    pub fault: FirstFault,
    pub workers: Vec<Mutex<WorkerBuffers>>, // one for each worker
}

impl State {
    /// Creates the buffers for a model. `inputs` is the number of elements of a row that its predictor
    /// has as input, or the model as an assistant; 0 for none.
    pub fn new(
        allocator: &mut Allocator<'_>,
        config: &Config,
        weights: &Weights<'_>,
        inputs: usize,
    ) -> Self {
        let embedding = config.embedding;
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
                Mixer::ShortConvolution(_) | Mixer::Scan(_) => {}
                Mixer::LayerInput(input) => {
                    gate_up = gate_up.max(input.gate.width);
                    gated = gated.max(input.len);
                }
            }
        }
        // Partial results are allocated as they are needed: see `State::reserve_partials`.
        let attention = config.with_predictor().filter_map(|layer| layer.attention.as_ref());
        let partials = attention.map(|attention| {
            let row = attention.heads * attention::partial_len(padded(attention));
            Schedule::partials(attention).times(row * size_of::<f32>())
        });
        allocator.count(partials.fold(Amount::default(), Amount::max));
        let mixers = weights.all_branches().map(|branch| branch.mixers.len()).max();
        let (mixers, projected) = (mixers.unwrap_or(0), embedding.next_multiple_of(Linear::BLOCK));
        let layer_inputs = weights.layer_inputs.as_ref();
        let layer_inputs = layer_inputs.map_or(0, |inputs| inputs.projection.width);
        let rows = Amount::per_token(1);
        let logit_rows = Amount::fixed(LOGIT_ROWS);
        let rows_or_logits = Amount { fixed: LOGIT_ROWS, ..rows };
        let used = config.mixture().map_or(1, |mixture| mixture.used);
        let slots_or_logits = Amount { per_token: used, ..logit_rows };
        State {
            hidden: allocator.shared(rows, embedding),
            normed: Activations::new(allocator, rows_or_logits, embedding),
            layer_inputs: allocator.shared(rows, layer_inputs),
            query_key_value: allocator.shared(rows, query_key_value),
            partials: [(); 2].map(|()| allocator.shared(Amount::default(), 0)),
            choices: allocator.shared(Amount::default(), 0),
            blocks_read: Default::default(),
            attended: Activations::new(allocator, rows, attended(config)),
            latent: LatentState::new(allocator, config, weights),
            recurrent: RecurrentState::new(allocator, weights),
            gate_up: allocator.shared(rows, gate_up),
            gated: Activations::new(allocator, rows, gated),
            projected: array::from_fn(|mixer| {
                let width = if mixer < mixers { projected } else { 0 };
                allocator.shared(rows, width)
            }),
            experts,
            predictor_inputs: (inputs > 0).then(|| Activations::new(allocator, rows, inputs)),
            low_rank: allocator.shared(slots_or_logits, weights.low_rank_width),
            logits: allocator
                .shared(logit_rows, weights.output.as_ref().map_or(0, |output| output.width)),
            fault: FirstFault::default(),
            workers: allocator
                .workers(|allocator| WorkerBuffers::new(allocator, config, weights, inputs)),
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

    /// Enlarges the buffer of chosen blocks to `len` elements, if it is smaller.
    ///
    /// # Errors
    /// If the system has no memory left; the buffer stays as it is.
    pub fn reserve_choices(&mut self, team: &Threads, len: usize) -> Result<(), Refused> {
        if self.choices.width() < len {
            self.choices = Phased::new(team, 1, len.next_power_of_two())?;
        }
        Ok(())
    }
}

/// Returns the maximum elements of the input of a projection of outputs, of attention or a recurrence.
fn attended(config: &Config) -> usize {
    let recurrences = config.recurrences().map(Recurrence::width);
    config.attention_max(config::Attention::output_width).max(recurrences.max().unwrap_or(0))
}

/// Returns the elements of a row that queries are computed from, apart from the activations: the
/// latent of queries, or the unrotated part of one query.
fn query_width(mixer: &Mixer<'_>) -> usize {
    let Mixer::Attention(Attention { config, latent: Some(latent), .. }) = mixer else { return 0 };
    let unrotated = config.latent.map_or(0, |latent| latent.unrotated);
    latent.query_rank().max(unrotated)
}

/// Returns the elements of a head in the KV cache, padding included.
fn padded(attention: &config::Attention) -> usize {
    attention.head_dim.next_multiple_of(UNIT)
}

impl WorkerBuffers {
    fn new(
        allocator: &mut Allocator<'_>,
        config: &Config,
        weights: &Weights<'_>,
        inputs: usize,
    ) -> Result<Self, Refused> {
        let dim = config.attention_max(padded);
        let widest = config
            .embedding
            .max(inputs)
            .max(config.feed_forward())
            .max(attended(config))
            .max(config.attention_max(|layer| layer.head_dim))
            .max(weights.mixers().map(query_width).max().unwrap_or(0))
            .max(config.layers.len() * config.layer_input)
            .max(weights.low_rank_width);
        let units = config.recurrences().flat_map(Recurrence::units).max();
        let recurrent_head = config.recurrences().map(Recurrence::value_dim).max().unwrap_or(0);
        let mixer_norms = weights.layers.iter().flatten().any(|b| !b.mixer_norms.is_empty());
        let other = mixer_norms || weights.embedding_norm.is_some();
        let queries = TILE_QUERIES.max(config.attention_max(config::Attention::group));
        let tokens = allocator.rows(Amount::per_token(1));
        allocator.count(Amount {
            per_token: Scratch::bytes(0, 1) - Scratch::bytes(0, 0),
            ..Amount::fixed(Scratch::bytes(widest, 0))
        });
        let refused = |bytes| move |_| Refused { bytes };
        let product = Scratch::new(widest, tokens).map_err(refused(Scratch::bytes(widest, tokens)));
        // A page of keys; the scores of queries in whole panels, and the queries in three forms.
        let scores_and_queries = queries.next_multiple_of(16) * (PAGE + 3 * dim);
        let bytes = 4 * (PAGE * dim + scores_and_queries);
        allocator.count(Amount::fixed(bytes));
        let attention = attention::Scratch::new(queries, dim).map_err(refused(bytes));
        let (one, rows) = (Amount::fixed(1), Amount::fixed(queries));
        Ok(WorkerBuffers {
            queries: allocator.own(rows, dim),
            rotated: allocator.own(rows, dim),
            visible: Vec::with_capacity(queries),
            partials: allocator.own(rows, attention::partial_len(dim)),
            row: allocator.own(one, widest),
            other: allocator.own(one, if other { config.embedding } else { 0 }),
            head: allocator.own(one, dim.max(recurrent_head)),
            state: allocator.own(one, units.unwrap_or(0)),
            bias: allocator.own(Amount::fixed(HEADS), dim),
            ranks: allocator.own(one, 2 * config.mixture().map_or(0, |mixture| mixture.count)),
            low_rank: LowRankInputs::new(allocator, weights.low_rank_width),
            estimates: Estimates::default(),
            // Last, so that all buffers are counted.
            product: product?,
            attention: attention?,
        })
    }
}
