//! The weights of attention to latents.

use rope_cpu_kernels::{DType, Matrix};

use super::{Attention, Linear, SegmentTensors, reader::TensorReader};
use crate::{
    gguf::Gguf,
    model::{
        Config, Error,
        config::{self, Latent as Dimensions},
    },
    platform::memory::filled,
};

/// The weights that queries, latents and the values of heads are computed with, all but `attn_k_b`.
pub struct Latent<'a> {
    /// Queries or their latent, then the latent of keys and the part of keys that rotates.
    pub input: Linear<'a>, // embedding -> heads or query rank, rank and n_rot
    /// The norm of the latent of queries, and the products that compute queries from it.
    pub queries: Option<(&'a [f32], Linear<'a>)>, // (query rank), query rank -> heads
    pub norm: &'a [f32], // (rank)
    /// The values of heads, from sums of latents.
    pub values: Linear<'a>, // (heads), rank -> value_dim
}

impl<'a> Latent<'a> {
    /// Returns the elements that queries are computed from; 0 if they come from the activations.
    pub fn query_rank(&self) -> usize {
        self.queries.as_ref().map_or(0, |(norm, _)| norm.len())
    }

    /// Returns all products that adapters may change.
    pub fn linears(&self) -> impl Iterator<Item = &Linear<'a>> {
        [&self.input].into_iter().chain(self.queries.iter().map(|(_, linear)| linear))
    }

    /// Reads the attention of a layer. It computes queries from a shorter vector if the file has the
    /// tensor for it.
    pub(super) fn load(
        reader: &TensorReader<'_, 'a>,
        model: &Config,
        config: config::Attention,
        dims: Dimensions,
        layer: usize,
        name: &dyn Fn(&str) -> String,
    ) -> Result<Attention<'a>, Error> {
        let embedding = model.embedding;
        let config::Attention { heads, head_dim, n_rot, .. } = config;
        let Dimensions { unrotated, value_dim, .. } = dims;
        let (rank, queries) = (config.value_dim(), heads * (unrotated + n_rot));
        let (first, queries) = match reader.rows(&name("attn_q_a")) {
            Some(query_rank) => {
                let norm = reader.vector(&name("attn_q_a_norm.weight"), query_rank)?;
                let second = reader.linear(&name("attn_q_b"), queries, query_rank)?;
                let first = reader.linear(&name("attn_q_a"), query_rank, embedding)?;
                (first, Some((norm, Linear::new([second]))))
            }
            None => (reader.linear(&name("attn_q"), queries, embedding)?, None),
        };
        let latents = reader.linear(&name("attn_kv_a_mqa"), rank + n_rot, embedding)?;
        let (keys, values) = match reader.split_keys(layer) {
            Some(keys) => joined(reader, keys, &name("attn_kv_b"), heads, rank, dims)?,
            None => (
                reader.heads(&name("attn_k_b"), heads, rank, unrotated)?,
                reader.heads(&name("attn_v_b"), heads, value_dim, rank)?,
            ),
        };
        let mut query_key_value = Linear::of_heads(keys, n_rot, head_dim);
        query_key_value.width += head_dim;
        let stride = value_dim.next_multiple_of(Linear::BLOCK);
        let output = reader.linear(&name("attn_output"), embedding, config.output_width())?;
        Ok(Attention {
            latent: Some(Box::new(Latent {
                input: Linear::new([first, latents]),
                queries,
                norm: reader.vector(&name("attn_kv_a_norm.weight"), rank)?,
                values: Linear::of_heads(values, 0, stride),
            })),
            ..Attention::plain(model, config, layer, query_key_value, Linear::new([output]))
        })
    }
}

/// The matrices of heads.
type Matrices<'a> = Vec<SegmentTensors<'a>>;

/// Returns the matrices of keys and of values of all heads, from the tensor that joins them and the
/// transposed part of it.
fn joined<'a>(
    reader: &TensorReader<'_, 'a>,
    keys: &'a [f32],
    name: &str,
    heads: usize,
    rank: usize,
    Dimensions { unrotated, value_dim, .. }: Dimensions,
) -> Result<(Matrices<'a>, Matrices<'a>), Error> {
    let each = unrotated + value_dim;
    let all = reader.linear(name, heads * each, rank)?;
    reader.refuse_adapters(&format!("{name}.weight"))?;
    let values = (0..heads).map(|head| all.rows(head * each + unrotated..(head + 1) * each));
    let keys = Matrix::new(DType::F32, heads * rank, unrotated, bytemuck::cast_slice(keys))
        .map_err(|reason| Error::Matrix { tensor: name.into(), reason })?;
    let keys = (0..heads).map(|head| SegmentTensors {
        scale: all.scale,
        ..SegmentTensors::plain(keys.part(head * rank..(head + 1) * rank))
    });
    Ok((keys.collect(), values.collect()))
}

/// The transposed keys' matrices of files that join them with the values' (`attn_kv_b`). Queries are
/// multiplied by them, and the blocks of a file's rows cannot be read as columns.
#[derive(Default)]
pub struct SplitKeys(Vec<Vec<f32>>); // of each layer: (heads, rank, elements that do not rotate)

impl SplitKeys {
    /// Reads and transposes the matrices of all layers, if the file joins them.
    ///
    /// # Errors
    /// If a tensor is missing or of the wrong shape, or the system has no memory left.
    pub fn read(gguf: &Gguf<'_>, config: &Config) -> Result<Self, Error> {
        let none = SplitKeys::default();
        let reader = TensorReader::new(gguf, &[], &none);
        let mut all = Vec::new();
        for (layer, attention) in config.with_predictor().map(|layer| layer.attention).enumerate() {
            let Some(config::Attention { heads, latent: Some(dims), .. }) = attention else {
                break;
            };
            let Dimensions { unrotated, value_dim, joined } = dims;
            if !joined {
                break;
            }
            let rank = attention.map_or(0, |attention| attention.value_dim());
            let (each, name) = (unrotated + value_dim, format!("blk.{layer}.attn_kv_b.weight"));
            let matrix = reader.matrix(&name, heads * each, rank)?;
            let mut keys = filled(0.0, heads * rank * unrotated)?;
            let mut row = vec![0.0; rank];
            for (head, keys) in keys.chunks_exact_mut(rank * unrotated).enumerate() {
                for column in 0..unrotated {
                    matrix.decode_row(head * each + column, &mut row);
                    let to = keys.iter_mut().skip(column).step_by(unrotated);
                    to.zip(&row).for_each(|(to, x)| *to = *x);
                }
            }
            all.push(keys);
        }
        Ok(SplitKeys(all))
    }

    /// Returns the matrices of a layer, if the file joins them.
    pub fn of_layer(&self, layer: usize) -> Option<&[f32]> {
        self.0.get(layer).map(|keys| &keys[..])
    }

    /// Returns the bytes of all matrices.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|keys| size_of_val(&keys[..])).sum()
    }
}
