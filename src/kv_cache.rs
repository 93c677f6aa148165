//! The KV cache: keys and values of past tokens, in pages of 256 positions.
//!
//! A [`Pool`] owns the memory of all pages. Each sequence has a [`PageTable`] of its own, with a
//! list of pages for each layer, so that memory grows with use and a layer with a sliding window
//! frees the pages that have left the window. Tables share pages: a clone costs no memory until one
//! of the tables writes. In a page the positions of one head are contiguous, so that attention reads
//! consecutive memory. Keys are in halves order (element `i` rotates with `i + n/2`), stored after
//! or before rotation.

mod page;
mod pool;
mod saved;
mod table;

pub use rope_cpu_kernels::cache::CacheType;

pub use self::{
    page::{BLOCK, BLOCKS, POSITIONS, Page, Shape},
    pool::{Full, Pool},
    table::PageTable,
};
