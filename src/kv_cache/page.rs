//! A page of the KV cache: the keys and values of 256 positions in one layer.

use std::{
    ops::Range,
    sync::{Mutex, PoisonError},
};

use bytemuck::{Pod, Zeroable, cast_slice, cast_slice_mut};
use rope_cpu_kernels::{
    attention::{CacheRows, PAGE},
    cache::{CacheType, UNIT, store},
    isa::Cpu,
};

use crate::{
    platform::memory::Refused,
    threads::{Claim, Memory, Phase, Phased, Threads},
};

/// The positions of a page.
pub const POSITIONS: usize = PAGE;
/// The positions that one task stores. Their rows fill whole lines with every cache type.
pub const BLOCK: usize = 16;
/// The number of tasks for each head of a page.
pub const BLOCKS: usize = POSITIONS / BLOCK;

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
    /// The type that values are stored in.
    pub values: CacheType,
}

impl Shape {
    /// Returns the elements of a head, padded to whole units of the cache.
    pub fn padded_dim(&self) -> usize {
        self.head_dim.next_multiple_of(UNIT)
    }

    /// Returns the bytes of a page of one layer, keys and values.
    pub fn page_bytes(&self) -> usize {
        self.half_bytes(self.keys) + self.half_bytes(self.values)
    }

    /// Returns the bytes of a page's keys, or of its values, stored as `dtype`.
    fn half_bytes(&self, dtype: CacheType) -> usize {
        POSITIONS * self.kv_heads * dtype.row_bytes(self.head_dim)
    }
}

/// The keys and values of [`POSITIONS`] positions: (heads, positions, row bytes) each.
pub struct Page {
    keys: Half,
    values: Half,
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
        let head_bytes = POSITIONS * self.row_bytes;
        let bytes: &[u8] = cast_slice(self.lines.read(phase));
        let bytes = &bytes[heads.start * head_bytes..heads.end * head_bytes];
        CacheRows { dtype: self.dtype, bytes }
    }

    fn store(&self, cpu: Cpu, claim: &mut Claim<'_>, position: usize, values: &[f32]) {
        let lines = self.lines.write(claim, BLOCK * self.row_bytes / size_of::<CacheLine>());
        let at = position % BLOCK * self.row_bytes;
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
        let halves = [shape.keys, shape.values];
        let bytes = (0..count).flat_map(|_| halves.map(|dtype| shape.half_bytes(dtype)));
        let mut memory = Memory::for_buffers(bytes)?;
        Ok((0..count).map(move |_| {
            let [keys, values] = halves.map(|dtype| Half::new(&mut memory, team, shape, dtype));
            Page { keys, values }
        }))
    }

    /// Returns the keys of some heads, in a phase in which no worker stores keys.
    pub fn keys<'p>(&'p self, phase: &'p Phase<'_>, heads: Range<usize>) -> CacheRows<'p> {
        self.keys.rows(phase, heads)
    }

    /// Returns the values of some heads, in a phase in which no worker stores values.
    pub fn values<'p>(&'p self, phase: &'p Phase<'_>, heads: Range<usize>) -> CacheRows<'p> {
        self.values.rows(phase, heads)
    }

    /// Passes all bytes of the keys, then all bytes of the values to `with`.
    pub fn read(&self, team: &Threads, with: impl FnMut(&[u8]) + Send) {
        let with = Mutex::new(with);
        team.step(|worker| {
            let phase = worker.phase(1);
            phase.for_each(|_| {
                let with = &mut *with.lock().unwrap_or_else(PoisonError::into_inner);
                for half in [&self.keys, &self.values] {
                    with(cast_slice(half.lines.read(&phase)));
                }
            });
        });
    }

    /// Passes all bytes of the keys, then all bytes of the values to `with`, which may change them.
    pub fn write(&self, team: &Threads, with: impl FnMut(&mut [u8]) + Send) {
        let with = Mutex::new(with);
        team.step(|worker| {
            let phase = worker.phase(1);
            phase.for_each(|claim| {
                let with = &mut *with.lock().unwrap_or_else(PoisonError::into_inner);
                for half in [&self.keys, &self.values] {
                    with(cast_slice_mut(half.lines.write(claim, half.lines.width())));
                }
            });
        });
    }

    /// Copies the keys and values of the first `positions` from another page.
    pub fn copy_first(&self, team: &Threads, other: &Page, positions: usize) {
        let halves = [(&self.keys, &other.keys), (&self.values, &other.values)];
        team.step(|worker| {
            let phase = worker.phase(1);
            phase.for_each(|claim| {
                for (to, from) in halves {
                    let (head, bytes) = (POSITIONS * to.row_bytes, positions * to.row_bytes);
                    let from: &[u8] = cast_slice(from.lines.read(&phase));
                    let to: &mut [u8] = cast_slice_mut(to.lines.write(claim, to.lines.width()));
                    for (to, from) in to.chunks_exact_mut(head).zip(from.chunks_exact(head)) {
                        to[..bytes].copy_from_slice(&from[..bytes]);
                    }
                }
            });
        });
    }

    /// Stores the key of a position: (padded dim). The claim must be of task
    /// `head * BLOCKS + position % POSITIONS / BLOCK`.
    pub fn store_key(&self, cpu: Cpu, claim: &mut Claim<'_>, position: usize, key: &[f32]) {
        self.keys.store(cpu, claim, position, key);
    }

    /// Stores the value of a position; see [`Page::store_key`].
    pub fn store_value(&self, cpu: Cpu, claim: &mut Claim<'_>, position: usize, value: &[f32]) {
        self.values.store(cpu, claim, position, value);
    }
}
