//! The vectors that are added to the embeddings of tokens (BERT).

use rope_cpu_kernels::Matrix;

use super::{Norm, NormWeights, reader::TensorReader};
use crate::{
    Token,
    gguf::Gguf,
    model::{Config, Error, pair::SEPARATOR},
};

/// The separator of BERT's first vocabularies.
const SEPARATOR_DEFAULT: Token = 102;

/// The vectors that a family adds to the embeddings of tokens. A norm of the sum follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmbeddingTerms {
    /// None, and no norm.
    None,
    /// The vector of the type of a token's segment, if the file has any (Nomic BERT).
    Types,
    /// The vector of the type, and the vector of a token's position (BERT).
    TypesAndPositions,
}

/// The vectors that are added to the embeddings of tokens, and the norm of the sum.
pub struct Terms<'a> {
    pub types: Option<Matrix<'a>>, // (types, embedding)
    /// The token after which the second segment of a text begins, if segments have two types.
    pub separator: Option<Token>,
    pub positions: Option<Matrix<'a>>, // (trained length, embedding)
    pub norm: NormWeights<'a>,
}

impl<'a> Terms<'a> {
    /// Reads the vectors, if the model has such terms.
    pub(super) fn load(
        reader: &TensorReader<'_, 'a>,
        gguf: &Gguf<'a>,
        config: &Config,
    ) -> Result<Option<Self>, Error> {
        let terms = config.architecture.terms;
        let name = (terms != EmbeddingTerms::None).then_some("token_embd_norm");
        let norm = NormWeights::load(reader, config, Norm::of(config), name)?;
        let Some(norm) = norm else { return Ok(None) };
        let table =
            |name: &str, rows| reader.matrix(&format!("{name}.weight"), rows, config.embedding);
        let has_positions = terms == EmbeddingTerms::TypesAndPositions;
        let positions = has_positions.then(|| table("position_embd", config.context_train));
        let types = reader.rows("token_types").map(|types| table("token_types", types));
        let types = types.transpose()?;
        let separator = gguf.metadata().u32(SEPARATOR)?.unwrap_or(SEPARATOR_DEFAULT);
        let separator = types.filter(|types| types.rows() > 1).map(|_| separator);
        Ok(Some(Terms { types, separator, positions: positions.transpose()?, norm }))
    }

    /// Returns the vectors for the token at `position` in a segment: matrices, and the row of each.
    pub fn rows(
        &self,
        position: usize,
        segment: usize,
    ) -> impl Iterator<Item = (&Matrix<'_>, usize)> {
        let types = self.types.iter().map(move |matrix| (matrix, segment));
        types.chain(self.positions.iter().map(move |matrix| (matrix, position)))
    }
}
