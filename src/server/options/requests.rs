//! The options of the answers to requests.

use std::path::PathBuf;

use clap::ValueEnum;
use rope_cpu::{batch::MOVED_LEAST, model::Pooling};

use crate::numbers::{self, Limit, at_least_one, up_to_limit};

/// The number of slots by default.
const SLOTS: usize = 4;

/// The options of the answers to requests.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Requests")]
pub struct Requests {
    /// Requests answered at a time
    ///
    /// Each can use the whole context. -1: up to 4, as memory allows.
    #[arg(long, alias = "-np", value_name = "N", default_value = "-1")]
    #[arg(value_parser = numbers::between::<i64>(-1, 256), allow_negative_numbers = true)]
    pub parallel: i64,

    /// Keep parts of prompts that change at each request
    ///
    /// By default Claude Code's billing header and `<total_tokens>` are removed, and the log says
    /// so. A change near the start of a prompt would require processing all of it again.
    #[arg(long, hide_short_help = true)]
    pub keep_volatile: bool,

    /// Move lines of prompts that change at each request to the end
    ///
    /// If the first messages of two requests differ only in numbers, dates or times, the lines where
    /// they differ are moved to the last message from then on. The log names such lines, and the
    /// tokens that they cost, without this option too.
    #[arg(long, hide_short_help = true)]
    pub move_volatile: bool,

    /// MiB of memory for earlier conversations
    ///
    /// A conversation in it continues without processing its tokens again. -1: no limit. 0: none, so
    /// only the last conversation of each slot continues.
    #[arg(long, alias = "-cram", value_name = "N", default_value = "8192")]
    #[arg(allow_negative_numbers = true, value_parser = numbers::from(-1))]
    pub cache_ram: i64,

    /// Folder for conversations that memory is too small for
    ///
    /// Conversations are written to the folder before they leave --cache-ram, and when the server
    /// stops. A conversation also continues from there after a restart. The folder is created if
    /// it does not exist. Its files contain conversations. Prompts also continue from documents of
    /// `rope-cpu read` in it.
    #[arg(long, value_name = "DIR")]
    pub cache_disk: Option<PathBuf>,

    /// MiB of the conversations in --cache-disk
    ///
    /// The server removes the least recently used ones.
    #[arg(long, value_name = "N", default_value_t = 8192, requires = "cache_disk")]
    #[arg(value_parser = numbers::between::<u64>(1, 1 << 40), hide_short_help = true)]
    pub cache_disk_limit: u64,

    /// Take over moved parts of prompts with at least N tokens; 0: none
    ///
    /// Parts of earlier prompts and of documents in --cache-disk that a prompt has elsewhere are not
    /// computed again, except for their first 32 tokens. Answers are then less exact, since a part was
    /// computed after another text. Needs --context-shift, which stores keys that can move.
    #[arg(long, alias = "LLAMA_ARG_CACHE_REUSE", value_name = "N", default_value = "0")]
    #[arg(value_parser = moved_min, hide_short_help = true)]
    pub cache_reuse: usize,

    /// Compute what --prefill-share left out of prompts while idle
    ///
    /// The answer comes first, without these tokens. Later prompts that continue the text reuse all of it,
    /// as if it had been computed whole. A new request interrupts it.
    #[arg(long, requires = "prefill_share", hide_short_help = true)]
    pub prefill_later: bool,

    /// Share cached tokens and slots between the clients of all API keys
    ///
    /// With several keys, each key by default continues, saves and erases only its own conversations.
    /// Otherwise the time of an answer would tell a client what others have sent. Documents of
    /// `rope-cpu read` are for all.
    #[arg(long, hide_short_help = true)]
    pub share_cache: bool,

    /// Requests that may wait for a slot
    ///
    /// Further ones get the status 429.
    #[arg(long, value_name = "N", default_value = "64", value_parser = at_least_one)]
    pub max_queue: usize,

    /// Longest time between two tokens in ms
    ///
    /// While answers are generated, each step also processes tokens of other prompts, as many as
    /// fit in this time.
    #[arg(long, value_name = "N", default_value_t = 250)]
    pub step_time: u64,

    /// Maximum tokens of answers, unless a request gives it [default: no limit]
    #[arg(short = 'n', long, aliases = ["n-predict", "LLAMA_ARG_N_PREDICT"], value_name = "N")]
    #[arg(default_value = "-1", value_parser = numbers::limit, allow_negative_numbers = true)]
    #[arg(hide_default_value = true)]
    pub predict: Limit,

    /// System message of conversations that have none
    #[arg(long, alias = "-sys", value_name = "TEXT", allow_hyphen_values = true)]
    pub system_prompt: Option<String>,

    /// Stop string of answers, unless a request gives its own; may be repeated
    #[arg(short, long, alias = "stop", value_name = "TEXT", allow_hyphen_values = true)]
    #[arg(hide_short_help = true)]
    pub reverse_prompt: Vec<String>,

    /// Whether the model reasons before it answers: on, off or auto
    ///
    /// On and auto: the chat template is rendered with reasoning. Off: it is rendered without, and
    /// an empty block of reasoning is added if it has none.
    #[arg(long, alias = "-rea", value_name = "MODE", default_value = "auto")]
    #[arg(hide_possible_values = true)]
    pub reasoning: Reasoning,

    /// Maximum tokens of reasoning, unless a request gives it [default: no limit]
    ///
    /// Then the model's marker for the end of reasoning is inserted, and the answer follows. 0:
    /// reasoning stops at once.
    #[arg(long, value_name = "N", default_value = "-1", value_parser = numbers::limit)]
    #[arg(allow_negative_numbers = true, hide_default_value = true)]
    pub reasoning_budget: Limit,

    /// When the context is full, evict old tokens
    ///
    /// Otherwise an answer stops when the context is full.
    #[arg(long, alias = "LLAMA_ARG_CONTEXT_SHIFT", overrides_with = "no_context_shift")]
    pub context_shift: bool,

    /// End the answer when the context is full (the default)
    #[arg(long, alias = "LLAMA_ARG_NO_CONTEXT_SHIFT", overrides_with = "context_shift")]
    #[arg(hide_short_help = true)]
    pub no_context_shift: bool,

    /// How embeddings of tokens become one of the text: none mean cls last rank
    ///
    /// By default as the model was trained, or else the mean. none: /embeddings returns the
    /// embeddings of all tokens. rank: /v1/rerank orders documents by their relevance to a query.
    #[arg(long, value_name = "POOLING")]
    pub pooling: Option<Pooling>,

    /// Rank documents at /v1/rerank: like --pooling rank [--rerank]
    #[arg(long, alias = "rerank", conflicts_with = "pooling")]
    pub reranking: bool,
}

/// Whether a model reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Reasoning {
    /// The default of the chat template.
    Auto,
    /// Reasoning is switched on in the chat template.
    On,
    /// Reasoning is switched off, even if the template starts it.
    Off,
}

impl Requests {
    /// Returns the number of slots, of which memory may allow fewer.
    pub fn slots(&self) -> usize {
        usize::try_from(self.parallel).ok().filter(|slots| *slots > 0).unwrap_or(SLOTS)
    }

    /// Returns whether the model may reason before it answers.
    pub fn reasons(&self) -> bool {
        self.reasoning != Reasoning::Off
    }
}

/// Parses the minimum tokens of a part that moves.
fn moved_min(text: &str) -> Result<usize, String> {
    match up_to_limit(text)? {
        tokens if tokens > 0 && tokens < MOVED_LEAST => {
            Err(format!("must be 0, or at least {MOVED_LEAST}"))
        }
        tokens => Ok(tokens),
    }
}
