//! Zeroed memory in large pages, and buffers cut from it.

use std::{cell::UnsafeCell, marker::PhantomData, mem, ops::Deref, sync::Arc};

use bytemuck::Zeroable;
use memmap2::MmapRaw;

use crate::platform::{memory::Refused, pages};

/// The alignment of each buffer, in bytes: a cache line.
const ALIGNMENT: usize = 64;

/// A block of zeroed memory from which buffers are cut.
pub struct Memory {
    map: Arc<MmapRaw>,
    used: usize,
}

impl Memory {
    /// Allocates memory for buffers of the given sizes in bytes.
    ///
    /// # Errors
    /// If the system has no memory left.
    pub fn for_buffers(bytes: impl IntoIterator<Item = usize>) -> Result<Self, Refused> {
        let total = bytes.into_iter().try_fold(0, end_of);
        let total = total.ok_or(Refused { bytes: usize::MAX })?;
        Ok(Memory { map: Arc::new(pages::try_zeros(total)?.into()), used: 0 })
    }

    /// Cuts off the next buffer: `len` zeros.
    ///
    /// # Panics
    /// If the rest of the memory is smaller than that.
    pub fn cut<T: Zeroable + Copy>(&mut self, len: usize) -> Cells<T> {
        const { assert!(ALIGNMENT.is_multiple_of(align_of::<T>())) };
        let end = len.checked_mul(size_of::<T>()).and_then(|bytes| end_of(self.used, bytes));
        let Some(end) = end.filter(|end| *end <= self.map.len()) else {
            panic!("no room for {len} more");
        };
        let start = mem::replace(&mut self.used, end);
        Cells { map: Some(self.map.clone()), start, len, elements: PhantomData }
    }
}

/// Returns the end of a buffer of `bytes` at `start`, padded; `None` if it overflows.
fn end_of(start: usize, bytes: usize) -> Option<usize> {
    start.checked_add(bytes.checked_next_multiple_of(ALIGNMENT)?)
}

/// A buffer for unsafe code, which can write elements through a shared reference.
pub struct Cells<T> {
    /// `None` if there are no elements. The map is raw: a reference to its bytes, even for a
    /// moment, would overlap the elements that other threads write.
    map: Option<Arc<MmapRaw>>,
    start: usize,
    len: usize,
    elements: PhantomData<UnsafeCell<T>>,
}

impl<T> Cells<T> {
    /// Returns a buffer without elements. It uses no memory.
    pub fn empty() -> Self {
        Cells { map: None, start: 0, len: 0, elements: PhantomData }
    }
}

impl<T> Deref for Cells<T> {
    type Target = [UnsafeCell<T>];

    #[allow(unsafe_code, reason = "a memory map has bytes, not elements of type T")]
    fn deref(&self) -> &[UnsafeCell<T>] {
        let Some(map) = &self.map else { return &[] };
        let start = map.as_mut_ptr().wrapping_add(self.start).cast();
        // SAFETY: `cut` reserved `len` elements at `start` for this buffer alone, and checked that
        // they end within the map. They are aligned, since the map starts at a page. They started
        // as zeros, which is a valid `T`. The map lives as long as `self`, and the only references
        // into it are from here, to cells that may be written through a shared reference.
        unsafe { std::slice::from_raw_parts(start, self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of so many `u64` are 2^64: too many for a number.
    const TOO_MANY: usize = 1 << 61;

    #[test]
    #[should_panic(expected = "no room for 2305843009213693952 more")]
    fn a_length_whose_bytes_overflow_has_no_room() {
        let mut memory = Memory::for_buffers([64]).unwrap();
        memory.cut::<u64>(TOO_MANY);
    }

    #[test]
    fn sizes_that_overflow_are_refused() {
        for bytes in [vec![usize::MAX], vec![usize::MAX - 63, 64], vec![1 << 63, 1 << 63]] {
            let refused = Memory::for_buffers(bytes).err();
            assert_eq!(refused, Some(Refused { bytes: usize::MAX }));
        }
    }
}
