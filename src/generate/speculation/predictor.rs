//! Multi-token prediction: a layer of the model, or an assistant, predicts the token after the next
//! one.

use super::{Drafter, Target, acceptance::Acceptance, draft_likeliest};
use crate::{
    Token,
    model::{self, Engine},
};

/// Drafts the most likely tokens by the model's predictor
/// ([`Config::predictor`](crate::model::Config)) or by its [`Assistant`](crate::model::Assistant).
/// The engine must be created with [`Options::predict`](crate::model::Options) or `assistant`.
/// Otherwise there are no drafts.
///
/// ```no_run
/// use rope_cpu::{
///     generate::speculation::{Count, Predictor, Speculation},
///     model::{Model, Options, Session},
///     rope::{Flags, Rope},
/// };
///
/// let model = Model::open("Qwen3.5-4B.gguf")?;
/// let rope = Rope::new(model.rope_plan(&Flags::default(), 4096)?);
/// let options = Options { predict: true, ..Options::new(4096) };
/// let session = Session::new(&model, rope, options)?;
/// let speculation = Speculation::new(vec![Box::new(Predictor::default())], Count::UpTo(3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Predictor {
    acceptance: Acceptance,
}

impl Drafter for Predictor {
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
        draft_likeliest(Engine::predict, text, count, target, drafts)?;
        self.acceptance.drafted(text, drafts);
        Ok(())
    }
}
