//! A model's weights: tensors borrowed from the file, with their shapes checked.

use std::{cell::RefCell, collections::HashSet, ops::Range};

use rope_cpu_kernels::Matrix;

use super::{
    Config, EMBEDDINGS, Error,
    adapter::{Adapter, LowRank},
    config, dtype,
};
use crate::gguf::{Gguf, Tensor};

/// All weights of a model.
pub struct Weights<'a> {
    pub tokens: Matrix<'a>, // (vocabulary, embedding)
    /// The adapters' terms that are added to embeddings.
    pub token_additions: Vec<LowRank<'a>>,
    pub layers: Vec<Layer<'a>>,
    pub output_norm: &'a [f32], // (embedding)
    pub output: Linear<'a>,     // embedding -> vocabulary
    /// The largest width of [`Linear::adapter_down`], or rank of an adapter of the embeddings; 0
    /// without adapters.
    pub low_rank_width: usize,
}

/// The weights of one layer.
pub struct Layer<'a> {
    pub attention_norm: &'a [f32],                 // (embedding)
    pub query_key_value: Linear<'a>,               // embedding -> heads, kv_heads, kv_heads
    pub query_norm: Option<&'a [f32]>,             // (head_dim)
    pub key_norm: Option<&'a [f32]>,               // (head_dim)
    pub attention_output: Linear<'a>,              // heads -> embedding
    pub post_attention_norm: Option<&'a [f32]>,    // (embedding)
    pub feed_forward_norm: &'a [f32],              // (embedding)
    pub feed_forward: FeedForward<'a>,             // embedding -> embedding
    pub post_feed_forward_norm: Option<&'a [f32]>, // (embedding)
}

/// The feed-forward network of a layer.
pub enum FeedForward<'a> {
    Dense(Gated<'a>),
    Experts(Mixture<'a>),
}

/// A gated feed-forward network.
pub struct Gated<'a> {
    pub gate_up: Linear<'a>, // embedding -> feed_forward, feed_forward
    pub down: Linear<'a>,    // feed_forward -> embedding
}

/// A mixture of experts, each a gated feed-forward network.
pub struct Mixture<'a> {
    pub router: Linear<'a>, // embedding -> experts
    pub experts: Vec<Gated<'a>>,
    /// The number of experts that compute a token.
    pub used: usize,
}

/// Matrices that multiply the same input. Their outputs lie side by side, each segment at a
/// multiple of [`Linear::BLOCK`].
pub struct Linear<'a> {
    pub segments: Vec<Segment<'a>>,
    pub width: usize,
    /// Whether the reader of the outputs adds the biases: attention adds those of a head when it
    /// rotates the head.
    pub bias_later: bool,
    /// The down-projections (A) of all adapters, side by side. Their outputs are the inputs of
    /// [`Segment::additions`].
    pub adapter_down: Option<Box<Linear<'a>>>,
}

/// A segment of [`Layer::query_key_value`]. The discriminants are the indices of the segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Projection {
    Query = 0,
    Key = 1,
    Value = 2,
}

/// One matrix of a [`Linear`], and its outputs' columns.
pub struct Segment<'a> {
    /// The first column of the outputs.
    pub column: usize,
    pub matrix: Matrix<'a>,
    /// The factor of the outputs, applied before the bias.
    pub scale: f32,
    pub bias: Option<&'a [f32]>,
    pub additions: Vec<Addition<'a>>,
}

/// The term that an adapter adds to the outputs of a segment.
pub struct Addition<'a> {
    /// The first column of its inputs among the outputs of [`Linear::adapter_down`].
    pub column: usize,
    pub up: Matrix<'a>, // (rows of the segment, rank)
    pub scale: f32,
}

/// The tensors of a segment: the matrix, its optional scale and bias, and the adapters' terms.
struct SegmentTensors<'a> {
    matrix: Matrix<'a>,
    scale: f32,
    bias: Option<&'a [f32]>,
    low_rank: Vec<LowRank<'a>>,
}

impl<'a> SegmentTensors<'a> {
    /// Returns a matrix without scale, bias and adapters.
    fn plain(matrix: Matrix<'a>) -> Self {
        SegmentTensors { matrix, scale: 1.0, bias: None, low_rank: Vec::new() }
    }

    /// Returns some of the rows.
    fn rows(&self, rows: Range<usize>) -> Self {
        SegmentTensors {
            matrix: self.matrix.part(rows.clone()),
            scale: self.scale,
            bias: self.bias.map(|bias| &bias[rows.clone()]),
            low_rank: self.low_rank.iter().map(|low| low.rows(rows.clone())).collect(),
        }
    }
}

impl<'a> Linear<'a> {
    /// The number of outputs that are computed together.
    pub const BLOCK: usize = 16;

    /// Returns the number of outputs of a task. For many tokens several blocks share one read of
    /// the tokens; for few tokens tasks are small, so that all workers end at about the same time.
    pub fn unit(tokens: usize) -> usize {
        if tokens < 32 { Self::BLOCK } else { 4 * Self::BLOCK }
    }

    fn new(tensors: impl IntoIterator<Item = SegmentTensors<'a>>) -> Self {
        let (mut width, mut low_rank_width) = (0, 0);
        let next = |width: &mut usize, matrix: &Matrix<'_>| {
            let column = *width;
            *width += matrix.rows().next_multiple_of(Self::BLOCK);
            column
        };
        let mut downs = Vec::new();
        let segments =
            tensors.into_iter().map(|SegmentTensors { matrix, scale, bias, low_rank }| {
                let additions = low_rank.into_iter().map(|LowRank { down, up, scale }| {
                    downs.push(SegmentTensors::plain(down));
                    Addition { column: next(&mut low_rank_width, &down), up, scale }
                });
                let additions = additions.collect();
                Segment { column: next(&mut width, &matrix), matrix, scale, bias, additions }
            });
        let segments = segments.collect();
        let adapter_down = (!downs.is_empty()).then(|| Box::new(Linear::new(downs)));
        Linear { segments, width, bias_later: false, adapter_down }
    }

    fn low_rank_width(&self) -> usize {
        self.adapter_down.as_ref().map_or(0, |down| down.width)
    }

    /// Returns the first output column of each segment.
    pub fn columns<const N: usize>(&self) -> [usize; N] {
        std::array::from_fn(|i| self.segments[i].column)
    }
}

/// Returns the elements of a tensor of type `f32`.
pub fn vector<'a>(tensor: &Tensor<'a>) -> Result<&'a [f32], Error> {
    let floats = (tensor.ggml_type.name.eq_ignore_ascii_case("f32"))
        .then(|| bytemuck::try_cast_slice(tensor.bytes).ok());
    floats.flatten().ok_or_else(|| Error::NotF32 {
        tensor: tensor.name.into(),
        found: tensor.ggml_type.name.into(),
    })
}

/// Reads tensors by name, and records which ones were read.
struct TensorReader<'g, 'a> {
    gguf: &'g Gguf<'a>,
    adapters: &'g [Adapter<'a>],
    used: RefCell<HashSet<String>>,
}

impl<'a> TensorReader<'_, 'a> {
    fn has(&self, name: &str) -> bool {
        self.gguf.tensor(&format!("{name}.weight")).is_some()
    }

    fn find(&self, name: &str, shape: &[usize]) -> Result<Option<&Tensor<'a>>, Error> {
        let Some(tensor) = self.gguf.tensor(name) else { return Ok(None) };
        let dims = shape.iter().map(|&n| n as u64).chain(std::iter::repeat(1));
        if !dims.zip(tensor.dims).all(|(expected, found)| expected == found) {
            return Err(Error::Shape {
                tensor: name.into(),
                found: tensor.shape().to_vec(),
                expected: shape.iter().map(|&n| n as u64).collect(),
            });
        }
        self.used.borrow_mut().insert(name.into());
        Ok(Some(tensor))
    }

    fn vector_if(&self, name: &str, len: usize) -> Result<Option<&'a [f32]>, Error> {
        self.find(name, &[len])?.map(vector).transpose()
    }

    fn vector(&self, name: &str, len: usize) -> Result<&'a [f32], Error> {
        self.vector_if(name, len)?.ok_or_else(|| Error::MissingTensor(name.into()))
    }

    fn matrix(&self, name: &str, rows: usize, columns: usize) -> Result<Matrix<'a>, Error> {
        let tensor = self.find(name, &[columns, rows])?;
        let tensor = tensor.ok_or_else(|| Error::MissingTensor(name.into()))?;
        Matrix::new(dtype(tensor)?, rows, columns, tensor.bytes)
            .map_err(|reason| Error::Matrix { tensor: name.into(), reason })
    }

    fn low_rank(&self, name: &str) -> Vec<LowRank<'a>> {
        self.adapters.iter().filter_map(|adapter| adapter.addition(name)).collect()
    }

    /// Reads the factors of the products with `count` matrices, `name.scale`, which files in NVFP4
    /// have. `name.input_scale` is for programs that quantize activations with a fixed scale; here
    /// activations have scales of their own.
    fn scales(&self, name: &str, count: usize) -> Result<Option<&'a [f32]>, Error> {
        self.vector_if(&format!("{name}.input_scale"), count)?;
        self.vector_if(&format!("{name}.scale"), count)
    }

    /// Reads the matrix `name.weight`, and its scale and bias if the file has them.
    fn linear(&self, name: &str, rows: usize, columns: usize) -> Result<SegmentTensors<'a>, Error> {
        let weight = format!("{name}.weight");
        Ok(SegmentTensors {
            matrix: self.matrix(&weight, rows, columns)?,
            scale: self.scales(name, 1)?.map_or(1.0, |scale| scale[0]),
            bias: self.vector_if(&format!("{name}.bias"), rows)?,
            low_rank: self.low_rank(&weight),
        })
    }

    /// Reads matrices that are stacked in `name.weight`, each with its number of rows, and their
    /// biases in `name.bias`.
    fn fused(
        &self,
        name: &str,
        rows: &[usize],
        columns: usize,
    ) -> Result<Vec<SegmentTensors<'a>>, Error> {
        let whole = self.linear(name, rows.iter().sum(), columns)?;
        let mut end = 0;
        let segments = rows.iter().map(|&rows| {
            end += rows;
            whole.rows(end - rows..end)
        });
        Ok(segments.collect())
    }

    /// Reads the matrices of all experts, of `rows` each: from `name_exps.weight`, or from a tensor
    /// for each expert, as in Mixtral's first files.
    fn experts(
        &self,
        name: &str,
        count: usize,
        rows: usize,
        columns: usize,
    ) -> Result<Vec<SegmentTensors<'a>>, Error> {
        let together = format!("{name}_exps.weight");
        let Some(tensor) = self.find(&together, &[columns, rows, count])? else {
            if !self.has(&format!("{name}.0")) {
                return Err(Error::MissingTensor(together));
            }
            let one = |i| self.linear(&format!("{name}.{i}"), rows, columns);
            return (0..count).map(one).collect();
        };
        let scales = self.scales(&format!("{name}_exps"), count)?;
        let low_rank = self.low_rank(&together);
        let whole = Matrix::new(dtype(tensor)?, rows * count, columns, tensor.bytes)
            .map_err(|reason| Error::Matrix { tensor: together, reason })?;
        let one = |i| SegmentTensors {
            matrix: whole.part(i * rows..(i + 1) * rows),
            scale: scales.map_or(1.0, |scales| scales[i]),
            bias: None,
            low_rank: low_rank.iter().map(|low| low.expert(i, count)).collect(),
        };
        Ok((0..count).map(one).collect())
    }
}

impl<'a> Weights<'a> {
    /// Reads every tensor that a model of this configuration has.
    ///
    /// # Errors
    /// If a tensor is missing, has the wrong shape or an unsupported type, or is not part of such a
    /// model.
    pub fn load(gguf: &Gguf<'a>, config: &Config, adapters: &[Adapter<'a>]) -> Result<Self, Error> {
        let reader = TensorReader { gguf, adapters, used: RefCell::default() };
        let (embedding, vocabulary) = (config.embedding, config.vocabulary);
        let tokens = reader.matrix(EMBEDDINGS, vocabulary, embedding)?;
        let output = match reader.has("output") {
            true => reader.linear("output", vocabulary, embedding)?,
            false => SegmentTensors::plain(tokens),
        };
        let mut weights = Weights {
            tokens,
            token_additions: reader.low_rank(EMBEDDINGS),
            layers: (0..config.layers.len())
                .map(|i| Layer::load(&reader, config, i))
                .collect::<Result<_, _>>()?,
            output_norm: reader.vector("output_norm.weight", embedding)?,
            output: Linear::new([output]),
            low_rank_width: 0,
        };
        let linears = weights.layers.iter().flat_map(Layer::linears).chain([&weights.output]);
        let ranks = weights.token_additions.iter().map(|addition| addition.up.columns());
        weights.low_rank_width =
            linears.map(Linear::low_rank_width).chain(ranks).max().unwrap_or(0);
        let used = reader.used.into_inner();
        let unused = gguf.tensors().iter().find(|t| !used.contains(t.name) && !is_rope(t.name));
        match unused {
            Some(tensor) => Err(Error::UnusedTensor(tensor.name.into())),
            None => Ok(weights),
        }
    }
}

impl Weights<'_> {
    /// Returns the largest width of [`Gated::gate_up`] in any layer.
    pub fn gate_up_width(&self) -> usize {
        let width = |layer: &Layer<'_>| match &layer.feed_forward {
            FeedForward::Dense(network) => network.gate_up.width,
            FeedForward::Experts(_) => 0,
        };
        self.layers.iter().map(width).max().unwrap_or(0)
    }
}

/// Returns whether a tensor belongs to RoPE. The RoPE plan reads these tensors or warns about them;
/// old files repeat them in each layer.
fn is_rope(name: &str) -> bool {
    let name = name.rsplit_once("rope_").map_or("", |(_, tail)| tail);
    matches!(name, "freqs.weight" | "factors_long.weight" | "factors_short.weight")
}

impl<'a> Layer<'a> {
    /// Returns one linear of each shape: all experts have the same.
    fn linears(&self) -> [&Linear<'a>; 5] {
        let (router, network) = match &self.feed_forward {
            FeedForward::Dense(network) => (&network.down, network),
            FeedForward::Experts(mixture) => (&mixture.router, &mixture.experts[0]),
        };
        [&self.query_key_value, &self.attention_output, router, &network.gate_up, &network.down]
    }

    fn load(reader: &TensorReader<'_, 'a>, config: &Config, layer: usize) -> Result<Self, Error> {
        let name = |tensor: &str| format!("blk.{layer}.{tensor}");
        let embedding = config.embedding;
        let config::Layer { attention, feed_forward } = config.layers[layer];
        let head_dim = attention.head_dim;
        let (heads, kv_heads) = (attention.query_width(), attention.kv_heads * head_dim);
        let norm = |tensor: &str| reader.vector(&name(tensor), embedding);
        let architecture = config.architecture;
        // A family either always or never has these norms: a missing or superfluous one is an
        // error.
        let norm_if = |has: bool, tensor: &str, len: usize| {
            has.then(|| reader.vector(&name(tensor), len)).transpose()
        };
        let query_key_value = match reader.has(&name("attn_qkv")) {
            true => reader.fused(&name("attn_qkv"), &[heads, kv_heads, kv_heads], embedding)?,
            false => vec![
                reader.linear(&name("attn_q"), heads, embedding)?,
                reader.linear(&name("attn_k"), kv_heads, embedding)?,
                reader.linear(&name("attn_v"), kv_heads, embedding)?,
            ],
        };
        let attention_output = reader.linear(&name("attn_output"), embedding, heads)?;
        Ok(Layer {
            attention_norm: norm("attn_norm.weight")?,
            query_key_value: Linear { bias_later: true, ..Linear::new(query_key_value) },
            query_norm: norm_if(architecture.head_norms, "attn_q_norm.weight", head_dim)?,
            key_norm: norm_if(architecture.head_norms, "attn_k_norm.weight", head_dim)?,
            attention_output: Linear::new([attention_output]),
            post_attention_norm: norm_if(
                architecture.post_norms,
                "post_attention_norm.weight",
                embedding,
            )?,
            feed_forward_norm: norm("ffn_norm.weight")?,
            feed_forward: match feed_forward {
                config::FeedForward::Dense(width) => {
                    FeedForward::Dense(Gated::load(reader, config, width, &name)?)
                }
                config::FeedForward::Experts(mixture) => {
                    FeedForward::Experts(Mixture::load(reader, mixture, embedding, &name)?)
                }
            },
            post_feed_forward_norm: norm_if(
                architecture.post_norms,
                "post_ffw_norm.weight",
                embedding,
            )?,
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
        Ok(Gated { gate_up: Linear::new(gate_up), down: Linear::new([down]) })
    }
}

impl<'a> Mixture<'a> {
    fn load(
        reader: &TensorReader<'_, 'a>,
        config::Mixture { count, used, feed_forward }: config::Mixture,
        embedding: usize,
        name: &dyn Fn(&str) -> String,
    ) -> Result<Self, Error> {
        let all = |tensor: &str, rows, columns| reader.experts(&name(tensor), count, rows, columns);
        let gates = all("ffn_gate", feed_forward, embedding)?;
        let ups = all("ffn_up", feed_forward, embedding)?;
        let downs = all("ffn_down", embedding, feed_forward)?;
        let experts = gates.into_iter().zip(ups).zip(downs).map(|((gate, up), down)| Gated {
            gate_up: Linear::new([gate, up]),
            down: Linear::new([down]),
        });
        Ok(Mixture {
            router: Linear::new([reader.linear(&name("ffn_gate_inp"), count, embedding)?]),
            experts: experts.collect(),
            used,
        })
    }
}
