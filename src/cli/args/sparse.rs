//! The option of sparse attention.

use rope_cpu::model::SparseAttention;

/// The option of sparse attention.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
#[command(next_help_heading = "Context and memory")]
pub struct SparseArgs {
    /// Share of attention to compute, such as 0.98
    ///
    /// From 8,192 tokens on, generated tokens attend to the blocks of 32 keys that have this share of
    /// the estimated attention: at least 1,024 keys, and at most a quarter of all. A smaller share is
    /// faster and less exact. Prompts are computed exactly. By default all keys are used.
    #[arg(long, value_name = "P", value_parser = share, hide_short_help = true)]
    pub sparse_attention: Option<SparseAttention>,
}

fn share(text: &str) -> Result<SparseAttention, String> {
    match text.parse() {
        Ok(share) if share > 0.5 && share < 1.0 => Ok(SparseAttention::new(share)),
        Ok(_) => Err("must be above 0.5 and below 1".into()),
        Err(_) => Err("not a number, such as 0.98".into()),
    }
}
