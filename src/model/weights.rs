//! A model's tensors, borrowed from the file, with their shapes checked.

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
    /// What adapters add to them.
    pub token_additions: Vec<LowRank<'a>>,
    pub layers: Vec<Layer<'a>>,
    pub output_norm: &'a [f32], // (embedding)
    pub output: Linear<'a>,     // embedding -> vocabulary
    /// Values that adapters make of an input at most; 0 without adapters.
    pub low_width: usize,
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

/// What a layer has after its attention.
pub enum FeedForward<'a> {
    Dense(Gated<'a>),
    Experts(Mixture<'a>),
}

/// A gated feed-forward network.
pub struct Gated<'a> {
    pub gate_up: Linear<'a>, // embedding -> feed_forward, feed_forward
    pub down: Linear<'a>,    // feed_forward -> embedding
}

/// A mixture of them.
pub struct Mixture<'a> {
    pub router: Linear<'a>, // embedding -> experts
    pub experts: Vec<Gated<'a>>,
    /// How many of them a token goes through.
    pub used: usize,
}

/// Matrices that multiply the same input, their outputs side by side, each at a multiple of
/// [`Linear::BLOCK`].
pub struct Linear<'a> {
    pub parts: Vec<Part<'a>>,
    pub width: usize,
    /// Whether biases are left to who reads the outputs: heads add theirs when they are rotated.
    pub bias_later: bool,
    /// What adapters make of the input, from which they add to the outputs.
    pub low: Option<Box<Linear<'a>>>,
}

/// One of them.
pub struct Part<'a> {
    pub column: usize,
    pub matrix: Matrix<'a>,
    /// What multiplies its outputs, before the bias.
    pub scale: f32,
    pub bias: Option<&'a [f32]>,
    pub additions: Vec<Addition<'a>>,
}

/// What an adapter adds to the outputs of a part.
pub struct Addition<'a> {
    /// Where its values are among those of [`Linear::low`].
    pub column: usize,
    pub up: Matrix<'a>, // (rows of the part, rank)
    pub scale: f32,
}

/// What a part is made from: the matrix, the scale and bias that may come with it, and what adapters add.
struct Piece<'a> {
    matrix: Matrix<'a>,
    scale: f32,
    bias: Option<&'a [f32]>,
    low_rank: Vec<LowRank<'a>>,
}

impl<'a> Piece<'a> {
    /// Nothing but the matrix.
    fn plain(matrix: Matrix<'a>) -> Self {
        Piece { matrix, scale: 1.0, bias: None, low_rank: Vec::new() }
    }

    /// Some of its rows.
    fn rows(&self, rows: Range<usize>) -> Self {
        Piece {
            matrix: self.matrix.part(rows.clone()),
            scale: self.scale,
            bias: self.bias.map(|bias| &bias[rows.clone()]),
            low_rank: self.low_rank.iter().map(|low| low.rows(rows.clone())).collect(),
        }
    }
}

impl<'a> Linear<'a> {
    /// Outputs that are computed together.
    pub const BLOCK: usize = 16;

    /// Outputs that a worker takes at least. For many tokens these are some that share one read of
    /// the tokens, for few they are few, so that all workers end at the same time.
    pub fn unit(tokens: usize) -> usize {
        if tokens < 32 { Self::BLOCK } else { 4 * Self::BLOCK }
    }

    fn new(pieces: impl IntoIterator<Item = Piece<'a>>) -> Self {
        let (mut width, mut low_width) = (0, 0);
        let next = |width: &mut usize, matrix: &Matrix<'_>| {
            let column = *width;
            *width += matrix.rows().next_multiple_of(Self::BLOCK);
            column
        };
        let mut lows = Vec::new();
        let parts = pieces.into_iter().map(|Piece { matrix, scale, bias, low_rank }| {
            let additions = low_rank.into_iter().map(|LowRank { down, up, scale }| {
                lows.push(Piece::plain(down));
                Addition { column: next(&mut low_width, &down), up, scale }
            });
            let additions = additions.collect();
            Part { column: next(&mut width, &matrix), matrix, scale, bias, additions }
        });
        let parts = parts.collect();
        let low = (!lows.is_empty()).then(|| Box::new(Linear::new(lows)));
        Linear { parts, width, bias_later: false, low }
    }

    fn low_width(&self) -> usize {
        self.low.as_ref().map_or(0, |low| low.width)
    }

    /// Where the outputs of each part begin.
    pub fn columns<const N: usize>(&self) -> [usize; N] {
        std::array::from_fn(|i| self.parts[i].column)
    }
}

/// A tensor of one dimension, as floats.
pub fn vector<'a>(tensor: &Tensor<'a>) -> Result<&'a [f32], Error> {
    let floats = (tensor.ggml_type.name.eq_ignore_ascii_case("f32"))
        .then(|| bytemuck::try_cast_slice(tensor.bytes).ok());
    floats.flatten().ok_or_else(|| Error::NotF32 {
        tensor: tensor.name.into(),
        found: tensor.ggml_type.name.into(),
    })
}

/// Takes tensors by name and remembers which were taken.
struct Source<'g, 'a> {
    gguf: &'g Gguf<'a>,
    adapters: &'g [Adapter<'a>],
    taken: RefCell<HashSet<String>>,
}

impl<'a> Source<'_, 'a> {
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
        self.taken.borrow_mut().insert(name.into());
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

    /// What multiplies the products with `count` matrices, which files in NVFP4 have: `name.scale`.
    /// `name.input_scale` is for programs that round activations by it; ours have scales of their own.
    fn scales(&self, name: &str, count: usize) -> Result<Option<&'a [f32]>, Error> {
        self.vector_if(&format!("{name}.input_scale"), count)?;
        self.vector_if(&format!("{name}.scale"), count)
    }

    /// The matrix `name.weight` with the scale and bias that may come with it.
    fn linear(&self, name: &str, rows: usize, columns: usize) -> Result<Piece<'a>, Error> {
        let weight = format!("{name}.weight");
        Ok(Piece {
            matrix: self.matrix(&weight, rows, columns)?,
            scale: self.scales(name, 1)?.map_or(1.0, |scale| scale[0]),
            bias: self.vector_if(&format!("{name}.bias"), rows)?,
            low_rank: self.low_rank(&weight),
        })
    }

    /// Matrices that lie one after the other in `name.weight`, with the rows that each has, and
    /// their biases in `name.bias`.
    fn fused(&self, name: &str, rows: &[usize], columns: usize) -> Result<Vec<Piece<'a>>, Error> {
        let whole = self.linear(name, rows.iter().sum(), columns)?;
        let mut end = 0;
        let parts = rows.iter().map(|&rows| {
            end += rows;
            whole.rows(end - rows..end)
        });
        Ok(parts.collect())
    }

    /// The matrices of all experts, of `rows` each: in `name_exps.weight`, or in a tensor for each,
    /// as in Mixtral's first files.
    fn experts(
        &self,
        name: &str,
        count: usize,
        rows: usize,
        columns: usize,
    ) -> Result<Vec<Piece<'a>>, Error> {
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
        let one = |i| Piece {
            matrix: whole.part(i * rows..(i + 1) * rows),
            scale: scales.map_or(1.0, |scales| scales[i]),
            bias: None,
            low_rank: low_rank.iter().map(|low| low.expert(i, count)).collect(),
        };
        Ok((0..count).map(one).collect())
    }
}

impl<'a> Weights<'a> {
    /// Finds every tensor that `config` asks for; any other tensor in the file is an error.
    pub fn load(gguf: &Gguf<'a>, config: &Config, adapters: &[Adapter<'a>]) -> Result<Self, Error> {
        let source = Source { gguf, adapters, taken: RefCell::default() };
        let (embedding, vocabulary) = (config.embedding, config.vocabulary);
        let tokens = source.matrix(EMBEDDINGS, vocabulary, embedding)?;
        let output = match source.has("output") {
            true => source.linear("output", vocabulary, embedding)?,
            false => Piece::plain(tokens),
        };
        let mut weights = Weights {
            tokens,
            token_additions: source.low_rank(EMBEDDINGS),
            layers: (0..config.layers)
                .map(|i| Layer::load(&source, config, i))
                .collect::<Result<_, _>>()?,
            output_norm: source.vector("output_norm.weight", embedding)?,
            output: Linear::new([output]),
            low_width: 0,
        };
        let linears = weights.layers.iter().flat_map(Layer::linears).chain([&weights.output]);
        let ranks = weights.token_additions.iter().map(|addition| addition.up.columns());
        weights.low_width = linears.map(Linear::low_width).chain(ranks).max().unwrap_or(0);
        let taken = source.taken.into_inner();
        let unused = gguf.tensors().iter().find(|t| !taken.contains(t.name) && !is_rope(t.name));
        match unused {
            Some(tensor) => Err(Error::UnusedTensor(tensor.name.into())),
            None => Ok(weights),
        }
    }
}

/// RoPE's own tensors, which its plan reads or warns about; old files repeat them in each layer.
fn is_rope(name: &str) -> bool {
    let name = name.rsplit_once("rope_").map_or("", |(_, tail)| tail);
    matches!(name, "freqs.weight" | "factors_long.weight" | "factors_short.weight")
}

impl<'a> Layer<'a> {
    /// One of each kind: all experts are alike.
    fn linears(&self) -> [&Linear<'a>; 5] {
        let (router, network) = match &self.feed_forward {
            FeedForward::Dense(network) => (&network.down, network),
            FeedForward::Experts(mixture) => (&mixture.router, &mixture.experts[0]),
        };
        [&self.query_key_value, &self.attention_output, router, &network.gate_up, &network.down]
    }

    fn load(source: &Source<'_, 'a>, config: &Config, layer: usize) -> Result<Self, Error> {
        let name = |tensor: &str| format!("blk.{layer}.{tensor}");
        let Config { embedding, head_dim, .. } = *config;
        let (heads, kv_heads) = (config.heads * head_dim, config.kv_heads * head_dim);
        let norm = |tensor: &str| source.vector(&name(tensor), embedding);
        let architecture = config.architecture;
        // What a family always or never has: a missing or a superfluous one is then an error.
        let norm_if = |has: bool, tensor: &str, len: usize| {
            has.then(|| source.vector(&name(tensor), len)).transpose()
        };
        let query_key_value = match source.has(&name("attn_qkv")) {
            true => source.fused(&name("attn_qkv"), &[heads, kv_heads, kv_heads], embedding)?,
            false => vec![
                source.linear(&name("attn_q"), heads, embedding)?,
                source.linear(&name("attn_k"), kv_heads, embedding)?,
                source.linear(&name("attn_v"), kv_heads, embedding)?,
            ],
        };
        let attention_output = source.linear(&name("attn_output"), embedding, heads)?;
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
            feed_forward: match config.experts {
                Some(mixture) => {
                    FeedForward::Experts(Mixture::load(source, mixture, embedding, &name)?)
                }
                None => FeedForward::Dense(Gated::load(source, config, &name)?),
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
        source: &Source<'_, 'a>,
        config: &Config,
        name: &dyn Fn(&str) -> String,
    ) -> Result<Self, Error> {
        let Config { embedding, feed_forward, .. } = *config;
        let gate_up = match config.architecture.gate_with_up {
            true => source.fused(&name("ffn_up"), &[feed_forward, feed_forward], embedding)?,
            false => vec![
                source.linear(&name("ffn_gate"), feed_forward, embedding)?,
                source.linear(&name("ffn_up"), feed_forward, embedding)?,
            ],
        };
        let down = source.linear(&name("ffn_down"), embedding, feed_forward)?;
        Ok(Gated { gate_up: Linear::new(gate_up), down: Linear::new([down]) })
    }
}

impl<'a> Mixture<'a> {
    fn load(
        source: &Source<'_, 'a>,
        config::Mixture { count, used, feed_forward }: config::Mixture,
        embedding: usize,
        name: &dyn Fn(&str) -> String,
    ) -> Result<Self, Error> {
        let all = |tensor: &str, rows, columns| source.experts(&name(tensor), count, rows, columns);
        let gates = all("ffn_gate", feed_forward, embedding)?;
        let ups = all("ffn_up", feed_forward, embedding)?;
        let downs = all("ffn_down", embedding, feed_forward)?;
        let experts = gates.into_iter().zip(ups).zip(downs).map(|((gate, up), down)| Gated {
            gate_up: Linear::new([gate, up]),
            down: Linear::new([down]),
        });
        Ok(Mixture {
            router: Linear::new([source.linear(&name("ffn_gate_inp"), count, embedding)?]),
            experts: experts.collect(),
            used,
        })
    }
}
