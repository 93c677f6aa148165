//! Rotary position embedding: one [`Plan`] from flags and metadata, its frequency tables, and the
//! rows of cosines and sines that the forward pass rotates with.
//!
//! Read in this order: [`Flags`] (what the user may say), `plan` (what is in force, and why),
//! `resolve` (how flags, metadata and defaults become a plan), one file for each rule (`linear`,
//! `ntk`, `yarn`, `longrope`, and `divisors` for frequencies that a file brings along), `table`
//! (a plan and a length become frequencies) and `cache` (frequencies become rows).
//!
//! A new rule is a file, and a variant of [`Rule`] or of [`Divisors`]; nothing outside of this
//! module changes, since a forward pass sees [`Rope::row`] alone.

mod cache;
mod divisors;
mod error;
mod flags;
mod keys;
mod linear;
mod longrope;
mod ntk;
mod plan;
mod resolve;
mod sourced;
mod table;
mod warn;
mod yarn;

pub use cache::Rope;
pub use divisors::{Divisors, Factors};
pub use error::Error;
pub use flags::{Flags, Scaling};
pub use longrope::LongRope;
pub use plan::{Plan, Rule};
pub use resolve::Facts;
pub use sourced::{Origin, Sourced};
pub use table::Table;
pub use yarn::Yarn;

/// The layers that rotate alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layers {
    /// Layers that attend to the whole context. Every flag acts on these.
    Global,
    /// Layers with a sliding window: their own base, never scaled.
    Window,
}
