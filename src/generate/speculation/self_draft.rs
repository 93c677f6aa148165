//! Self-speculation: the model drafts for itself, with sparse attention.

use super::{Drafter, Target, acceptance::Acceptance, draft_likeliest};
use crate::{
    Token,
    model::{self, Engine},
};

/// Drafts the most likely tokens of the model itself, with sparse attention. The engine must be
/// created with [`Options::sparse_attention`](crate::model::Options), such as
/// [`SparseAttention::for_drafts`](crate::model::SparseAttention::for_drafts). Otherwise there are
/// no drafts.
///
/// A draft reads all weights and a part of the KV cache. So it pays only if the keys and values of
/// a sequence take more bytes than the weights. That is the case for models without grouped
/// queries, deep in a context.
///
/// ```no_run
/// use rope_cpu::{
///     generate::speculation::{Count, SelfDraft, Speculation},
///     model::{Model, Options, Session, SparseAttention},
///     rope::{Flags, Rope},
/// };
///
/// let model = Model::open("llama-2-7b.gguf")?;
/// let rope = Rope::new(model.rope_plan(&Flags::default(), 32_768)?);
/// let sparse_attention = Some(SparseAttention::for_drafts());
/// let options = Options { sparse_attention, ..Options::new(32_768) };
/// let session = Session::new(&model, rope, options)?;
/// let speculation = Speculation::new(vec![Box::new(SelfDraft::default())], Count::UpTo(8));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct SelfDraft {
    acceptance: Acceptance,
}

impl Drafter for SelfDraft {
    fn follow(&mut self, text: &[Token]) {
        self.acceptance.follow(text);
    }

    fn chance(&self, depth: usize) -> f64 {
        self.acceptance.share(depth)
    }

    fn draft(
        &mut self,
        text: &[Token],
        count: usize,
        target: Option<&mut Target<'_>>,
        drafts: &mut Vec<Token>,
    ) -> Result<(), model::Error> {
        draft_likeliest(Engine::draft, text, count, target, drafts)?;
        self.acceptance.drafted(text, drafts);
        Ok(())
    }
}
