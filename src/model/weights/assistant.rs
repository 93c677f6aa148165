//! The weights of an assistant: a small model that drafts tokens for another one.

use super::{Linear, SplitKeys, Weights, reader::TensorReader};
use crate::{
    gguf::Gguf,
    model::{Error, config::AssistantConfig},
};

/// The tables that choose a part of the vocabulary to compute logits of. All logits are computed here.
const CLUSTERS: [&str; 2] = ["masked_embd_centroids.weight", "masked_embd_ordering"];

/// The weights of an assistant.
pub struct Assistant<'a> {
    /// Its layers, its output norm, and the matrix of logits.
    pub own: Weights<'a>,
    pub input: Linear<'a>,  // 2 (embedding of the model) -> embedding
    pub output: Linear<'a>, // embedding -> embedding of the model
}

impl<'a> Assistant<'a> {
    /// Reads every tensor of the file.
    ///
    /// # Errors
    /// As for [`Weights::load`].
    pub fn load(
        gguf: &Gguf<'a>,
        AssistantConfig { own: config, of_model }: &AssistantConfig,
        split: &'a SplitKeys,
    ) -> Result<Self, Error> {
        let reader = TensorReader::new(gguf, &[], split);
        let own = Weights::read(&reader, gguf, config)?;
        let input = reader.linear("nextn.pre_projection", config.embedding, 2 * of_model)?;
        let output = reader.linear("nextn.post_projection", *of_model, config.embedding)?;
        CLUSTERS.iter().for_each(|tensor| reader.skip(tensor));
        reader.finish(config)?;
        Ok(Assistant { own, input: Linear::new([input]), output: Linear::new([output]) })
    }
}
