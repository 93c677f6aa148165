//! The weights of the additional inputs of layers (Gemma 4: per-layer embeddings).

use rope_cpu_kernels::Matrix;

use super::{Linear, TensorReader};
use crate::model::{Config, Error, LAYER_EMBEDDINGS};

/// The inputs of all layers: `(norm(P x / sqrt(e)) + sqrt(n) row) / sqrt(2)` for the embedding x, of e
/// elements, and the token's row of a table. Each layer has n elements.
pub struct LayerInputs<'a> {
    /// The table. Only the rows of tokens that occur are read from the file.
    pub tokens: Matrix<'a>, // (vocabulary, layers n)
    pub projection: Linear<'a>, // embedding -> layers n
    pub norm: &'a [f32],        // (n)
}

/// A gated network with the layer's input in place of its up-projection.
pub struct LayerInput<'a> {
    pub gate: Linear<'a>, // embedding -> n
    pub down: Linear<'a>, // n -> embedding
    /// The elements of the input (n).
    pub len: usize,
    pub layer: usize,
}

impl<'a> LayerInputs<'a> {
    /// Reads the weights, if the model has such inputs.
    pub(super) fn load(
        reader: &TensorReader<'_, 'a>,
        config: &Config,
    ) -> Result<Option<Self>, Error> {
        let &Config { embedding, vocabulary, layer_input, .. } = config;
        let width = config.layers.len() * layer_input;
        if width == 0 {
            return Ok(None);
        }
        let projection = reader.linear("per_layer_model_proj", width, embedding)?;
        Ok(Some(LayerInputs {
            tokens: reader.matrix(LAYER_EMBEDDINGS, vocabulary, width)?,
            projection: Linear::new([projection]),
            norm: reader.vector("per_layer_proj_norm.weight", layer_input)?,
        }))
    }
}

impl<'a> LayerInput<'a> {
    pub(super) fn load(
        reader: &TensorReader<'_, 'a>,
        config: &Config,
        layer: usize,
        name: &dyn Fn(&str) -> String,
    ) -> Result<Self, Error> {
        let &Config { embedding, layer_input: len, .. } = config;
        Ok(LayerInput {
            gate: Linear::new([reader.linear(&name("inp_gate"), len, embedding)?]),
            down: Linear::new([reader.linear(&name("proj"), embedding, len)?]),
            len,
            layer,
        })
    }
}
