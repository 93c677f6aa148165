//! Memory in large pages, where the system has them.
//!
//! Weights and the cache are read once for each token, far more of them than the CPU's table of
//! page addresses covers: with small pages, looking an address up can take longer than reading what is there.

use std::alloc::{Layout, handle_alloc_error};

use memmap2::{Mmap, MmapMut};

/// Zeros, of no alignment but a page's. As with a `Vec`, the program ends where there is no memory.
pub fn zeros(bytes: usize) -> MmapMut {
    let map = MmapMut::map_anon(bytes.max(1)).unwrap_or_else(|_| {
        let layout = Layout::array::<u8>(bytes).unwrap_or(Layout::new::<u8>());
        handle_alloc_error(layout)
    });
    // A wish, which the system may not grant.
    #[cfg(target_os = "linux")]
    let _ = map.advise(memmap2::Advice::HugePage);
    map
}

/// Has a file that is mapped be read in large pages, where its file system can.
pub fn prefer_large(map: &Mmap) {
    #[cfg(target_os = "linux")]
    let _ = map.advise(memmap2::Advice::HugePage);
    #[cfg(not(target_os = "linux"))]
    let _ = map;
}
