//! Opens a model: plans its memory, threads, context, RoPE and drafts, before anything is allocated.
//!
//! A front end fills in [`Settings`]. [`Plan::new`] chooses what they leave open, each value with its
//! origin, and allocates nothing. You can print the plan, check that it fits, and then create a
//! session or an engine from it:
//!
//! ```no_run
//! use rope_cpu::{model::Model, rope::Flags, runtime::{Plan, Settings}};
//!
//! let model = Model::open("model.gguf")?;
//! let settings = Settings { rope: Flags::method("auto"), ..Settings::default() };
//! let plan = Plan::new(&model, &settings)?;
//! println!("{plan}\n{}", plan.rope);
//! plan.check()?;
//! let session = plan.session(&model)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod drafts;
mod error;
mod json;
mod memory;
pub mod parameters;
mod plan;
mod running;

pub use drafts::{Draft, Drafts, Sources};
pub use error::Error;
pub use memory::Reserved;
pub use plan::{Fit, Plan, experts_warning, trained};
pub use running::{Runtime, Scheduling};

use rope_cpu_kernels::Cpu;

use crate::{
    kv_cache::CacheType,
    model::{Role, SparseAttention},
    platform::processors::{Threads, default_threads},
    rope::{Flags, Sourced},
    threads::Power,
};

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The context in tokens. By default the trained length, or the largest context that fits in
    /// memory if that is less.
    pub context: Option<Sourced<usize>>,
    /// The RoPE settings.
    pub rope: Flags,
    /// The type that keys are stored in.
    pub keys: CacheType,
    /// The type that values are stored in.
    pub values: CacheType,
    /// The number of prompt tokens that are computed in one pass.
    pub micro_batch: usize,
    /// The sequences that need memory.
    pub sequences: Sequences,
    /// Whether sliding windows retain all keys ([`Sequence::retain_from`]), unless the context rolls.
    ///
    /// [`Sequence::retain_from`]: crate::model::Sequence::retain_from
    pub retains_all: bool,
    /// Sparse attention.
    pub sparse: Sparse,
    /// The sources of drafts.
    pub drafts: Drafts,
    /// The numbers of threads.
    pub threads: Threads,
    /// The instruction set.
    pub cpu: Cpu,
    /// The share of the processors' time that the threads may use.
    pub power: Power,
    /// Whether a plan that does not fit in memory is an error ([`Plan::check`]).
    pub must_fit: bool,
    /// The bytes of the available memory that something else is going to use.
    pub taken: u64,
}

impl Default for Settings {
    /// Returns one sequence with dense attention and an f16 cache, without drafts except the
    /// model's own, on all physical cores.
    fn default() -> Self {
        Settings {
            context: None,
            rope: Flags::default(),
            keys: CacheType::F16,
            values: CacheType::F16,
            micro_batch: 512,
            sequences: Sequences::SideBySide(1),
            retains_all: false,
            sparse: Sparse::default(),
            drafts: Drafts::default(),
            threads: default_threads(),
            cpu: Cpu::best(),
            power: Power::FULL,
            must_fit: true,
            taken: 0,
        }
    }
}

/// The sequences of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sequences {
    /// This number of sequences, with a context each.
    SideBySide(usize),
    /// Up to this number of sequences, which share the pages of the KV cache. Memory must hold at
    /// least one of them.
    UpTo(usize),
    /// This number of sequences, which share the pages of the KV cache. Memory must hold all of them.
    All(usize),
}

/// Sparse attention of answers and prompts; dense by default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sparse {
    /// Sparse attention of answers.
    pub answers: Option<SparseAttention>,
    /// Sparse attention of prompts.
    pub prompts: Option<SparseAttention>,
}

impl Sparse {
    /// Returns a line for each kind of sparse attention.
    pub fn lines(&self) -> impl Iterator<Item = String> + use<> {
        let answers = self.answers.map(|sparse| sparse.line(Role::Answer));
        answers.into_iter().chain(self.prompts.map(|sparse| sparse.line(Role::Prompt)))
    }
}
