//! The KV cache: keys and values of past tokens, in pages of 256 positions.
//!
//! A [`Pool`] owns the memory of all pages. Each sequence has a `PageTable`, with a list of pages
//! for each layer that stores keys and values. A layer may share the pages of an earlier layer
//! instead.
//!
//! Memory grows with use, and a layer with a sliding window frees the pages that have left the
//! window. Tables share pages: a clone costs no memory until one of the tables writes. In a page,
//! the positions of one head are contiguous, so attention reads consecutive memory. Keys are stored
//! before or after rotation, in halves order: element `i` rotates with `i + n/2`.
//!
//! With sparse attention, pages also have summaries of their keys. Summaries are not saved or
//! moved, but computed again.
//!
//! A table may have gaps: positions of tokens that were left out of a prompt, which have no keys.
//!
//! Recurrent layers have states instead of pages. A sequence can rewind to any length that its
//! pages still hold. With recurrent layers, it can rewind only to lengths with a snapshot of the
//! state.

mod gaps;
mod page;
mod pool;
mod saved;
mod states;
mod table;

pub(crate) use rope_cpu_kernels::attention::PAGE;
pub use rope_cpu_kernels::cache::CacheType;

pub use self::pool::{Full, Pool};
pub(crate) use self::{
    gaps::Gaps,
    page::{SUMMARIES, Shape, TASK_POSITIONS, TASKS},
    pool::LayerPages,
    states::{Points, removable_max, states_max},
    table::PageTable,
};
