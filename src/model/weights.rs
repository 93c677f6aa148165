//! A model's weights: tensors borrowed from the file, with their shapes checked.

mod linear;
mod reader;

use rope_cpu_kernels::Matrix;

pub use self::linear::{Addition, Linear};
use self::{linear::SegmentTensors, reader::TensorReader};
use super::{
    Config, EMBEDDINGS, Error,
    adapter::{Adapter, LowRank},
    config::{self, FeedForward},
};
use crate::gguf::Gguf;

/// All weights of a model.
pub struct Weights<'a> {
    pub tokens: Matrix<'a>, // (vocabulary, embedding)
    /// The adapters' terms that are added to embeddings.
    pub token_additions: Vec<LowRank<'a>>,
    /// The branches of each layer, in the order of their computation.
    pub layers: Vec<Vec<Branch<'a>>>,
    pub output_norm: &'a [f32], // (embedding)
    pub output: Linear<'a>,     // embedding -> vocabulary
    /// The largest width of [`Linear::adapter_down`], or rank of an adapter of the embeddings; 0
    /// without adapters.
    pub low_rank_width: usize,
}

/// A branch of a layer, whose output is added to the activations `x` between layers:
/// `x += post_norm(mixer(norm(x)))`.
pub struct Branch<'a> {
    pub norm: &'a [f32], // (embedding)
    pub mixer: Mixer<'a>,
    pub post_norm: Option<&'a [f32]>, // (embedding)
}

/// The computation of a branch, from embedding to embedding.
pub enum Mixer<'a> {
    Attention(Attention<'a>),
    Dense(Gated<'a>),
    Experts(Mixture<'a>),
}

/// Attention to the tokens of the same layer.
pub struct Attention<'a> {
    pub config: config::Attention,
    /// The index of the layer in the KV cache.
    pub layer: usize,
    pub query_key_value: Linear<'a>, // embedding -> heads, kv_heads, kv_heads
    pub query_norm: Option<&'a [f32]>, // (head_dim)
    pub key_norm: Option<&'a [f32]>, // (head_dim)
    pub output: Linear<'a>,          // heads -> embedding
}

/// A segment of [`Attention::query_key_value`]. The discriminants are the indices of the segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Projection {
    Query = 0,
    Key = 1,
    Value = 2,
}

/// A gated feed-forward network.
pub struct Gated<'a> {
    pub gate_up: Linear<'a>, // embedding -> feed_forward, feed_forward
    pub down: Linear<'a>,    // feed_forward -> embedding
    pub feed_forward: usize,
}

/// A mixture of experts, each a gated feed-forward network.
pub struct Mixture<'a> {
    pub router: Linear<'a>, // embedding -> experts
    pub experts: Vec<Gated<'a>>,
    /// The number of experts that compute a token.
    pub used: usize,
}

impl<'a> Weights<'a> {
    /// Reads every tensor that a model of this configuration has.
    ///
    /// # Errors
    /// If a tensor is missing, has the wrong shape or an unsupported type, or is not part of such a
    /// model.
    pub fn load(gguf: &Gguf<'a>, config: &Config, adapters: &[Adapter<'a>]) -> Result<Self, Error> {
        let reader = TensorReader::new(gguf, adapters);
        let (embedding, vocabulary) = (config.embedding, config.vocabulary);
        let tokens = reader.matrix(EMBEDDINGS, vocabulary, embedding)?;
        let output = match reader.has("output") {
            true => reader.linear("output", vocabulary, embedding)?,
            false => SegmentTensors::plain(tokens),
        };
        let layers = (0..config.layers.len()).map(|index| layer(&reader, config, index));
        let mut weights = Weights {
            tokens,
            token_additions: reader.low_rank(EMBEDDINGS),
            layers: layers.collect::<Result<_, _>>()?,
            output_norm: reader.vector("output_norm.weight", embedding)?,
            output: Linear::new([output]),
            low_rank_width: 0,
        };
        reader.finish()?;
        let linears = weights.mixers().flat_map(Mixer::linears).chain([&weights.output]);
        let ranks = weights.token_additions.iter().map(|addition| addition.up.columns());
        weights.low_rank_width =
            linears.map(Linear::low_rank_width).chain(ranks).max().unwrap_or(0);
        Ok(weights)
    }

    /// Returns the mixers of all layers.
    pub fn mixers(&self) -> impl Iterator<Item = &Mixer<'a>> {
        self.layers.iter().flatten().map(|branch| &branch.mixer)
    }
}

/// Reads the branches of a layer: attention, then the feed-forward network.
fn layer<'a>(
    reader: &TensorReader<'_, 'a>,
    config: &Config,
    index: usize,
) -> Result<Vec<Branch<'a>>, Error> {
    let name = |tensor: &str| format!("blk.{index}.{tensor}");
    let config::Layer { attention, feed_forward } = config.layers[index];
    let attention = Attention::load(reader, config, attention, index, &name)?;
    let network = match feed_forward {
        FeedForward::Dense(width) => Mixer::Dense(Gated::load(reader, config, width, &name)?),
        FeedForward::Experts(mixture) => {
            Mixer::Experts(Mixture::load(reader, config, mixture, &name)?)
        }
    };
    let norm = |tensor: &str| reader.vector(&name(tensor), config.embedding);
    let post_norm = |tensor: &str| config.architecture.post_norms.then(|| norm(tensor)).transpose();
    Ok(vec![
        Branch {
            norm: norm("attn_norm.weight")?,
            mixer: Mixer::Attention(attention),
            post_norm: post_norm("post_attention_norm.weight")?,
        },
        Branch {
            norm: norm("ffn_norm.weight")?,
            mixer: network,
            post_norm: post_norm("post_ffw_norm.weight")?,
        },
    ])
}

impl<'a> Mixer<'a> {
    /// Returns one linear of each shape: all experts have the same.
    fn linears(&self) -> Vec<&Linear<'a>> {
        match self {
            Mixer::Attention(attention) => vec![&attention.query_key_value, &attention.output],
            Mixer::Dense(network) => vec![&network.gate_up, &network.down],
            Mixer::Experts(Mixture { router, experts, .. }) => {
                vec![router, &experts[0].gate_up, &experts[0].down]
            }
        }
    }
}

impl<'a> Attention<'a> {
    fn load(
        reader: &TensorReader<'_, 'a>,
        Config { architecture, embedding, .. }: &Config,
        config: config::Attention,
        layer: usize,
        name: &dyn Fn(&str) -> String,
    ) -> Result<Self, Error> {
        let (embedding, head_dim) = (*embedding, config.head_dim);
        let (heads, kv_heads) = (config.query_width(), config.kv_heads * head_dim);
        // A family either always or never has these norms: a missing or superfluous one is an
        // error.
        let head_norm = |tensor: &str| {
            architecture.head_norms.then(|| reader.vector(&name(tensor), head_dim)).transpose()
        };
        let query_key_value = match reader.has(&name("attn_qkv")) {
            true => reader.fused(&name("attn_qkv"), &[heads, kv_heads, kv_heads], embedding)?,
            false => vec![
                reader.linear(&name("attn_q"), heads, embedding)?,
                reader.linear(&name("attn_k"), kv_heads, embedding)?,
                reader.linear(&name("attn_v"), kv_heads, embedding)?,
            ],
        };
        Ok(Attention {
            config,
            layer,
            query_key_value: Linear { bias_later: true, ..Linear::new(query_key_value) },
            query_norm: head_norm("attn_q_norm.weight")?,
            key_norm: head_norm("attn_k_norm.weight")?,
            output: Linear::new([reader.linear(&name("attn_output"), embedding, heads)?]),
        })
    }
}

impl<'a> Gated<'a> {
    fn load(
        reader: &TensorReader<'_, 'a>,
        config: &Config,
        feed_forward: usize,
        name: &dyn Fn(&str) -> String,
    ) -> Result<Self, Error> {
        let embedding = config.embedding;
        let gate_up = match config.architecture.gate_with_up {
            true => reader.fused(&name("ffn_up"), &[feed_forward, feed_forward], embedding)?,
            false => vec![
                reader.linear(&name("ffn_gate"), feed_forward, embedding)?,
                reader.linear(&name("ffn_up"), feed_forward, embedding)?,
            ],
        };
        let down = reader.linear(&name("ffn_down"), embedding, feed_forward)?;
        Ok(Gated { gate_up: Linear::new(gate_up), down: Linear::new([down]), feed_forward })
    }
}

impl<'a> Mixture<'a> {
    fn load(
        reader: &TensorReader<'_, 'a>,
        config: &Config,
        config::Mixture { count, used, feed_forward }: config::Mixture,
        name: &dyn Fn(&str) -> String,
    ) -> Result<Self, Error> {
        let embedding = config.embedding;
        let all = |tensor: &str, rows, columns| reader.experts(&name(tensor), count, rows, columns);
        let gates = all("ffn_gate", feed_forward, embedding)?;
        let ups = all("ffn_up", feed_forward, embedding)?;
        let downs = all("ffn_down", embedding, feed_forward)?;
        let experts = gates.into_iter().zip(ups).zip(downs).map(|((gate, up), down)| Gated {
            gate_up: Linear::new([gate, up]),
            down: Linear::new([down]),
            feed_forward,
        });
        Ok(Mixture {
            router: Linear::new([reader.linear(&name("ffn_gate_inp"), count, embedding)?]),
            experts: experts.collect(),
            used,
        })
    }
}
