//! Limits of the counts and sizes in a GGUF header, each with its reason.
//!
//! Strings and arrays need no limit: their lengths are checked against the bytes left in the file,
//! and their data is borrowed. So the memory for a header is at most a small multiple of its size.

/// The maximum number of metadata keys.
///
/// Published models have fewer than 100; the limit allows for hundreds of layers with dozens of
/// keys each.
pub const KEYS_MAX: u64 = 1 << 14;

/// The maximum length of a key in bytes, from the GGUF specification.
pub const KEY_BYTES_MAX: u64 = (1 << 16) - 1;

/// The maximum number of tensors.
///
/// The largest known model has 47,000: 61 layers with 256 experts, and three tensors for each
/// expert.
pub const TENSORS_MAX: u64 = 1 << 16;

/// The maximum number of parts of a split model. Published models have fewer than 200.
pub const PARTS_MAX: u32 = 4096;

/// The maximum length of a tensor's name in bytes, from the GGUF specification.
pub const TENSOR_NAME_BYTES_MAX: u64 = 64;

/// The maximum number of dimensions of a tensor, as in ggml.
pub const DIMENSIONS_MAX: u32 = 4;

/// The smallest alignment of tensor data in bytes.
///
/// The specification requires a multiple of 8, and blocks of 8-byte numbers are cast in place.
pub const ALIGNMENT_MIN: u64 = 8;

/// The largest alignment of tensor data in bytes.
///
/// Writers use 32, and at most a page (64 KiB on some systems). With a larger limit, a small header
/// could place its data anywhere.
pub const ALIGNMENT_MAX: u64 = 1 << 20;

/// The alignment in bytes of a file without `general.alignment`, from the specification.
pub const ALIGNMENT_DEFAULT: u64 = 32;

/// The maximum number of bytes after the last tensor.
///
/// The tensor may be padded to the alignment, and the file to a (huge) page. More bytes would be
/// data that the header does not describe, as in two joined files.
pub const TRAILING_BYTES_MAX: u64 = 2 << 20;

/// The size in bytes of the shortest possible key-value pair: length, one letter, type, one byte.
pub const PAIR_BYTES_MIN: u64 = 8 + 1 + 4 + 1;

/// The size in bytes of the shortest possible tensor entry: length, one letter, number of
/// dimensions, one dimension, type, offset.
pub const TENSOR_BYTES_MIN: u64 = 8 + 1 + 4 + 8 + 4 + 8;
