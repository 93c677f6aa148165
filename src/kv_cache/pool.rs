//! The memory of all pages, shared by all sequences.

use std::{
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use thiserror::Error;

use super::page::{Page, Shape};
use crate::{platform::memory::Refused, rope::Visibility, threads::Threads};

/// An error for a pool that has no memory left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Full {
    /// The pool's limit is reached.
    #[error("{needed} more bytes are needed for keys and values, but {left} of {limit} are left")]
    Limit {
        /// The bytes that are needed.
        needed: usize,
        /// The bytes that are left.
        left: usize,
        /// The largest number of bytes in use.
        limit: usize,
    },
    /// The system has less memory than the limit.
    #[error("no memory for keys and values: {0}")]
    Refused(#[from] Refused),
}

/// The memory of all pages. Clones share it.
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

struct Shared {
    shape: Shape,
    /// The keys that a token attends to, for each layer.
    visibilities: Vec<Visibility>,
    limit: usize,
    pages: Mutex<Pages>,
}

#[derive(Default)]
struct Pages {
    free: Vec<Page>,
    /// The number of pages that tables hold.
    used: usize,
}

/// A page that tables hold. When the last of them drops it, it returns to its pool.
pub struct PooledPage {
    /// `None` only while it is dropped.
    page: Option<Page>,
    pool: Pool,
}

impl Pool {
    /// Creates a pool of pages of this shape, for layers with these visibilities. At most `limit`
    /// bytes are in use at a time.
    pub fn new(shape: Shape, visibilities: Vec<Visibility>, limit: usize) -> Self {
        Pool(Arc::new(Shared { shape, visibilities, limit, pages: Mutex::default() }))
    }

    /// Returns whether `other` is a clone of this pool.
    pub(super) fn is(&self, other: &Pool) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the dimensions and cache types of a page.
    pub fn shape(&self) -> Shape {
        self.0.shape
    }

    /// Returns the keys that a token attends to, for each layer.
    pub fn visibilities(&self) -> &[Visibility] {
        &self.0.visibilities
    }

    /// Returns the bytes of the pages that tables hold.
    pub fn used_bytes(&self) -> usize {
        self.pages().used * self.0.shape.page_bytes()
    }

    /// Returns the most bytes that are in use at a time.
    pub fn limit_bytes(&self) -> usize {
        self.0.limit
    }

    /// Returns the bytes of all pages, free ones included.
    pub fn bytes(&self) -> usize {
        let pages = self.pages();
        (pages.used + pages.free.len()) * self.0.shape.page_bytes()
    }

    /// Takes `count` pages. Their contents are unspecified.
    ///
    /// # Errors
    /// If the limit is too small, or the system has no memory left; no page is taken then.
    pub fn take(&self, team: &Threads, count: usize) -> Result<Vec<Arc<PooledPage>>, Full> {
        let Shared { shape, limit, .. } = *self.0;
        let mut pages = self.pages();
        let bytes = |pages: usize| pages.saturating_mul(shape.page_bytes());
        let left = limit.saturating_sub(bytes(pages.used));
        if bytes(count) > left {
            return Err(Full::Limit { needed: bytes(count), left, limit });
        }
        // All new pages are cut from one block of memory.
        let new = count.saturating_sub(pages.free.len());
        if new > 0 {
            pages.free.extend(Page::zeros(team, shape, new)?);
        }
        pages.used += count;
        let rest = pages.free.len() - count;
        let taken = pages.free.drain(rest..);
        Ok(taken
            .map(|page| Arc::new(PooledPage { page: Some(page), pool: self.clone() }))
            .collect())
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for PooledPage {
    type Target = Page;

    fn deref(&self) -> &Page {
        match &self.page {
            Some(page) => page,
            None => unreachable!("a page is used while it is dropped"),
        }
    }
}

impl Drop for PooledPage {
    fn drop(&mut self) {
        let mut pages = self.pool.pages();
        pages.used -= 1;
        pages.free.extend(self.page.take());
    }
}
