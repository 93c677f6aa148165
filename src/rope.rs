//! Rotary position embedding: one [`Plan`] from flags and metadata, its frequency tables, and the
//! rows of cosines and sines that the forward pass rotates with.
//!
//! Read in this order: [`Flags`] (what the user may say), `plan` (what is in force, and why),
//! `resolve` (how flags, metadata and defaults become a plan), `rule` and one file for each rule
//! (`linear`, `ntk`, `ntk_mixed`, `dynamic`, `yarn`, `dynamic_yarn`, `llama3`, `dprope`, `clex`; `longrope`
//! and `divisors` for frequencies that a file brings along), `table` (a plan and a length become frequencies) and
//! `cache` (frequencies become rows). `policy` says whose length counts where a rule follows it.
//! `method` has what acts on attention and not on frequencies, and `visibility` what that means for a
//! query. `disturbance` is the measure that DPRoPE decides by;
//! `auto` chooses a rule; `advice` proposes settings where those given do not reach the context; `form` and `llama_cpp` put a plan in words, `bake` puts it in a file.
//!
//! A new rule is a file, and a variant of [`Rule`] or of [`Divisors`]; nothing outside of this
//! module changes, since a forward pass sees [`Rope::row`] and [`Visibility`] alone.

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
pub use divisors::{Divisors, Factors, ROPE_FREQS, tensors_of};
pub use dprope::{Choice, DpRope, Pair};
pub use dynamic::{Dynamic, Variant};
pub use dynamic_yarn::DynamicYarn;
pub use error::Error;
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

/// What rotates alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layers {
    /// Layers that attend to the whole context. Every flag acts on these.
    Global,
    /// Layers with a sliding window: their own base, never scaled.
    Window,
    /// Layers that attend to the whole context, where [`FarKeys::Divided`] slows what is far.
    Far,
}
