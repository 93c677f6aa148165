//! How large a file may claim to be: each limit with its reason.
//!
//! Lengths of strings and arrays need none: they are checked against the bytes that remain in the
//! file and borrowed, so that a header costs less memory than it has bytes, times a small factor.

/// Metadata keys. Published models have fewer than 100; this leaves room for hundreds of layers
/// with dozens of keys each.
pub const KEYS_MAX: u64 = 1 << 14;

/// Bytes of a key: what the GGUF specification allows.
pub const KEY_BYTES_MAX: u64 = (1 << 16) - 1;

/// Tensors. The largest count known is that of 61 layers with 256 experts, each expert in three
/// tensors of its own: 47,000.
pub const TENSORS_MAX: u64 = 1 << 16;

/// Parts of a model in several files. Those published have fewer than 200.
pub const PARTS_MAX: u32 = 4096;

/// Bytes of a tensor's name: what the GGUF specification allows.
pub const TENSOR_NAME_BYTES_MAX: u64 = 64;

/// Dimensions of a tensor: what ggml has.
pub const DIMENSIONS_MAX: u32 = 4;

/// The smallest alignment of tensor data. The specification asks for a multiple of 8, and blocks
/// of 8-byte numbers are cast in place.
pub const ALIGNMENT_MIN: u64 = 8;

/// The largest alignment. Writers use 32, and at most a page (64 KiB on some systems); more would
/// let a small header push its data anywhere.
pub const ALIGNMENT_MAX: u64 = 1 << 20;

/// The alignment of a file that states none, from the specification.
pub const ALIGNMENT_DEFAULT: u64 = 32;

/// Bytes after the last tensor: its padding to the alignment, or of the file to a (huge) page.
/// More is data that the header does not know of, as in two files joined.
pub const TRAILING_BYTES_MAX: u64 = 2 << 20;

/// Bytes of the shortest possible key-value pair: length, one letter, type, one byte.
pub const PAIR_BYTES_MIN: u64 = 8 + 1 + 4 + 1;

/// Bytes of the shortest possible tensor entry: length, one letter, count of dimensions, one
/// dimension, type, offset.
pub const TENSOR_BYTES_MIN: u64 = 8 + 1 + 4 + 8 + 4 + 8;
