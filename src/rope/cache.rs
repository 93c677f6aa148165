//! Rows of cosines and sines, computed once for each rule, effective length and position.

use std::{collections::BTreeMap, ops::Range};

use super::{FarKeys, Layers, Plan, Region, Table};

/// Positions that are computed together.
pub const PAGE: usize = 256;

/// A plan and the rows computed from it so far.
///
/// Rows are kept in pages, so that growing never moves or recomputes one.
#[derive(Debug)]
pub struct Rope {
    plan: Plan,
    tables: Vec<Rows>,
}

#[derive(Debug)]
struct Rows {
    layers: Layers,
    effective_length: usize,
    table: Table,
    pages: BTreeMap<usize, Box<[f32]>>, // (PAGE, n_rot) each
}

impl Rope {
    /// A cache that is empty so far.
    pub fn new(plan: Plan) -> Rope {
        Rope { plan, tables: Vec::new() }
    }

    /// The plan in force.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The length that decides the frequencies for a sequence of `tokens`: two sequences with
    /// equal effective lengths rotate alike. Where it changes as a sequence grows, the keys
    /// and values computed so far belong to other frequencies, and have to be computed again.
    pub fn effective_length(&self, tokens: usize) -> usize {
        self.plan.effective_length(tokens)
    }

    /// Drops all rows of global layers, as those of one effective length are of no use to another.
    pub fn clear(&mut self) {
        self.tables.retain(|rows| rows.layers == Layers::Window);
    }

    /// Computes the rows that queries at `positions` need, of all layers. Those with a sliding window
    /// of `window` tokens may have no RoPE of their own.
    pub fn prepare_for(
        &mut self,
        effective_length: usize,
        positions: Range<usize>,
        window: Option<usize>,
    ) {
        let (visibility, raw_keys) = (self.plan.visibility, self.plan.raw_keys());
        let (first, end) = (positions.start, positions.end);
        if self.plan.window_base.is_some() {
            // Keys are rotated as they are stored, where no shift moves them.
            let from = if self.plan.shifts { 0 } else { first };
            self.prepare(Layers::Window, effective_length, from..end);
            if self.plan.rolls() {
                self.release(Layers::Window, first);
            }
        }
        if !raw_keys {
            return self.prepare(Layers::Global, effective_length, 0..end);
        }
        // Keys rotate by their place in a page, and queries by their distance from its start.
        let near = visibility.near.max(window.unwrap_or(0));
        let near = end.min(near.saturating_add(PAGE));
        self.prepare(Layers::Global, effective_length, 0..near);
        if visibility.first > 0 && end > 0 {
            let [from, to] =
                [first, end - 1].map(|position| visibility.query(Region::Far, position));
            match visibility.far {
                FarKeys::Divided(_) => {
                    self.prepare(Layers::Far, effective_length, 0..PAGE);
                    self.prepare(Layers::Far, effective_length, from - first..to + 1);
                }
                _ => self.prepare(Layers::Global, effective_length, 0..to + 1),
            }
        }
    }

    /// Computes the rows of `positions` that are not there yet.
    pub fn prepare(&mut self, layers: Layers, effective_length: usize, positions: Range<usize>) {
        let rows = match self.tables.iter().position(|r| r.is(layers, effective_length)) {
            Some(i) => &mut self.tables[i],
            None => {
                let table = Table::new(&self.plan, layers, effective_length);
                let pages = BTreeMap::new();
                self.tables.push(Rows { layers, effective_length, table, pages });
                let last = self.tables.len() - 1;
                &mut self.tables[last]
            }
        };
        let pages = positions.start / PAGE..positions.end.div_ceil(PAGE);
        for i in pages {
            let (n_rot, table) = (self.plan.n_rot, &rows.table);
            rows.pages.entry(i).or_insert_with(|| {
                let mut page = vec![0.0; PAGE * n_rot].into_boxed_slice();
                for (j, row) in page.chunks_exact_mut(n_rot).enumerate() {
                    table.fill(i * PAGE + j, row);
                }
                page
            });
        }
    }

    /// Forgets the whole pages of rows before `position`.
    fn release(&mut self, layers: Layers, position: usize) {
        for rows in self.tables.iter_mut().filter(|rows| rows.layers == layers) {
            rows.pages = rows.pages.split_off(&(position / PAGE));
        }
    }

    /// The rows of the first 256 positions, one after the other.
    ///
    /// # Panics
    /// As [`Rope::row`].
    pub fn first_rows(&self, layers: Layers, effective_length: usize) -> &[f32] {
        self.page(layers, effective_length, 0)
    }

    /// What is multiplied into the rows.
    ///
    /// # Panics
    /// As [`Rope::row`].
    pub fn scale(&self, layers: Layers, effective_length: usize) -> f32 {
        self.rows(layers, effective_length).map_or(1.0, |rows| rows.table.scale as f32)
    }

    /// The row of a position: `[cos; n_rot/2]`, then `[sin; n_rot/2]`, with the attention scale
    /// multiplied in.
    ///
    /// # Panics
    /// If [`Rope::prepare`] was not called with the same key and this position.
    pub fn row(&self, layers: Layers, effective_length: usize, position: usize) -> &[f32] {
        let n_rot = self.plan.n_rot;
        let page = self.page(layers, effective_length, position / PAGE);
        &page[position % PAGE * n_rot..][..n_rot]
    }

    fn rows(&self, layers: Layers, effective_length: usize) -> Option<&Rows> {
        self.tables.iter().find(|rows| rows.is(layers, effective_length))
    }

    fn page(&self, layers: Layers, effective_length: usize, page: usize) -> &[f32] {
        self.rows(layers, effective_length)
            .and_then(|rows| rows.pages.get(&page).map(|page| &**page))
            .unwrap_or_else(|| panic!("RoPE row {} was not prepared", page * PAGE))
    }
}

impl Rows {
    /// Window layers never depend on the length.
    fn is(&self, layers: Layers, effective_length: usize) -> bool {
        self.layers == layers
            && (layers == Layers::Window || self.effective_length == effective_length)
    }
}
