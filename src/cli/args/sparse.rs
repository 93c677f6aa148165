//! The options of sparse attention.

use rope_cpu::{model::SparseAttention, runtime::Sparse};

/// The options of sparse attention.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
#[command(next_help_heading = "Context and memory")]
pub struct SparseArgs {
    /// Share of attention to compute, such as 0.98
    ///
    /// From 8,192 tokens on, generated tokens attend to the blocks of 32 keys that have this share of
    /// the estimated attention: at least 1,024 keys, and at most a quarter of all. A smaller share is
    /// faster and less exact. By default all keys are used.
    #[arg(long, value_name = "P", value_parser = answers, hide_short_help = true)]
    sparse_attention: Option<SparseAttention>,

    /// Share of attention to compute in prompts, such as 0.95
    ///
    /// From 16,384 tokens on, prompt tokens attend to the blocks of 64 keys that have this share of the
    /// estimated attention: at least 1,024 keys, and at most a quarter of all. What is lost stays in
    /// the KV cache, and affects all later tokens. By default all keys are used.
    #[arg(long, value_name = "P", value_parser = prompts, hide_short_help = true)]
    sparse_prompt: Option<SparseAttention>,
}

impl SparseArgs {
    /// Returns the settings of these options.
    pub fn settings(&self) -> Sparse {
        Sparse { answers: self.sparse_attention, prompts: self.sparse_prompt }
    }
}

fn answers(text: &str) -> Result<SparseAttention, String> {
    share(text).map(SparseAttention::new)
}

fn prompts(text: &str) -> Result<SparseAttention, String> {
    share(text).map(SparseAttention::for_prompts)
}

fn share(text: &str) -> Result<f32, String> {
    match text.parse() {
        Ok(share) if share > 0.5 && share < 1.0 => Ok(share),
        Ok(_) => Err("must be above 0.5 and below 1".into()),
        Err(_) => Err("not a number, such as 0.98".into()),
    }
}
