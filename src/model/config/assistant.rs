//! The configuration of an assistant: a small model that drafts tokens for another one.

use super::{Attention, Config, DIMENSION_MAX, keys::Keys, layers};
use crate::{
    gguf::{Gguf, Metadata},
    model::{Architecture, Error},
};

/// The configuration of an assistant.
#[derive(Clone)]
pub struct AssistantConfig {
    /// Its own dimensions and layers. Each layer attends to the keys and values of a layer of the
    /// model, [`Attention::shared_with`].
    pub own: Config,
    /// The elements of the model's activations, as the file has it.
    pub of_model: usize,
}

impl AssistantConfig {
    /// Reads and checks the metadata; `None` if the file is no assistant. The layers do not attend to
    /// anything until [`AssistantConfig::attend_to`].
    ///
    /// # Errors
    /// If a key is missing or its value is not supported.
    pub fn from_metadata(gguf: &Gguf<'_>) -> Result<Option<Self>, Error> {
        let (metadata, architecture) = (gguf.metadata(), Architecture::ASSISTANT);
        let name = metadata.string("general.architecture")?;
        if Metadata::require("general.architecture", name)? != architecture.name {
            return Ok(None);
        }
        let keys = Keys::new(metadata, architecture.name);
        let embedding = keys.size("embedding_length", DIMENSION_MAX)?;
        let layers = layers::of_assistant(&keys, embedding)?;
        let own = Config::with_layers(gguf, &keys, architecture, true, layers)?;
        Ok(Some(AssistantConfig {
            own: Config { layer_input: 0, ..own },
            of_model: keys.size("embedding_length_out", DIMENSION_MAX)?,
        }))
    }

    /// Lets each layer attend to the last layer of a model that has a sliding window too, or has none
    /// either.
    ///
    /// # Errors
    /// If the assistant is not made for the model. The error says what differs.
    pub fn attend_to(&mut self, model: &Config) -> Result<(), String> {
        let (family, name) = ("gemma4", model.architecture.name);
        if name != family {
            return Err(format!("it is made for {family} models, and this is a {name} model"));
        }
        let same = |what: &str, [own, model]: [usize; 2], [layer, of]: [&str; 2]| match own == model
        {
            true => Ok(()),
            false => Err(format!(
                "{what} is {own} in {layer}the assistant, and {model} in {of}the model"
            )),
        };
        same("the length of activations", [self.of_model, model.embedding], [""; 2])?;
        same("the number of tokens", [self.own.vocabulary, model.vocabulary], [""; 2])?;
        for (index, layer) in self.own.layers.iter_mut().enumerate() {
            let Some(own) = &mut layer.attention else { continue };
            let like = |one: &Attention| one.window.is_some() == own.window.is_some();
            let all = model.layers.iter().enumerate().rev();
            let mut all = all.filter_map(|(i, layer)| Some((i, layer.attention.as_ref()?)));
            let Some((source, of_model)) = all.find(|(_, one)| like(one)) else {
                let with = if own.window.is_some() { "with" } else { "without" };
                return Err(format!("the model has no layer {with} a sliding window"));
            };
            let layers = [index, source].map(|layer| format!("layer {layer} of "));
            for (what, dims) in [
                ("the number of KV heads", [own.kv_heads, of_model.kv_heads]),
                ("the length of a head", [own.head_dim, of_model.head_dim]),
                ("the number of dimensions that rotate", [own.n_rot, of_model.n_rot]),
            ] {
                same(what, dims, layers.each_ref().map(|layer| &layer[..]))?;
            }
            own.shared_with = Some(of_model.shared_with.unwrap_or(source));
        }
        Ok(())
    }
}
