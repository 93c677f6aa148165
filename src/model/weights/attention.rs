//! The weights of attention.

use super::{Latent, Linear, Norm, NormWeights, Segment, TensorReader};
use crate::model::{Config, Error, Pairing, config};

/// The attention of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionFamily {
    /// The norms of queries and keys.
    pub head_norms: HeadNorms,
    /// Whether heads of values are normalized, without weights. A layer without a projection of values
    /// then normalizes the projection of keys.
    pub value_norm: bool,
    /// Whether each query head has a sink: a score that takes a share of the softmax for no value.
    pub sinks: bool,
    /// The gates that the outputs of attention are multiplied by.
    pub gates: AttentionGates,
}

/// The norms of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadNorms {
    /// There are none.
    None,
    /// Each head is normalized, before its rotation.
    Heads,
    /// [`HeadNorms::Heads`] in files that have these norms.
    HeadsIfAny,
    /// [`HeadNorms::HeadsIfAny`], with weights of its own for each head (Command R+).
    EachHeadIfAny,
    /// Each head is normalized, after its rotation.
    RotatedHeads,
    /// All query heads are normalized together, and all heads of keys, before their rotation.
    Rows,
}

/// The gates of the outputs of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionGates {
    /// There are none.
    None,
    /// Sigmoids of what the projection of queries computes after each head (Qwen 3.5).
    WithQueries,
    /// The function of a projection of their own.
    Apart(GateFunction),
}

/// The function of the gates of the outputs of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateFunction {
    /// Sigmoids, one for each element (Muse Glimmer).
    Sigmoid,
    /// Softplus, one for each head or each element (Laguna).
    Softplus,
}

impl AttentionFamily {
    /// Attention without norms, sinks and gates.
    pub const PLAIN: Self = AttentionFamily {
        head_norms: HeadNorms::None,
        value_norm: false,
        sinks: false,
        gates: AttentionGates::None,
    };
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
    /// The elements of a head of queries or keys that rotate together.
    pub pairing: Pairing,
    pub latent: Option<Box<Latent<'a>>>,
    /// The gates of the outputs, if they have any.
    pub gates: Option<Gates>,
    pub query_norm: Option<NormWeights<'a>>, // (head_dim), or (heads, head_dim)
    pub key_norm: Option<NormWeights<'a>>,   // (head_dim), or (kv_heads, head_dim)
    /// The norm of heads of values, without weights.
    pub value_norm: Option<Norm>,
    /// Whether the norms of heads come after their rotation.
    pub norms_after_rotation: bool,
    /// The norms of all heads of queries together, and of keys.
    pub row_norms: Option<[NormWeights<'a>; 2]>, // (heads, head_dim), (kv_heads, head_dim)
    pub sinks: Option<&'a [f32]>, // (heads)
    pub output: Linear<'a>,       // heads -> embedding
}

/// The gates of the outputs of attention.
#[derive(Clone, Copy)]
pub enum Gates {
    /// Sigmoids of the elements after each head of queries.
    WithQueries,
    /// The function of the projections from `column` on, each for `outputs` outputs: for 1 with
    /// [`GateFunction::Sigmoid`].
    Apart { column: usize, outputs: usize, function: GateFunction },
}

/// A segment of [`Attention::query_key_value`]. The discriminants are the indices of the segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Projection {
    Query = 0,
    Key = 1,
    Value = 2,
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
        let apart = match self.gates {
            Some(Gates::Apart { .. }) => 1,
            Some(Gates::WithQueries) | None => 0,
        };
        let segments = &segments[..segments.len() - apart];
        match projection {
            Projection::Value => segments[1..].last(),
            Projection::Query | Projection::Key => segments.get(projection as usize),
        }
    }

    /// Returns attention without norms, sinks and gates.
    pub(super) fn plain(
        model: &Config,
        config: config::Attention,
        layer: usize,
        query_key_value: Linear<'a>,
        output: Linear<'a>,
    ) -> Self {
        Attention {
            config,
            layer,
            query_key_value,
            pairing: model.architecture.positions.pairing,
            latent: None,
            gates: None,
            query_norm: None,
            key_norm: None,
            value_norm: None,
            norms_after_rotation: false,
            row_norms: None,
            sinks: None,
            output,
        }
    }

    /// Reads the attention of a layer, from the tensors that `name` returns the names of.
    pub(super) fn load(
        reader: &TensorReader<'_, 'a>,
        model: &Config,
        config: config::Attention,
        layer: usize,
        name: &dyn Fn(&str) -> String,
    ) -> Result<Self, Error> {
        let (family, embedding, head_dim) =
            (&model.architecture.attention, model.embedding, config.head_dim);
        if let Some(dims) = config.latent {
            return Latent::load(reader, model, config, dims, layer, name);
        }
        let (heads, kv_heads) = (config.query_width(), config.kv_heads * head_dim);
        // Most families always or never have these norms: a missing or superfluous one is an error.
        let vector = |tensor: &str, len: usize| reader.vector(&name(tensor), len);
        let plain = Norm::of(model);
        let norm = |tensor, len| vector(tensor, len).map(|weight| NormWeights::new(plain, weight));
        let (query_norm, key_norm) = ("attn_q_norm.weight", "attn_k_norm.weight");
        let mut head_norms = [None; 2];
        let mut row_norms = None;
        match family.head_norms {
            HeadNorms::None => {}
            HeadNorms::HeadsIfAny | HeadNorms::EachHeadIfAny
                if !reader.has(&name("attn_q_norm")) => {}
            HeadNorms::EachHeadIfAny => {
                let norms = [(query_norm, config.heads), (key_norm, config.kv_heads)];
                for (norms, (tensor, heads)) in head_norms.iter_mut().zip(norms) {
                    let weights = reader.table(&name(tensor), heads, head_dim)?;
                    *norms = Some(NormWeights::new(plain, weights));
                }
            }
            HeadNorms::Heads | HeadNorms::HeadsIfAny | HeadNorms::RotatedHeads => {
                let key = config.shared_with.is_none().then(|| norm(key_norm, head_dim));
                head_norms = [Some(norm(query_norm, head_dim)?), key.transpose()?];
            }
            HeadNorms::Rows => {
                row_norms = Some([norm(query_norm, heads)?, norm(key_norm, kv_heads)?]);
            }
        }
        let sinks = family.sinks.then(|| vector("attn_sinks.weight", config.heads));
        let with_queries = family.gates == AttentionGates::WithQueries;
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
                let key_as_value = family.value_norm && !reader.has(&name("attn_v"));
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
        let mut apart = None;
        if let AttentionGates::Apart(function) = family.gates {
            let gate = name("attn_gate");
            let rows = match function {
                GateFunction::Sigmoid => heads,
                // One for each element of the outputs, or for each head.
                GateFunction::Softplus => {
                    let each = reader.rows(&gate).filter(|rows| *rows == heads);
                    each.unwrap_or(config.heads)
                }
            };
            query_key_value.push(reader.linear(&gate, rows, embedding)?);
            apart = Some((heads / rows, function));
        }
        let bias_later = row_norms.is_none() && family.gates == AttentionGates::None;
        let query_key_value = Linear { bias_later, ..Linear::new(query_key_value) };
        let column = query_key_value.segments.last().map_or(0, |last| last.column);
        let gates = match apart {
            Some((outputs, function)) => Some(Gates::Apart { column, outputs, function }),
            None => with_queries.then_some(Gates::WithQueries),
        };
        let output = Linear::new([reader.linear(&name("attn_output"), embedding, heads)?]);
        Ok(Attention {
            gates,
            query_norm: head_norms[0],
            key_norm: head_norms[1],
            value_norm: family.value_norm.then_some(plain),
            norms_after_rotation: family.head_norms == HeadNorms::RotatedHeads,
            row_norms,
            sinks: sinks.transpose()?,
            ..Attention::plain(model, config, layer, query_key_value, output)
        })
    }
}
