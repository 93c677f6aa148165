//! A model: its configuration, its weights, and the forward pass.

mod session;

pub use session::{Options, Session};
