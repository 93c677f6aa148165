//! Memory in large pages, where the system supports them.
//!
//! Each token reads the weights and the KV cache once. They are far larger than the memory that the
//! CPU's page table cache (TLB) covers. With small pages, looking up an address can take longer
//! than reading the data.

use std::alloc::{Layout, handle_alloc_error};

use memmap2::{Mmap, MmapMut};

use super::{memory::Refused, system};

/// Allocates zeroed memory, aligned to a page. Like a `Vec`, it aborts the program if the system
/// has no memory left.
pub fn zeros(bytes: usize) -> MmapMut {
    try_zeros(bytes).unwrap_or_else(|_| {
        let layout = Layout::array::<u8>(bytes).unwrap_or(Layout::new::<u8>());
        handle_alloc_error(layout)
    })
}

/// Allocates zeroed memory, aligned to a page.
///
/// # Errors
/// If the system has no memory left.
pub fn try_zeros(bytes: usize) -> Result<MmapMut, Refused> {
    let map = MmapMut::map_anon(bytes.max(1)).map_err(|_| Refused { bytes })?;
    system::prefer_large_pages(&map);
    Ok(map)
}

/// When bytes of a mapped file will be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Soon: the system starts to read them from the disk.
    Soon,
    /// Much later: their memory can be used for other data now.
    Late,
}

/// Advises the system when bytes of a mapped file will be read. It may ignore this; Windows does.
pub fn advise(bytes: &[u8], reading: Reading) {
    system::advise(bytes, reading);
}

/// Advises the system to read a mapped file in large pages, if its file system supports that.
pub fn prefer_large(map: &Mmap) {
    system::prefer_large_file_pages(map);
}
