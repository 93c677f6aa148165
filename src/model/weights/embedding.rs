//! The layers after pooling: those of embedding models, and those of rerankers, which compute scores.

use super::{linear::SegmentTensors, reader::TensorReader};
use crate::model::Error;

/// The layers after pooling. No adapter may change them: they have no sequence with scales of adapters.
pub struct EmbeddingHead<'a> {
    /// Layers of an embedding, without activations (EmbeddingGemma).
    pub dense: Vec<SegmentTensors<'a>>, // embedding -> inner, inner -> embedding
    /// The layers of a reranker.
    pub classifier: Option<Classifier<'a>>,
}

/// The layers that compute a score for each class.
pub struct Classifier<'a> {
    /// A layer whose output passes through tanh.
    pub dense: Option<SegmentTensors<'a>>, // embedding -> embedding
    pub output: SegmentTensors<'a>, // embedding -> classes
}

impl<'a> EmbeddingHead<'a> {
    /// Reads the layers that a file has.
    pub fn load(reader: &TensorReader<'_, 'a>, embedding: usize) -> Result<Self, Error> {
        let dense = match reader.rows("dense_2") {
            Some(inner) => vec![
                reader.fixed("dense_2", inner, embedding)?,
                reader.fixed("dense_3", embedding, inner)?,
            ],
            None => Vec::new(),
        };
        let classifier = reader.rows("cls.output").map(|classes| {
            let dense = reader.has("cls").then(|| reader.fixed("cls", embedding, embedding));
            let output = reader.fixed("cls.output", classes, embedding)?;
            Ok::<_, Error>(Classifier { dense: dense.transpose()?, output })
        });
        Ok(EmbeddingHead { dense, classifier: classifier.transpose()? })
    }
}
