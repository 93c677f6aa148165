//! Rotary position embedding (RoPE). Resolves settings and metadata into a [`Plan`], and computes
//! its frequencies and the rows of cosines and sines for the forward pass.
//!
//! Reading order:
//!
//! - `flags`: the settings of a user, [`Flags`].
//! - `plan`: the settings in force with their origins, [`Plan`].
//! - `resolve`: makes a plan from settings, metadata and defaults. `keys` reads the metadata, and
//!   `family` has the properties that files do not contain. `rule_inputs` has the values that all
//!   rules share; `sourced` pairs a value with its origin.
//! - [`METHODS`]: the list of methods that a user can name. `scaling` describes one.
//! - `rule`: how the factor acts on frequencies, with a file for each rule ([`linear`], `ntk`,
//!   [`ntk_mixed`], [`dynamic`], `dynamic_linear`, [`yarn`], `dynamic_yarn`, [`llama3`], [`dprope`], [`cope`],
//!   [`clex`]). `longrope` and `divisors` handle frequencies that a file stores as tensors.
//!   DPRoPE minimizes a measure of the crate `rope_cpu_lab`.
//! - `policy`: the sequence length that frequencies are computed for, if a rule depends on it.
//! - `method`: methods that change attention instead of frequencies, with a file for each ([`rerope`],
//!   [`self_extend`], [`lm_infinite`], [`mod@string`], [`dca`], `attention_sinks`). `visibility` is their effect on a
//!   query.
//! - `table`: inverse frequencies for a plan and an effective length.
//! - `cache`: cos/sin rows for these frequencies, [`Rope`].
//! - `auto`: the choice of a method for a context. `warn` finds settings that are probably mistakes,
//!   and `advice` proposes settings that reach the context. `trained` names methods that no setting applies.
//! - `formulas` and `llama_cpp`: descriptions of a plan for the user. `effect`: its numbers, to
//!   draw. `bake`: a plan as tensors and metadata for a file.
//!
//! To add a rule, write a file with its name, help and parameters, and add a line to [`METHODS`].
//! No other module changes: the forward pass uses only [`Rope::row`] and [`Visibility`], and front
//! ends use the list.

mod advice;
mod attention_sinks;
mod auto;
mod bake;
mod cache;
pub mod clex;
pub mod cope;
pub mod dca;
mod divisors;
pub mod dprope;
pub mod dynamic;
mod dynamic_linear;
mod dynamic_yarn;
mod effect;
mod error;
mod family;
mod flags;
mod formulas;
mod json;
mod keys;
pub mod linear;
pub mod llama3;
mod llama_cpp;
pub mod lm_infinite;
mod longrope;
mod method;
mod ntk;
pub mod ntk_mixed;
mod plan;
mod policy;
pub mod rerope;
mod resolve;
mod rule;
mod rule_inputs;
mod scaling;
pub mod self_extend;
mod sourced;
pub mod string;
mod table;
mod temperature;
mod trained;
mod visibility;
mod warn;
pub mod yarn;

pub use attention_sinks::ATTENTION_SINKS;
pub use bake::Baked;
pub use cache::Rope;
pub use divisors::{Divisors, Factors, ROPE_FREQS};
pub use effect::{Distance, Effect};
pub use error::Error;
pub use family::{Family, LogMultiplier};
pub use flags::{FREQ_BASE, FREQ_SCALE, Flags, LOG_N, SCALE};
pub(crate) use longrope::{LONG, SHORT};
pub use method::Method;
pub use plan::{Plan, WindowRope};
pub use policy::{POLICY, Policy};
pub use resolve::ModelInfo;
pub use rope_cpu_lab::disturbance::{Direction, Histogram, POSITIONS_MAX, TrainedAngles};
pub use rule::Rule;
pub use scaling::{SCALING, Scaling, parameters};
pub use sourced::{Origin, Sourced, short};
pub use table::Table;
pub use temperature::Temperature;
pub use trained::trained;
pub use visibility::{FarKeys, Region, Visibility};

/// The largest context that a file or a setting can name, in tokens.
pub(crate) const CONTEXT_MAX: usize = 1 << 30;

/// The RoPE methods that a user can name.
pub static METHODS: &[&Scaling] = &[
    &linear::NONE,
    &linear::LINEAR,
    &ntk::NTK,
    &ntk_mixed::NTK_MIXED,
    &dynamic::DYNAMIC,
    &dynamic_linear::DYNAMIC_LINEAR,
    &yarn::YARN,
    &dynamic_yarn::DYNAMIC_YARN,
    &llama3::LLAMA3,
    &longrope::LONGROPE,
    &dprope::DPROPE,
    &clex::CLEX,
    &cope::COPE,
    &rerope::REROPE,
    &rerope::LEAKY_REROPE,
    &self_extend::SELF_EXTEND,
    &lm_infinite::LM_INFINITE,
    &string::STRING,
    &dca::DCA,
];

/// Layers, or keys in them, that share frequencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layers {
    /// Layers that attend to the whole context. RoPE settings apply to them.
    Global,
    /// Layers with a sliding window. They have their own base, and no setting scales them.
    Window,
    /// Far keys of global layers under [`FarKeys::Divided`]: their frequencies are divided by k.
    Far,
}
