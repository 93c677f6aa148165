//! Rows of cosines and sines, computed once for each set of layers, effective length and position.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    ops::Range,
    sync::{Arc, OnceLock},
};

use rope_cpu_kernels::attention::{Arcs, PAGE};

use super::{FarKeys, Layers, Plan, Region, Table};
use crate::platform::memory::{Refused, filled};

/// A plan with the rows of cosines and sines computed so far.
///
/// Rows are stored in pages, like keys and values, so adding rows never moves or recomputes others.
///
/// ```no_run
/// use rope_cpu::{model::Model, rope::{Flags, Layers, Rope}};
///
/// let model = Model::open("model.gguf")?;
/// let mut rope = Rope::new(model.rope_plan(&Flags::method("yarn"), 16384)?);
/// let length = rope.effective_length(100);
/// rope.prepare(Layers::Global, length, 0..100)?;
/// println!("cos and sin of each pair: {:?}", rope.row(Layers::Global, length, 99));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Rope {
    plan: Plan,
    tables: Vec<Rows>,
    /// The effective lengths in use, each with a counter of its users.
    lengths: Vec<(usize, Arc<()>)>,
}

/// The rows of one set of layers at one effective length.
#[derive(Debug)]
struct Rows {
    layers: Layers,
    effective_length: usize,
    table: Table,
    /// Computed when a bias is first added.
    arcs: OnceLock<Arcs>,
    /// The elements of a row.
    n_rot: usize,
    pages: BTreeMap<usize, Box<[f32]>>, // (PAGE, n_rot) each
}

impl Rope {
    /// Creates a cache without rows.
    pub fn new(plan: Plan) -> Rope {
        Rope { plan, tables: Vec::new(), lengths: Vec::new() }
    }

    /// Returns the plan in force.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the effective length of a sequence of `tokens`: the length that its frequencies are
    /// computed for. Sequences with equal effective lengths have equal frequencies. If the
    /// effective length changes while a sequence grows, its cached keys and values are outdated and
    /// must be computed again.
    pub fn effective_length(&self, tokens: usize) -> usize {
        self.plan.effective_length(tokens)
    }

    /// Returns a counter. The rows of the effective length are kept until it is dropped.
    pub fn keep(&mut self, effective_length: usize) -> Arc<()> {
        if let Some((_, users)) = self.lengths.iter().find(|(len, _)| *len == effective_length) {
            return users.clone();
        }
        let users = Arc::new(());
        self.lengths.push((effective_length, users.clone()));
        users
    }

    /// Removes the rows of effective lengths without users.
    pub(crate) fn release_unused(&mut self) {
        self.lengths.retain(|(_, users)| Arc::strong_count(users) > 1);
        let kept = |len| self.lengths.iter().any(|(kept, _)| *kept == len);
        self.tables.retain(|rows| rows.layers == Layers::Window || kept(rows.effective_length));
    }

    /// Removes rows of window layers that queries from `position` on do not need.
    pub(crate) fn release_before(&mut self, position: usize) {
        if self.plan.rolls() && !self.plan.shifts {
            for rows in self.tables.iter_mut().filter(|rows| rows.layers == Layers::Window) {
                rows.pages = rows.pages.split_off(&(position / PAGE));
            }
        }
    }

    /// Computes all rows that queries at `positions` need, in all layers. Layers with a sliding
    /// window of `window` tokens use the rows of global layers, unless they have their own base.
    ///
    /// # Errors
    /// As for [`Rope::prepare`].
    pub(crate) fn prepare_for(
        &mut self,
        effective_length: usize,
        positions: Range<usize>,
        window: Option<usize>,
    ) -> Result<(), Refused> {
        let (visibility, raw_keys) = (self.plan.visibility, self.plan.raw_keys());
        let (first, end) = (positions.start, positions.end);
        if self.plan.window.is_some() {
            // Without context shift, keys are rotated when they are stored.
            let from = if self.plan.shifts { 0 } else { first };
            self.prepare(Layers::Window, effective_length, from..end)?;
        }
        // The number of rows for near keys, or for chunks of keys that are counted from their starts.
        let near = match visibility.far {
            FarKeys::Chunked(last) => last + 1,
            _ => visibility.near,
        };
        if !raw_keys {
            let rows = match visibility.is_chunked() && window.is_none() {
                true => end.min(near),
                false => end,
            };
            return self.prepare(Layers::Global, effective_length, 0..rows);
        }
        // Keys rotate by their index in a page, and queries by their distance from its start.
        let near = near.max(window.unwrap_or(0));
        let near = end.min(near.saturating_add(PAGE));
        self.prepare(Layers::Global, effective_length, 0..near)?;
        if end > 0 && !visibility.visible(Region::Far, end - 1).is_empty() {
            let [from, to] =
                [first, end - 1].map(|position| visibility.query(Region::Far, position));
            match visibility.far {
                // Prepared above.
                FarKeys::Chunked(_) => {}
                FarKeys::Divided(_) => {
                    self.prepare(Layers::Far, effective_length, 0..PAGE)?;
                    self.prepare(Layers::Far, effective_length, from - first..to + 1)?;
                }
                // Far keys do not rotate.
                FarKeys::AtDistance(_) => {
                    self.prepare(Layers::Global, effective_length, from..to + 1)?;
                }
                _ => self.prepare(Layers::Global, effective_length, 0..to + 1)?,
            }
        }
        Ok(())
    }

    /// Computes the missing rows of `positions`.
    ///
    /// # Errors
    /// If the system has no memory left.
    pub fn prepare(
        &mut self,
        layers: Layers,
        effective_length: usize,
        positions: Range<usize>,
    ) -> Result<(), Refused> {
        let rows = match self.tables.iter().position(|r| r.matches(layers, effective_length)) {
            Some(i) => &mut self.tables[i],
            None => {
                let table = Table::new(&self.plan, layers, effective_length);
                let n_rot = self.plan.n_rot_of(layers);
                let (arcs, pages) = (OnceLock::new(), BTreeMap::new());
                self.tables.push(Rows { layers, effective_length, table, arcs, n_rot, pages });
                let last = self.tables.len() - 1;
                &mut self.tables[last]
            }
        };
        let pages = positions.start / PAGE..positions.end.div_ceil(PAGE);
        for i in pages {
            let (n_rot, table) = (rows.n_rot, &rows.table);
            if let Entry::Vacant(entry) = rows.pages.entry(i) {
                let mut page = filled(0.0, PAGE * n_rot)?;
                for (j, row) in page.chunks_exact_mut(n_rot).enumerate() {
                    table.fill(i * PAGE + j, row);
                }
                entry.insert(page.into_boxed_slice());
            }
        }
        Ok(())
    }

    /// Returns the rows of the first page, (PAGE, n_rot).
    ///
    /// # Panics
    /// If the rows have not been prepared, as for [`Rope::row`].
    pub(crate) fn first_rows(&self, layers: Layers, effective_length: usize) -> &[f32] {
        self.page(layers, effective_length, 0).1
    }

    /// Returns the arcs of the first page: cosines and sines that rotate to all its positions at
    /// once. `None` if no rows have been prepared for these layers and this length.
    pub(crate) fn arcs(&self, layers: Layers, effective_length: usize) -> Option<&Arcs> {
        let rows = self.rows(layers, effective_length)?;
        Some(rows.arcs.get_or_init(|| {
            let mut inv_freq = rows.table.inv_freq.clone();
            inv_freq.resize(rows.n_rot / 2, 0.0);
            Arcs::new(&inv_freq, rows.table.scale)
        }))
    }

    /// Returns the attention scale, which is a factor of all row values; 1 if no rows have been
    /// prepared for these layers and this length.
    pub fn scale(&self, layers: Layers, effective_length: usize) -> f32 {
        self.rows(layers, effective_length).map_or(1.0, |rows| rows.table.scale as f32)
    }

    /// Returns the row of a position: `[cos; n_rot/2]`, then `[sin; n_rot/2]`, multiplied by the
    /// attention scale.
    ///
    /// # Panics
    /// If [`Rope::prepare`] has not been called for these layers, this effective length and this
    /// position.
    pub fn row(&self, layers: Layers, effective_length: usize, position: usize) -> &[f32] {
        let (n_rot, page) = self.page(layers, effective_length, position / PAGE);
        &page[position % PAGE * n_rot..][..n_rot]
    }

    fn rows(&self, layers: Layers, effective_length: usize) -> Option<&Rows> {
        self.tables.iter().find(|rows| rows.matches(layers, effective_length))
    }

    /// Returns the number of elements in a row, and a page of rows.
    fn page(&self, layers: Layers, effective_length: usize, page: usize) -> (usize, &[f32]) {
        self.rows(layers, effective_length)
            .and_then(|rows| rows.pages.get(&page).map(|page| (rows.n_rot, &**page)))
            .unwrap_or_else(|| panic!("RoPE row {} was not prepared", page * PAGE))
    }
}

impl Rows {
    /// Returns whether these rows are for `layers` at `effective_length`. Rows of window layers are
    /// the same for every length.
    fn matches(&self, layers: Layers, effective_length: usize) -> bool {
        self.layers == layers
            && (layers == Layers::Window || self.effective_length == effective_length)
    }
}
