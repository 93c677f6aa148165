//! A model's weights: tensors borrowed from the file, with their shapes checked.

mod assistant;
mod embedding;
mod latent;
mod layer_input;
mod linear;
mod predictor;
mod reader;
mod recurrence;

use rope_cpu_kernels::Matrix;

use self::reader::TensorReader;
pub use self::{
    assistant::Assistant,
    embedding::{Classifier, EmbeddingHead},
    latent::{Latent, SplitKeys},
    layer_input::{LayerInput, LayerInputs},
    linear::{Addition, Linear, Segment, SegmentTensors},
    predictor::Predictor,
    recurrence::{Scan, ScanInput, ShortConvolution},
};
use super::{
    Config, EMBEDDINGS, Error,
    adapter::{Adapter, LowRank},
    architecture::{self, AttentionGates, Experts, HeadNorms, Inner, Norm, Norms},
    config::{self, FeedForward, Function, Layer, Routing},
    pair::SEPARATOR,
};
use crate::{Token, gguf::Gguf};

/// The separator of BERT's first vocabularies.
const SEPARATOR_DEFAULT: Token = 102;

/// All weights of a model.
pub struct Weights<'a> {
    pub tokens: Matrix<'a>, // (vocabulary, embedding)
    /// The adapters' terms that are added to embeddings.
    pub token_additions: Vec<LowRank<'a>>,
    pub terms: Option<Terms<'a>>,
    /// The branches of each layer, in the order of their computation.
    pub layers: Vec<Vec<Branch<'a>>>,
    /// The inputs that each layer has beside the activations, if the model has any.
    pub layer_inputs: Option<LayerInputs<'a>>,
    pub output_norm: Option<NormWeights<'a>>,
    /// `None` in an encoder, which has no logits.
    pub output: Option<Linear<'a>>, // embedding -> vocabulary
    pub predictor: Option<Predictor<'a>>,
    pub head: EmbeddingHead<'a>,
    /// The largest width of [`Linear::adapter_down`], or rank of an adapter of the embeddings; 0
    /// without adapters.
    pub low_rank_width: usize,
}

/// A branch of a layer. It adds its output to the activations `x` between layers:
/// `x = (x + residual_scale * post_norm(sum of mixer(norm(x)))) * output_scale`.
pub struct Branch<'a> {
    pub norm: Option<NormWeights<'a>>,
    /// At least one, at most [`Branch::MIXERS_MAX`].
    pub mixers: Vec<Mixer<'a>>,
    /// The norms of the mixers' outputs, one for each, if they have norms of their own.
    pub mixer_norms: Vec<NormWeights<'a>>,
    pub post_norm: Option<NormWeights<'a>>,
    pub output_scale: f32,
}

/// The weights of a norm of activations.
#[derive(Clone, Copy)]
pub struct NormWeights<'a> {
    pub weight: &'a [f32],       // (embedding)
    pub bias: Option<&'a [f32]>, // (embedding)
}

/// The vectors that are added to the embeddings of tokens, and the norm of the sum.
pub struct Terms<'a> {
    pub types: Option<Matrix<'a>>, // (types, embedding)
    /// The token after which the second segment of a text begins, if segments have two types.
    pub separator: Option<Token>,
    pub positions: Option<Matrix<'a>>, // (trained length, embedding)
    pub norm: NormWeights<'a>,
}

impl Terms<'_> {
    /// Returns the vectors for the token at `position` in a segment: matrices, and the row of each.
    pub fn rows(
        &self,
        position: usize,
        segment: usize,
    ) -> impl Iterator<Item = (&Matrix<'_>, usize)> {
        let types = self.types.iter().map(move |matrix| (matrix, segment));
        types.chain(self.positions.iter().map(move |matrix| (matrix, position)))
    }
}

impl Branch<'_> {
    /// The largest number of mixers of a branch.
    pub const MIXERS_MAX: usize = 2;
}

/// The computation of a branch, from embedding to embedding.
pub enum Mixer<'a> {
    Attention(Attention<'a>),
    ShortConvolution(ShortConvolution<'a>),
    Scan(Scan<'a>),
    Dense(Network<'a>),
    Experts(Mixture<'a>),
    LayerInput(LayerInput<'a>),
}

/// Attention to the tokens of the same layer.
pub struct Attention<'a> {
    pub config: config::Attention,
    pub layer: usize,
    /// Queries alone if the layer attends to keys and values of another; without values if these are
    /// the projections of keys. If the outputs have gates, each head of queries is followed by its
    /// gates, or they are the last segment. With a latent, the products of queries with `attn_k_b`: elements that do not rotate to the
    /// latent's, in a row that also has what rotates, and keys.
    pub query_key_value: Linear<'a>, // embedding -> heads (twice if gated), kv_heads, kv_heads
    pub latent: Option<Box<Latent<'a>>>,
    /// The gates of the outputs, if they have any.
    pub gates: Option<Gates>,
    pub query_norm: Option<&'a [f32]>, // (head_dim)
    pub key_norm: Option<&'a [f32]>,   // (head_dim)
    /// Whether heads of values are normalized, without weights.
    pub value_norm: bool,
    /// Whether the norms of heads come after their rotation.
    pub norms_after_rotation: bool,
    /// The norms of all heads of queries together, and of keys.
    pub row_norms: Option<[&'a [f32]; 2]>, // (heads, head_dim), (kv_heads, head_dim)
    pub sinks: Option<&'a [f32]>, // (heads)
    pub output: Linear<'a>,       // heads -> embedding
}

/// The gates of the outputs of attention.
#[derive(Clone, Copy)]
pub enum Gates {
    /// Sigmoids of what follows each head of queries.
    WithQueries,
    /// Softplus of the projections from `column` on, each for `outputs` outputs.
    Apart { column: usize, outputs: usize },
}

/// A segment of [`Attention::query_key_value`]. The discriminants are the indices of the segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Projection {
    Query = 0,
    Key = 1,
    Value = 2,
}

/// A feed-forward network.
pub struct Network<'a> {
    /// Gate and up, or only up if the network has no gate; then the gate of the whole output, if it
    /// has one.
    pub gate_up: Linear<'a>, // embedding -> feed_forward, feed_forward, 1
    /// Whether the whole output has a gate.
    pub gated: bool,
    pub down: Linear<'a>, // feed_forward -> embedding
    pub feed_forward: usize,
    pub function: Function,
}

/// A mixture of experts, each a feed-forward network.
pub struct Mixture<'a> {
    /// The norms of the inputs of router and experts, if these differ from the branch's input.
    pub norms: Option<MixtureNorms<'a>>,
    pub router: Linear<'a>, // embedding -> experts
    /// The bias of each expert's probability in the choice of experts. It does not change weights.
    pub selection_bias: Option<&'a [f32]>, // (experts)
    pub experts: Vec<Network<'a>>,
    /// The number of experts that compute a token.
    pub used: usize,
    pub routing: Routing,
}

/// The norms of the inputs of a mixture of experts.
pub struct MixtureNorms<'a> {
    /// The result is divided by the square root of its length.
    pub router: NormWeights<'a>,
    pub experts: NormWeights<'a>,
}

impl<'a> Weights<'a> {
    /// Reads every tensor that a model of this configuration has.
    ///
    /// # Errors
    /// If a tensor is missing, has the wrong shape or an unsupported type, or is not part of such a
    /// model.
    pub fn load(
        gguf: &Gguf<'a>,
        config: &Config,
        adapters: &[Adapter<'a>],
        split: &'a SplitKeys,
    ) -> Result<Self, Error> {
        let reader = TensorReader::new(gguf, adapters, split);
        let weights = Self::read(&reader, gguf, config)?;
        reader.finish(config)?;
        Ok(weights)
    }

    /// Reads the tensors that a model of this configuration has.
    fn read(
        reader: &TensorReader<'_, 'a>,
        gguf: &Gguf<'a>,
        config: &Config,
    ) -> Result<Self, Error> {
        let (embedding, vocabulary) = (config.embedding, config.vocabulary);
        let tokens = reader.matrix(EMBEDDINGS, vocabulary, embedding)?;
        let output = match reader.has("output") {
            true => reader.linear("output", vocabulary, embedding)?,
            false => SegmentTensors::plain(tokens),
        };
        let output = config.causal.then(|| Linear::new([output]));
        let layers = config.layers.iter().enumerate();
        let layers = layers.map(|(index, one)| layer(reader, config, index, one));
        let mut weights = Weights {
            tokens,
            token_additions: reader.low_rank(EMBEDDINGS),
            layer_inputs: LayerInputs::load(reader, config)?,
            terms: terms(reader, gguf, config)?,
            layers: layers.collect::<Result<_, _>>()?,
            output_norm: norm(reader, config, config.architecture.output_norm)?,
            output,
            predictor: Predictor::load(reader, config, tokens)?,
            head: EmbeddingHead::load(reader, embedding)?,
            low_rank_width: 0,
        };
        let projections = weights.layer_inputs.iter().map(|inputs| &inputs.projection);
        let predictor = weights.predictor.iter().flat_map(Predictor::linears);
        let linears = weights.mixers().flat_map(Mixer::linears).chain(&weights.output);
        let linears = linears.chain(projections).chain(predictor);
        let ranks = weights.token_additions.iter().map(|addition| addition.up.columns());
        weights.low_rank_width =
            linears.map(Linear::low_rank_width).chain(ranks).max().unwrap_or(0);
        Ok(weights)
    }

    /// Returns the attention of a layer that stored the keys and values of `attention`: itself, or
    /// an earlier layer.
    pub fn stored<'w>(&'w self, attention: &'w Attention<'a>) -> &'w Attention<'a> {
        let source = attention.config.shared_with.and_then(|layer| self.layers.get(layer));
        let mut found = source.into_iter().flatten().flat_map(|branch| &branch.mixers);
        let found = found.find_map(|mixer| match mixer {
            Mixer::Attention(attention) => Some(attention),
            _ => None,
        });
        found.unwrap_or(attention)
    }

    /// Returns the branches of all layers, each with its layer.
    pub fn branches(&self) -> impl Iterator<Item = (usize, &Branch<'a>)> {
        let layers = self.layers.iter().enumerate();
        layers.flat_map(|(layer, all)| all.iter().map(move |one| (layer, one)))
    }

    /// Returns the mixers of all layers, the predictor included.
    pub fn mixers(&self) -> impl Iterator<Item = &Mixer<'a>> {
        let predictor = self.predictor.iter().flat_map(|predictor| &predictor.branches);
        self.layers.iter().flatten().chain(predictor).flat_map(|branch| &branch.mixers)
    }
}

/// Reads a norm of activations, if there is one. Only norms that subtract the mean have a bias.
fn norm<'a>(
    reader: &TensorReader<'_, 'a>,
    config: &Config,
    name: Option<&str>,
) -> Result<Option<NormWeights<'a>>, Error> {
    let Some(name) = name else { return Ok(None) };
    let bias = match config.architecture.norm {
        Norm::Rms => None,
        Norm::Layer => reader.vector_if(&format!("{name}.bias"), config.embedding)?,
    };
    // Files of Falcon-H1 have the norm of the network's input without the suffix.
    let weight = match reader.vector_if(name, config.embedding)? {
        Some(weight) => weight,
        None => reader.vector(&format!("{name}.weight"), config.embedding)?,
    };
    Ok(Some(NormWeights { weight, bias }))
}

/// Reads the vectors that are added to the embeddings of tokens.
fn terms<'a>(
    reader: &TensorReader<'_, 'a>,
    gguf: &Gguf<'a>,
    config: &Config,
) -> Result<Option<Terms<'a>>, Error> {
    let terms = config.architecture.terms;
    let name = (terms != architecture::Terms::None).then_some("token_embd_norm");
    let Some(norm) = norm(reader, config, name)? else { return Ok(None) };
    let has_positions = terms == architecture::Terms::TypesAndPositions;
    let positions = config.context_train;
    let positions =
        has_positions.then(|| reader.matrix("position_embd.weight", positions, config.embedding));
    let types = reader
        .rows("token_types")
        .map(|types| reader.matrix("token_types.weight", types, config.embedding));
    let types = types.transpose()?;
    let separator = gguf.metadata().u32(SEPARATOR)?.unwrap_or(SEPARATOR_DEFAULT);
    let separator = types.filter(|types| types.rows() > 1).map(|_| separator);
    Ok(Some(Terms { types, separator, positions: positions.transpose()?, norm }))
}

/// Reads the branches of a layer: attention and the feed-forward network, one after the other or
/// together.
fn layer<'a>(
    reader: &TensorReader<'_, 'a>,
    config: &Config,
    index: usize,
    layer: &Layer,
) -> Result<Vec<Branch<'a>>, Error> {
    let name = |tensor: &str| format!("blk.{index}.{tensor}");
    let norm = |tensor: Option<&str>| norm(reader, config, tensor.map(name).as_deref());
    let branch = |norms: Norms, mixers, mixer_norms| {
        Ok::<_, Error>(Branch {
            norm: norm(norms.before)?,
            mixers,
            mixer_norms,
            post_norm: norm(norms.after)?,
            output_scale: 1.0,
        })
    };
    let architecture = &config.architecture;
    let attention = layer.attention.map(|attention| {
        Attention::load(reader, config, attention, index, &name).map(Mixer::Attention)
    });
    let recurrence =
        layer.recurrence.map(|own| recurrence::load(reader, config, own, index, &name));
    let mixers = attention.into_iter().chain(recurrence);
    let mut mixers: Vec<_> = mixers.collect::<Result<_, _>>()?;
    let network = |width, part: &str| {
        let name = |tensor: &str| name(&format!("ffn_{tensor}{part}"));
        Network::load(reader, config, layer, width, &name).map(Mixer::Dense)
    };
    let mut network_norms = Vec::new();
    let networks = match layer.feed_forward {
        FeedForward::None => vec![],
        FeedForward::Dense(width) => vec![network(width, "")?],
        FeedForward::Experts(mixture) if architecture.experts == Experts::Beside => {
            for tensor in ["post_ffw_norm_1", "post_ffw_norm_2"] {
                network_norms.extend(norm(Some(tensor))?);
            }
            let experts = Mixture::load(reader, config, layer, mixture, &name)?;
            vec![network(mixture.shared, "")?, Mixer::Experts(experts)]
        }
        FeedForward::Experts(mixture) => {
            let experts = Mixture::load(reader, config, layer, mixture, &name)?;
            let shared = (mixture.shared > 0).then(|| network(mixture.shared, "_shexp"));
            [Mixer::Experts(experts)].into_iter().chain(shared.transpose()?).collect()
        }
    };
    let mut branches = match architecture.network {
        Some(norms) => vec![
            branch(architecture.attention, mixers, vec![])?,
            branch(norms, networks, network_norms)?,
        ],
        None => {
            mixers.extend(networks);
            vec![branch(architecture.attention, mixers, vec![])?]
        }
    };
    if config.layer_input > 0 {
        let input = LayerInput::load(reader, config, index, &name)?;
        let norms = Norms { before: None, after: Some("post_norm") };
        branches.push(branch(norms, vec![Mixer::LayerInput(input)], vec![])?);
    }
    if let Some(scale) = reader.vector_if(&name("layer_output_scale.weight"), 1)?
        && let Some(last) = branches.last_mut()
    {
        last.output_scale = scale[0];
    }
    Ok(branches)
}

impl<'a> Mixer<'a> {
    /// Returns one linear of each shape: all experts have the same.
    fn linears(&self) -> Vec<&Linear<'a>> {
        match self {
            Mixer::Attention(attention) => {
                let latent = attention.latent.iter().flat_map(|latent| latent.linears());
                latent.chain([&attention.query_key_value, &attention.output]).collect()
            }
            Mixer::ShortConvolution(convolution) => vec![&convolution.input, &convolution.output],
            Mixer::Scan(scan) => vec![&scan.input, &scan.output],
            Mixer::Dense(network) => vec![&network.gate_up, &network.down],
            Mixer::Experts(Mixture { router, experts, .. }) => {
                vec![router, &experts[0].gate_up, &experts[0].down]
            }
            Mixer::LayerInput(LayerInput { gate, down, .. }) => vec![gate, down],
        }
    }
}

impl<'a> Attention<'a> {
    /// Returns the layer of the model with the keys and values that are attended to.
    pub fn source(&self) -> usize {
        self.config.shared_with.unwrap_or(self.layer)
    }

    /// Returns the bias of a projection, if the product did not add it.
    pub fn later_bias(&self, projection: Projection) -> Option<&'a [f32]> {
        let segment = self.segment(projection).filter(|_| self.latent.is_none())?;
        segment.bias.filter(|_| self.query_key_value.bias_later)
    }

    /// Returns the first column of a projection; 0 if the layer does not have it.
    pub fn column(&self, projection: Projection) -> usize {
        match (&self.latent, projection) {
            (Some(_), Projection::Key) => self.config.query_width(),
            _ => self.segment(projection).map_or(0, |segment| segment.column),
        }
    }

    fn segment(&self, projection: Projection) -> Option<&Segment<'a>> {
        let segments = &self.query_key_value.segments;
        let apart = usize::from(matches!(self.gates, Some(Gates::Apart { .. })));
        let segments = &segments[..segments.len() - apart];
        match projection {
            Projection::Value => segments[1..].last(),
            Projection::Query | Projection::Key => segments.get(projection as usize),
        }
    }

    fn load(
        reader: &TensorReader<'_, 'a>,
        Config { architecture, embedding, .. }: &Config,
        config: config::Attention,
        layer: usize,
        name: &dyn Fn(&str) -> String,
    ) -> Result<Self, Error> {
        let (embedding, head_dim) = (*embedding, config.head_dim);
        if let Some(dims) = config.latent {
            return Latent::load(reader, embedding, config, dims, layer, name);
        }
        let (heads, kv_heads) = (config.query_width(), config.kv_heads * head_dim);
        // A family either always or never has these norms: a missing or superfluous one is an
        // error.
        let norm = |tensor: &str, len: usize| reader.vector(&name(tensor), len);
        let (query_norm, key_norm) = ("attn_q_norm.weight", "attn_k_norm.weight");
        let mut head_norms = [None; 2];
        let mut row_norms = None;
        match architecture.head_norms {
            HeadNorms::None => {}
            HeadNorms::Heads | HeadNorms::RotatedHeads => {
                let key = config.shared_with.is_none().then(|| norm(key_norm, head_dim));
                head_norms = [Some(norm(query_norm, head_dim)?), key.transpose()?];
            }
            HeadNorms::Rows => {
                row_norms = Some([norm(query_norm, heads)?, norm(key_norm, kv_heads)?]);
            }
        }
        let sinks = architecture.sinks.then(|| norm("attn_sinks.weight", config.heads));
        let with_queries = architecture.attention_gates == AttentionGates::WithQueries;
        let queries = if with_queries { 2 * heads } else { heads };
        let mut query_key_value = match reader.has(&name("attn_qkv")) {
            _ if config.shared_with.is_some() => {
                // Files may have the tensors that sharing replaces.
                for tensor in ["attn_k.weight", "attn_v.weight", "attn_k_norm.weight"] {
                    reader.skip(&name(tensor));
                }
                vec![reader.linear(&name("attn_q"), queries, embedding)?]
            }
            true => reader.fused(&name("attn_qkv"), &[queries, kv_heads, kv_heads], embedding)?,
            false => {
                let key_as_value = architecture.value_norm && !reader.has(&name("attn_v"));
                let mut all = vec![
                    reader.linear(&name("attn_q"), queries, embedding)?,
                    reader.linear(&name("attn_k"), kv_heads, embedding)?,
                ];
                if !key_as_value {
                    all.push(reader.linear(&name("attn_v"), kv_heads, embedding)?);
                }
                all
            }
        };
        let gates = match architecture.attention_gates {
            AttentionGates::None => None,
            AttentionGates::WithQueries => Some(heads),
            AttentionGates::Apart => {
                // One for each element of the outputs, or for each head.
                let gate = name("attn_gate");
                let count = reader.rows(&gate).filter(|rows| *rows == heads);
                let count = count.unwrap_or(config.heads);
                query_key_value.push(reader.linear(&gate, count, embedding)?);
                Some(count)
            }
        };
        let query_key_value = Linear {
            bias_later: row_norms.is_none() && gates.is_none(),
            ..Linear::new(query_key_value)
        };
        let gates = gates.map(|count| match with_queries {
            true => Gates::WithQueries,
            false => Gates::Apart {
                column: query_key_value.segments.last().map_or(0, |gates| gates.column),
                outputs: heads / count,
            },
        });
        Ok(Attention {
            config,
            layer,
            query_key_value,
            latent: None,
            gates,
            query_norm: head_norms[0],
            key_norm: head_norms[1],
            value_norm: architecture.value_norm,
            norms_after_rotation: architecture.head_norms == HeadNorms::RotatedHeads,
            row_norms,
            sinks: sinks.transpose()?,
            output: Linear::new([reader.linear(&name("attn_output"), embedding, heads)?]),
        })
    }
}

impl<'a> Network<'a> {
    /// Reads a network from the tensors `name("gate")`, `name("up")` and `name("down")`.
    fn load(
        reader: &TensorReader<'_, 'a>,
        config: &Config,
        layer: &Layer,
        feed_forward: usize,
        name: &dyn Fn(&str) -> String,
    ) -> Result<Self, Error> {
        let embedding = config.embedding;
        let one = |part: &str| reader.linear(&name(part), feed_forward, embedding);
        let mut gate_up = match config.architecture.inner {
            Inner::Gated(_) => vec![one("gate")?, one("up")?],
            Inner::GatedInOne(_) => {
                reader.fused(&name("up"), &[feed_forward, feed_forward], embedding)?
            }
            Inner::Gelu | Inner::SquaredRelu | Inner::Xielu => vec![one("up")?],
        };
        let down = reader.linear(&name("down"), embedding, feed_forward)?;
        let gate = name("gate_inp");
        // Of a network beside experts: `ffn_gate_inp` itself is their router.
        let gated = gate.ends_with("_shexp") && reader.has(&gate);
        if gated {
            gate_up.push(reader.linear(&gate, 1, embedding)?);
        }
        Ok(Network {
            gate_up: Linear::new(gate_up),
            gated,
            down: Linear::new([down]),
            feed_forward,
            function: layer.function,
        })
    }
}

impl<'a> Mixture<'a> {
    fn load(
        reader: &TensorReader<'_, 'a>,
        config: &Config,
        layer: &Layer,
        config::Mixture { count, used, feed_forward, routing, .. }: config::Mixture,
        name: &dyn Fn(&str) -> String,
    ) -> Result<Self, Error> {
        let embedding = config.embedding;
        let all = |tensor: &str, rows, columns| reader.experts(&name(tensor), count, rows, columns);
        let gate_ups: Vec<_> = match reader.has(&name("ffn_gate_up_exps")) {
            true => {
                let both = all("ffn_gate_up", 2 * feed_forward, embedding)?.into_iter();
                let halves = [0..feed_forward, feed_forward..2 * feed_forward];
                both.map(|both| Vec::from(halves.clone().map(|half| both.rows(half)))).collect()
            }
            false => {
                let ups = all("ffn_up", feed_forward, embedding)?.into_iter();
                match layer.function {
                    Function::Ungated(_) => ups.map(|up| vec![up]).collect(),
                    Function::Gated(_) => {
                        let gates = all("ffn_gate", feed_forward, embedding)?.into_iter();
                        gates.zip(ups).map(|(gate, up)| vec![gate, up]).collect()
                    }
                }
            }
        };
        let downs = all("ffn_down", embedding, feed_forward)?;
        let experts = gate_ups.into_iter().zip(downs).map(|(gate_up, down)| Network {
            gate_up: Linear::new(gate_up),
            gated: false,
            down: Linear::new([down]),
            feed_forward,
            function: layer.function,
        });
        let router = name("ffn_gate_inp");
        let (router, norms) = match config.architecture.experts {
            Experts::Beside => {
                let norms = MixtureNorms {
                    router: NormWeights {
                        weight: reader.vector(&format!("{router}.scale"), embedding)?,
                        bias: None,
                    },
                    experts: NormWeights {
                        weight: reader.vector(&name("pre_ffw_norm_2.weight"), embedding)?,
                        bias: None,
                    },
                };
                (reader.unscaled(&router, count, embedding)?, Some(norms))
            }
            _ => (reader.linear(&router, count, embedding)?, None),
        };
        Ok(Mixture {
            norms,
            router: Linear::new([router]),
            selection_bias: reader.vector_if(&name("exp_probs_b.bias"), count)?,
            experts: experts.collect(),
            used,
            routing,
        })
    }
}
