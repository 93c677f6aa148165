//! Converts fields of a few bits to bytes, and bytes to fields, lowest bits first.

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

/// Packs the low two bits of 256 quants: group `4n + j` of 32 has bits `2j` and up of bytes `32n ..`.
#[inline(always)]
pub(super) fn pairs(quants: &[u8; 256]) -> [u8; 64] {
    std::array::from_fn(|i| {
        let group = |j: usize| quants[i / 32 * 128 + 32 * j + i % 32] & 3;
        group(0) | group(1) << 2 | group(2) << 4 | group(3) << 6
    })
}
