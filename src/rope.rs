//! Rotary position embedding: a [`Plan`] resolved from flags and metadata, its inverse frequencies,
//! and the cos/sin rows that the forward pass rotates with.
//!
//! Reading order:
//!
//! - `flags`: the settings of a user, [`Flags`].
//! - `plan`: the settings in force with their origins, [`Plan`].
//! - `resolve`: makes a plan from flags, metadata and defaults. `keys` reads the metadata, `family`
//!   holds the properties that files do not contain, `rule_inputs` the values that all rules share,
//!   and `sourced` pairs a value with its origin.
//! - `rule`: how the factor acts on frequencies, with a file for each rule (`linear`, `ntk`,
//!   `ntk_mixed`, `dynamic`, `yarn`, `dynamic_yarn`, `llama3`, `dprope`, `clex`). `longrope` and
//!   `divisors` handle frequencies that a file stores as tensors. `disturbance` is the measure that
//!   DPRoPE minimizes.
//! - `policy`: the sequence length that frequencies are computed for, if a rule depends on it.
//! - `method`: methods that change attention instead of frequencies. `visibility` is their effect
//!   on a query.
//! - `table`: inverse frequencies for a plan and an effective length.
//! - `cache`: cos/sin rows for these frequencies, [`Rope`].
//! - `auto`: the choice of `--rope-scaling auto`. `warn` finds settings that are probably mistakes,
//!   and `advice` proposes settings that reach the context.
//! - `formulas` and `llama_cpp`: descriptions of a plan for the user. `bake`: a plan as tensors and
//!   metadata for a file.
//!
//! A new rule is a new file and a variant of [`Rule`] or of [`Divisors`]. No other module changes,
//! as the forward pass uses only [`Rope::row`] and [`Visibility`].

mod advice;
mod auto;
mod bake;
mod cache;
mod clex;
mod disturbance;
mod divisors;
mod dprope;
mod dynamic;
mod dynamic_yarn;
mod error;
mod family;
mod flags;
mod formulas;
mod keys;
mod linear;
mod llama3;
mod llama_cpp;
mod longrope;
mod method;
mod ntk;
mod ntk_mixed;
mod plan;
mod policy;
mod resolve;
mod rule;
mod rule_inputs;
mod sourced;
mod table;
mod visibility;
mod warn;
mod yarn;

pub use bake::Baked;
pub use cache::Rope;
pub use clex::{Activation, Clex, ClexWeights};
pub use disturbance::{Direction, Histogram, TrainedAngles};
pub use divisors::{Divisors, Factors, LONG, ROPE_FREQS, SHORT};
pub use dprope::{Choice, DpRope, Pair};
pub use dynamic::{Dynamic, Variant};
pub use dynamic_yarn::DynamicYarn;
pub use error::Error;
pub use family::{Family, LogMultiplier};
pub use flags::{Flags, Scaling, ScalingChoice};
pub use llama3::Llama3;
pub use longrope::LongRope;
pub use method::Method;
pub use ntk_mixed::NtkMixed;
pub use plan::Plan;
pub use policy::Policy;
pub use resolve::ModelInfo;
pub use rule::Rule;
pub use sourced::{Origin, Sourced, short};
pub use table::Table;
pub use visibility::{FarKeys, Region, Visibility};
pub use yarn::{MagnitudeWeights, Ramp, Yarn};

/// A set of layers, or of keys in them, that share their frequencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layers {
    /// Layers that attend to the whole context. All RoPE flags act on them.
    Global,
    /// Layers with a sliding window. They have a base of their own, and no flag scales them.
    Window,
    /// Far keys of global layers under [`FarKeys::Divided`], whose frequencies are divided by k.
    Far,
}
