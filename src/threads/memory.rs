//! Zeroed memory in large pages, and buffers cut from it.

use std::{cell::UnsafeCell, marker::PhantomData, ops::Deref, sync::Arc};

use bytemuck::Zeroable;
use memmap2::MmapMut;

use crate::platform::pages;

/// Where each buffer begins: at a line of the caches.
const ALIGNMENT: usize = 64;

/// Memory from which buffers are cut.
pub struct Memory {
    map: Arc<MmapMut>,
    used: usize,
}

impl Memory {
    /// Room for buffers of so many bytes each.
    pub fn for_buffers(bytes: impl IntoIterator<Item = usize>) -> Self {
        let total = bytes.into_iter().map(|bytes| bytes.next_multiple_of(ALIGNMENT)).sum();
        Memory { map: Arc::new(pages::zeros(total)), used: 0 }
    }

    /// The next buffer, of `len` zeros.
    ///
    /// # Panics
    /// If there is no room for it.
    pub fn cut<T: Zeroable + Copy>(&mut self, len: usize) -> Cells<T> {
        const { assert!(ALIGNMENT.is_multiple_of(align_of::<T>())) };
        let start = self.used;
        self.used += (len * size_of::<T>()).next_multiple_of(ALIGNMENT);
        assert!(self.used <= self.map.len(), "no room for {len} more");
        Cells { map: self.map.clone(), start, len, elements: PhantomData }
    }
}

/// A buffer, to be shared with care.
pub struct Cells<T> {
    map: Arc<MmapMut>,
    start: usize,
    len: usize,
    elements: PhantomData<UnsafeCell<T>>,
}

impl<T> Deref for Cells<T> {
    type Target = [UnsafeCell<T>];

    #[allow(unsafe_code, reason = "a map knows bytes alone")]
    fn deref(&self) -> &[UnsafeCell<T>] {
        let start = self.map.as_ptr().wrapping_add(self.start).cast();
        // SAFETY: `cut` found room for `len` elements at `start`, aligned, which no other buffer
        // has; they were zeros at first, which is a valid `T`; the map lives as long as `self`.
        unsafe { std::slice::from_raw_parts(start, self.len) }
    }
}
