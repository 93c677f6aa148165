//! The KV cache: keys and values of past tokens, in pages of 256 positions.
//!
//! A [`Pool`] owns the memory of all pages, which have the shape of their layer. Each sequence has a
//! `PageTable` with a list of pages for each layer, unless a layer shares the pages of an earlier
//! one. So memory grows with use, and a layer with a sliding window frees the pages that have left
//! the window. Tables share pages: a clone costs no memory until one of the tables writes. In a page
//! the positions of one head are contiguous, so that attention reads consecutive memory. Keys are in
//! halves order (element `i` rotates with `i + n/2`), stored after or before rotation.
//!
//! Pages may have summaries of their keys, for sparse attention. These are neither saved nor moved, but
//! computed again.
//!
//! Recurrent layers have a state in place of pages. A sequence returns to any length that its pages
//! hold, or, with recurrent layers, to the lengths for which it has kept states.

mod page;
mod pool;
mod saved;
mod states;
mod table;

pub(crate) use rope_cpu_kernels::attention::PAGE;
pub use rope_cpu_kernels::cache::CacheType;

pub use self::pool::{Full, Pool};
pub(crate) use self::{
    page::{SUMMARIES, Shape, TASK_POSITIONS, TASKS},
    pool::LayerPages,
    states::{Points, removable_max, states_max},
    table::PageTable,
};
