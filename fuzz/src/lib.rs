//! Inputs of the fuzz targets in `targets`, for those with a structure that random bytes do not have.
//!
//! `scripts/fuzz MINUTES [TARGET]` runs them.

pub mod answers;
pub mod constraints;
pub mod damage;
pub mod models;
pub mod number;
pub mod vocabulary;
