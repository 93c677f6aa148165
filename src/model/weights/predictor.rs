//! The weights of a layer that predicts the token after the next one.

use rope_cpu_kernels::Matrix;

use super::{Attention, Branch, Linear, Mixer, Norm, NormWeights, layer, reader::TensorReader};
use crate::model::{Config, Error, PREDICTOR_INPUT};

/// A layer that predicts the token after the next one (multi-token prediction).
pub struct Predictor<'a> {
    pub layer: usize,
    pub tokens: Matrix<'a>, // (vocabulary, embedding)
    pub embedding_norm: NormWeights<'a>,
    pub hidden_norm: NormWeights<'a>,
    pub input: Linear<'a>, // 2 embedding -> embedding
    pub branches: Vec<Branch<'a>>,
    /// The norm of the layer's output; `None` if it is the model's.
    pub output_norm: Option<NormWeights<'a>>,
    /// `None` if it is the model's.
    pub output: Option<Linear<'a>>, // embedding -> vocabulary
}

impl<'a> Predictor<'a> {
    /// Reads the weights, if the model has a predictor. `tokens` are the model's embeddings.
    pub(super) fn load(
        reader: &TensorReader<'_, 'a>,
        config: &Config,
        tokens: Matrix<'a>,
    ) -> Result<Option<Self>, Error> {
        let (Some(own), index) = (&config.predictor, config.layers.len()) else {
            return Ok(None);
        };
        let &Config { embedding, vocabulary, .. } = config;
        let name = |tensor: &str| format!("blk.{index}.{tensor}");
        let norm = |weight| NormWeights::new(Norm::of(config), weight);
        let required = |tensor: &str| reader.vector(&name(tensor), embedding).map(norm);
        let [own_tokens, output] = ["nextn.embed_tokens", "nextn.shared_head_head"].map(name);
        let output_norm = name("nextn.shared_head_norm.weight");
        let input = reader.linear(&name(PREDICTOR_INPUT), embedding, 2 * embedding)?;
        let output = match reader.has(&output) {
            true => Some(Linear::new([reader.linear(&output, vocabulary, embedding)?])),
            false => None,
        };
        Ok(Some(Predictor {
            layer: index,
            tokens: match reader.has(&own_tokens) {
                true => reader.matrix(&format!("{own_tokens}.weight"), vocabulary, embedding)?,
                false => tokens,
            },
            embedding_norm: required("nextn.enorm.weight")?,
            hidden_norm: required("nextn.hnorm.weight")?,
            input: Linear::new([input]),
            branches: layer(reader, config, index, own)?,
            output_norm: reader.vector_if(&output_norm, embedding)?.map(norm),
            output,
        }))
    }

    /// Returns the matrices outside of the branches.
    pub fn linears(&self) -> impl Iterator<Item = &Linear<'a>> {
        [&self.input].into_iter().chain(&self.output)
    }

    /// Returns the attention of the layer, and its branch.
    pub fn attention(&self) -> Option<(&Branch<'a>, &Attention<'a>)> {
        let mut all = self
            .branches
            .iter()
            .flat_map(|branch| branch.mixers.iter().map(move |mixer| (branch, mixer)));
        all.find_map(|(branch, mixer)| match mixer {
            Mixer::Attention(attention) => Some((branch, attention)),
            _ => None,
        })
    }
}
