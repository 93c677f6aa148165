//! A page of the KV cache: the keys and values of [`PAGE`] positions in one layer.

use std::{
    ops::Range,
    sync::{Mutex, PoisonError},
};

use bytemuck::{Pod, Zeroable, cast_slice, cast_slice_mut};
use rope_cpu_kernels::{
    attention::{self, CacheRows, PAGE, summary_bytes},
    cache::{CacheType, UNIT, store},
    isa::Cpu,
};

use crate::{
    platform::memory::Refused,
    threads::{Claim, Memory, Phase, Phased, Threads},
};

/// The positions that one task stores. Their rows fill whole cache lines with every cache type.
pub const TASK_POSITIONS: usize = 16;
/// The number of tasks for each head of a page.
pub const TASKS: usize = PAGE / TASK_POSITIONS;
/// The number of summaries for each head of a page.
pub const SUMMARIES: usize = PAGE / attention::BLOCK;

/// The unit of allocation, so that rows are aligned.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(32))]
struct CacheLine([u8; 32]);

/// The dimensions and cache types of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The number of KV heads.
    pub kv_heads: usize,
    /// The elements of a head.
    pub head_dim: usize,
    /// The type that keys are stored in.
    pub keys: CacheType,
    /// The type that values are stored in; `None` if values are a part of keys.
    pub values: Option<CacheType>,
    /// Whether pages have summaries of their keys.
    pub summaries: bool,
}

impl Shape {
    /// Returns the elements of a head, padded to whole units of the cache.
    pub fn padded_dim(&self) -> usize {
        self.head_dim.next_multiple_of(UNIT)
    }

    /// Returns the bytes of a page of one layer: keys, values and summaries.
    pub fn page_bytes(&self) -> usize {
        self.stored_bytes() + self.summaries_bytes()
    }

    /// Returns the bytes of the keys and values of a page.
    pub fn stored_bytes(&self) -> usize {
        self.halves().map(|dtype| self.half_bytes(dtype)).sum()
    }

    /// Returns the bytes of the summaries of a page.
    fn summaries_bytes(&self) -> usize {
        let all = SUMMARIES * self.kv_heads * summary_bytes(self.padded_dim());
        if self.summaries { all } else { 0 }
    }

    /// Returns the types of keys and values; one type if values are a part of keys.
    fn halves(&self) -> impl Iterator<Item = CacheType> + Clone + use<> {
        [self.keys].into_iter().chain(self.values)
    }

    /// Returns the bytes of a page's keys, or of its values, stored as `dtype`.
    fn half_bytes(&self, dtype: CacheType) -> usize {
        PAGE * self.kv_heads * dtype.row_bytes(self.head_dim)
    }
}

/// The keys and values of [`PAGE`] positions: (heads, positions, row bytes) each.
pub struct Page {
    keys: Half,
    /// `None` if values are a part of keys.
    values: Option<Half>,
    /// (heads, [`SUMMARIES`], summary bytes), or empty. Summaries are computed from the keys.
    summaries: Phased<CacheLine>,
}

/// The keys or the values of a page.
struct Half {
    dtype: CacheType,
    row_bytes: usize,
    lines: Phased<CacheLine>,
}

impl Half {
    fn new(memory: &mut Memory, team: &Threads, shape: Shape, dtype: CacheType) -> Self {
        let row_bytes = dtype.row_bytes(shape.head_dim);
        let lines = shape.half_bytes(dtype) / size_of::<CacheLine>();
        Half { dtype, row_bytes, lines: Phased::within(memory, team, 1, lines) }
    }

    fn rows<'p>(&'p self, phase: &'p Phase<'_>, heads: Range<usize>) -> CacheRows<'p> {
        let head_bytes = PAGE * self.row_bytes;
        let bytes: &[u8] = cast_slice(self.lines.read(phase));
        let bytes = &bytes[heads.start * head_bytes..heads.end * head_bytes];
        CacheRows { dtype: self.dtype, bytes }
    }

    fn store(&self, cpu: Cpu, claim: &mut Claim<'_>, position: usize, values: &[f32]) {
        let lines =
            self.lines.write(claim, TASK_POSITIONS * self.row_bytes / size_of::<CacheLine>());
        let at = position % TASK_POSITIONS * self.row_bytes;
        let bytes: &mut [u8] = cast_slice_mut(lines);
        store(cpu, self.dtype, values, &mut bytes[at..at + self.row_bytes]);
    }
}

impl Page {
    /// Allocates `count` pages of zeros.
    ///
    /// # Errors
    /// If the system has no memory left.
    pub fn zeros(
        team: &Threads,
        shape: Shape,
        count: usize,
    ) -> Result<impl Iterator<Item = Page>, Refused> {
        let bytes = shape.halves().map(move |dtype| shape.half_bytes(dtype));
        let bytes = bytes.chain([shape.summaries_bytes()]);
        let mut memory = Memory::for_buffers((0..count).flat_map(|_| bytes.clone()))?;
        Ok((0..count).map(move |_| {
            let mut half = |dtype| Half::new(&mut memory, team, shape, dtype);
            let (keys, values) = (half(shape.keys), shape.values.map(half));
            let lines = shape.summaries_bytes() / size_of::<CacheLine>();
            Page { keys, values, summaries: Phased::within(&mut memory, team, 1, lines) }
        }))
    }

    /// Returns the keys of some heads, in a phase in which no worker stores keys.
    pub fn keys<'p>(&'p self, phase: &'p Phase<'_>, heads: Range<usize>) -> CacheRows<'p> {
        self.keys.rows(phase, heads)
    }

    /// Returns the values of some heads, in a phase in which no worker stores values. If values are
    /// a part of keys, returns the keys.
    pub fn values<'p>(&'p self, phase: &'p Phase<'_>, heads: Range<usize>) -> CacheRows<'p> {
        self.values.as_ref().unwrap_or(&self.keys).rows(phase, heads)
    }

    /// Returns the summaries of a head's keys: ([`SUMMARIES`], summary bytes). Empty if the page has
    /// none.
    pub fn summaries<'p>(&'p self, phase: &'p Phase<'_>, head: usize, dim: usize) -> &'p [u8] {
        let all: &[u8] = cast_slice(self.summaries.read(phase));
        let len = SUMMARIES * summary_bytes(dim);
        all.get(head * len..(head + 1) * len).unwrap_or_default()
    }

    /// Returns the summary of a block of keys for writing. The claim must be of task
    /// `head * SUMMARIES + block`.
    pub fn summary<'p>(&'p self, claim: &'p mut Claim<'_>, dim: usize) -> &'p mut [u8] {
        cast_slice_mut(self.summaries.write(claim, summary_bytes(dim) / size_of::<CacheLine>()))
    }

    /// Returns the keys and the values; only the keys if values are a part of them.
    fn halves(&self) -> impl Iterator<Item = &Half> {
        [&self.keys].into_iter().chain(&self.values)
    }

    /// Passes all bytes of the keys, then all bytes of the values to `with`.
    pub fn read(&self, team: &Threads, with: impl FnMut(&[u8]) + Send) {
        let with = Mutex::new(with);
        team.step(|worker| {
            let Some(phase) = worker.phase(1) else { return };
            phase.for_each(|_| {
                let with = &mut *with.lock().unwrap_or_else(PoisonError::into_inner);
                for half in self.halves() {
                    with(cast_slice(half.lines.read(&phase)));
                }
            });
        });
    }

    /// Passes all bytes of the keys, then all bytes of the values to `with`, which may change them.
    pub fn write(&self, team: &Threads, with: impl FnMut(&mut [u8]) + Send) {
        let with = Mutex::new(with);
        team.step(|worker| {
            let Some(phase) = worker.phase(1) else { return };
            phase.for_each(|claim| {
                let with = &mut *with.lock().unwrap_or_else(PoisonError::into_inner);
                for half in self.halves() {
                    with(cast_slice_mut(half.lines.write(claim, half.lines.width())));
                }
            });
        });
    }

    /// Copies the keys and values at `from` in another page to the positions from `to` on. If these
    /// are all positions, copies the summaries as well.
    pub fn copy(&self, team: &Threads, other: &Page, from: Range<usize>, to: usize) {
        team.step(|worker| {
            let Some(phase) = worker.phase(1) else { return };
            phase.for_each(|claim| {
                for (half, other) in self.halves().zip(other.halves()) {
                    let (row, head) = (half.row_bytes, PAGE * half.row_bytes);
                    let rows: &[u8] = cast_slice(other.lines.read(&phase));
                    let lines = half.lines.write(claim, half.lines.width());
                    let heads = cast_slice_mut::<_, u8>(lines).chunks_exact_mut(head);
                    for (head, rows) in heads.zip(rows.chunks_exact(head)) {
                        let rows = &rows[from.start * row..from.end * row];
                        head[to * row..][..rows.len()].copy_from_slice(rows);
                    }
                }
                if from.len() == PAGE {
                    let from = other.summaries.read(&phase);
                    self.summaries.write(claim, from.len()).copy_from_slice(from);
                }
            });
        });
    }

    /// Stores the key of a position: (padded dim). The claim must be of task
    /// `head * TASKS + position % PAGE / TASK_POSITIONS`.
    pub fn store_key(&self, cpu: Cpu, claim: &mut Claim<'_>, position: usize, key: &[f32]) {
        self.keys.store(cpu, claim, position, key);
    }

    /// Stores the value of a position like [`Page::store_key`]. Does nothing if values are a part
    /// of keys.
    pub fn store_value(&self, cpu: Cpu, claim: &mut Claim<'_>, position: usize, value: &[f32]) {
        if let Some(values) = &self.values {
            values.store(cpu, claim, position, value);
        }
    }
}
