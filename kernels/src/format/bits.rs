//! Conversion of eight fields of a few bits to the bytes of a word, the lowest bits first.

/// The low nibble of each byte.
pub(super) const LOW: u64 = 0x0f0f0f0f0f0f0f0f;

/// Expands eight nibbles to bytes.
#[inline(always)]
pub(super) fn nibbles(x: u32) -> u64 {
    let x = u64::from(x);
    let x = (x | x << 16) & 0x0000ffff0000ffff;
    let x = (x | x << 8) & 0x00ff00ff00ff00ff;
    (x | x << 4) & LOW
}

/// Returns `2 x + 1` for each byte `x <= 127`.
#[inline(always)]
pub(super) fn odd(x: u64) -> u64 {
    x << 1 | 0x0101010101010101
}

/// Returns the bytes as integers, the lowest first.
#[inline(always)]
pub(super) fn integers(x: u64) -> [i8; 8] {
    bytemuck::must_cast(x.to_le_bytes())
}
