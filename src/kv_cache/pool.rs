//! The memory of all pages and states, shared by all sequences.

use std::{
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use thiserror::Error;

use super::{
    page::{Page, Shape},
    states::State,
};
use crate::{platform::memory::Refused, rope::Visibility, threads::Threads};

/// An error for a pool without free memory.
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

/// The memory of all pages of an [`Engine`](crate::model::Engine). Clones share it.
///
/// ```no_run
/// use rope_cpu::{model::Model, rope::Flags};
///
/// let model = Model::open("model.gguf")?;
/// let mut session = model.session(&Flags::default(), 4096)?;
/// let (engine, sequence) = session.parts();
/// let pool = engine.pool();
/// println!("{} of {} bytes in use", pool.used_bytes(), pool.limit_bytes());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

struct Shared {
    /// The distinct shapes of pages.
    shapes: Vec<Shape>,
    /// The layers that store keys and values.
    stores: Vec<Store>,
    /// The floats of each buffer of a state.
    buffers: Vec<usize>,
    /// The index in `stores` of each layer's pages; 0 if it has none.
    pages_of: Vec<usize>,
    /// The index in `buffers` of each layer's first buffer.
    buffers_of: Vec<usize>,
    limit: usize,
    pages: Mutex<Pages>,
}

/// The pages of a layer.
#[derive(Clone, Copy, Debug)]
pub enum LayerPages {
    /// None: the layer does not attend.
    None,
    /// Pages of this shape. Tokens attend to the visible keys in them.
    Own(Shape, Visibility),
    /// The pages of an earlier layer.
    SharedWith(usize),
}

/// The pages of a layer that stores keys and values.
#[derive(Clone, Copy)]
pub struct Store {
    /// The index of the pages' shape.
    pub shape: usize,
    /// The keys that a token attends to.
    pub visibility: Visibility,
}

struct Pages {
    /// The pages that no table holds, of each shape.
    free: Vec<Vec<Page>>,
    /// The states that no table holds.
    free_states: Vec<State>,
    /// The bytes of the pages and states that tables hold.
    used_bytes: usize,
}

/// A page that one or more tables hold. It returns to its pool when the last table drops it.
pub struct PooledPage {
    /// `None` only while it is dropped.
    page: Option<Page>,
    /// The index of its shape.
    shape: usize,
    pool: Pool,
}

/// A state that one or more tables hold. It returns to its pool when the last table drops it.
pub struct PooledState {
    /// `None` only while it is dropped.
    state: Option<State>,
    pool: Pool,
}

impl Pool {
    /// Creates a pool for layers with these pages. `states` has the number of floats of each state
    /// buffer; a layer has up to two. At most `limit` bytes are in use at a time.
    pub(crate) fn new(
        layers: impl IntoIterator<Item = LayerPages>,
        states: impl IntoIterator<Item = [usize; 2]>,
        limit: usize,
    ) -> Self {
        let (mut shapes, mut stores, mut pages_of) = (Vec::new(), Vec::new(), Vec::new());
        for pages in layers {
            pages_of.push(match pages {
                LayerPages::None => 0,
                LayerPages::Own(shape, visibility) => {
                    let known = shapes.iter().position(|known| *known == shape);
                    let shape = known.unwrap_or_else(|| {
                        shapes.push(shape);
                        shapes.len() - 1
                    });
                    stores.push(Store { shape, visibility });
                    stores.len() - 1
                }
                LayerPages::SharedWith(layer) => pages_of[layer],
            });
        }
        let (mut buffers, mut buffers_of) = (Vec::new(), Vec::new());
        for floats in states {
            buffers_of.push(buffers.len());
            buffers.extend(floats.into_iter().filter(|floats| *floats > 0));
        }
        let free = shapes.iter().map(|_| Vec::new()).collect();
        let pages = Mutex::new(Pages { free, free_states: Vec::new(), used_bytes: 0 });
        Pool(Arc::new(Shared { shapes, stores, buffers, pages_of, buffers_of, limit, pages }))
    }

    /// Returns whether `other` is a clone of this pool.
    pub(super) fn is(&self, other: &Pool) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the layers that store keys and values.
    pub(super) fn stores(&self) -> &[Store] {
        &self.0.stores
    }

    /// Returns the index in [`Pool::stores`] of a layer's pages.
    pub(super) fn store_of(&self, layer: usize) -> usize {
        self.0.pages_of[layer]
    }

    /// Returns the index of the first buffer of a layer in a state.
    pub(crate) fn buffer_of(&self, layer: usize) -> usize {
        self.0.buffers_of[layer]
    }

    /// Returns whether sequences have states.
    pub(crate) fn has_states(&self) -> bool {
        !self.0.buffers.is_empty()
    }

    /// Returns the bytes of a state; 0 if sequences have none.
    pub fn state_bytes(&self) -> usize {
        self.0.state_bytes()
    }

    /// Returns the shape of the pages of a store.
    pub(super) fn shape_of(&self, store: &Store) -> &Shape {
        &self.0.shapes[store.shape]
    }

    /// Returns the average bytes of a page, over the layers that store keys and values.
    pub fn page_bytes(&self) -> usize {
        let stores = self.stores();
        let all: usize = stores.iter().map(|store| self.shape_of(store).page_bytes()).sum();
        all / stores.len().max(1)
    }

    /// Returns the bytes of the pages and states that tables hold.
    pub fn used_bytes(&self) -> usize {
        self.pages().used_bytes
    }

    /// Returns the maximum bytes in use.
    pub fn limit_bytes(&self) -> usize {
        self.0.limit
    }

    /// Returns the allocated bytes: all pages and states, including free ones.
    pub fn bytes(&self) -> usize {
        self.pages().bytes(&self.0)
    }

    /// Takes pages of the shapes with these indices. Their contents are unspecified.
    ///
    /// # Errors
    /// If the limit is too small, or the system has no memory left; no page is taken then.
    pub(super) fn take(
        &self,
        team: &Threads,
        wanted: &[usize],
    ) -> Result<Vec<Arc<PooledPage>>, Full> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let shapes = &self.0.shapes;
        let mut pages = self.pages();
        let bytes = wanted.iter().map(|shape| shapes[*shape].page_bytes());
        let needed = bytes.fold(0, usize::saturating_add);
        let mut counts = vec![0; shapes.len()];
        wanted.iter().for_each(|shape| counts[*shape] += 1);
        pages.make_room(&self.0, needed, &counts, 0)?;
        for ((free, shape), count) in pages.free.iter_mut().zip(shapes).zip(counts) {
            // All new pages of a shape are cut from one block of memory.
            let new = usize::saturating_sub(count, free.len());
            if new > 0 {
                free.extend(Page::zeros(team, *shape, new)?);
            }
        }
        pages.used_bytes += needed;
        let taken = wanted.iter().map(|&shape| {
            let page = pages.free[shape].pop();
            Arc::new(PooledPage { page, shape, pool: self.clone() })
        });
        Ok(taken.collect())
    }

    /// Takes states. Their contents are unspecified.
    ///
    /// # Errors
    /// If the limit is too small, or the system has no memory left; no state is taken then.
    pub(super) fn take_states(
        &self,
        team: &Threads,
        count: usize,
    ) -> Result<Vec<Arc<PooledState>>, Full> {
        let mut pages = self.pages();
        let needed = count.saturating_mul(self.state_bytes());
        pages.make_room(&self.0, needed, &vec![0; self.0.shapes.len()], count)?;
        while pages.free_states.len() < count {
            let state = State::zeros(team, &self.0.buffers)?;
            pages.free_states.push(state);
        }
        pages.used_bytes += needed;
        let taken = (0..count)
            .map(|_| Arc::new(PooledState { state: pages.free_states.pop(), pool: self.clone() }));
        Ok(taken.collect())
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn state_bytes(&self) -> usize {
        self.buffers.iter().map(|floats| floats * size_of::<f32>()).sum()
    }
}

impl Pages {
    fn bytes(&self, shared: &Shared) -> usize {
        let free = self.free.iter().zip(&shared.shapes);
        let free: usize = free.map(|(free, shape)| free.len() * shape.page_bytes()).sum();
        self.used_bytes + free + self.free_states.len() * shared.state_bytes()
    }

    /// Makes room for `needed` bytes: `counts` pages of each shape and `states` states. Frees
    /// unused pages and states if new ones would not fit otherwise.
    ///
    /// # Errors
    /// If the limit is too small.
    fn make_room(
        &mut self,
        shared: &Shared,
        needed: usize,
        counts: &[usize],
        states: usize,
    ) -> Result<(), Full> {
        let Shared { shapes, limit, .. } = shared;
        let limit = *limit;
        let left = limit.saturating_sub(self.used_bytes);
        if needed > left {
            return Err(Full::Limit { needed, left, limit });
        }
        let missing = |count: usize, free: usize, bytes: usize| {
            count.saturating_sub(free).saturating_mul(bytes)
        };
        let free = self.free.iter().zip(shapes).zip(counts);
        let new =
            free.map(|((free, shape), count)| missing(*count, free.len(), shape.page_bytes()));
        let new = new.chain([missing(states, self.free_states.len(), shared.state_bytes())]);
        let bytes = new.fold(self.bytes(shared), usize::saturating_add);
        let mut excess = bytes.saturating_sub(limit);
        for ((free, shape), count) in self.free.iter_mut().zip(shapes).zip(counts) {
            drop_free(free, *count, shape.page_bytes(), &mut excess);
        }
        drop_free(&mut self.free_states, states, shared.state_bytes(), &mut excess);
        Ok(())
    }
}

/// Drops free pages or states of `bytes` each until the excess is gone, but keeps `count` of them.
fn drop_free<T>(free: &mut Vec<T>, count: usize, bytes: usize, excess: &mut usize) {
    let dropped = free.len().saturating_sub(count).min(excess.div_ceil(bytes.max(1)));
    free.truncate(free.len() - dropped);
    *excess = excess.saturating_sub(dropped * bytes);
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

impl Deref for PooledState {
    type Target = State;

    fn deref(&self) -> &State {
        match &self.state {
            Some(state) => state,
            None => unreachable!("a state is used while it is dropped"),
        }
    }
}

impl Drop for PooledState {
    fn drop(&mut self) {
        let bytes = self.pool.state_bytes();
        let mut pages = self.pool.pages();
        pages.used_bytes -= bytes;
        pages.free_states.extend(self.state.take());
    }
}

impl Drop for PooledPage {
    fn drop(&mut self) {
        let mut pages = self.pool.pages();
        pages.used_bytes -= self.pool.0.shapes[self.shape].page_bytes();
        pages.free[self.shape].extend(self.page.take());
    }
}
