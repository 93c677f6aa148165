//! Locates the data of each tensor, and checks it against the file size and the other tensors.

use std::collections::HashSet;

use super::limits::*;
use super::{Error, GgmlType, Metadata, Value, quoted};

/// A tensor of the file.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    /// The name.
    pub name: &'a str,
    /// The dimensions in ggml's order, the length of a row first; dimensions not in the file are 1.
    pub dims: [u64; DIMENSIONS_MAX as usize],
    /// The number of dimensions in the file, from 1 to 4.
    pub dim_count: usize,
    /// The encoding of the values.
    pub ggml_type: GgmlType,
    /// The offset of the data in bytes from [`Gguf::data_offset`](super::Gguf::data_offset).
    pub offset: u64,
    /// The data: `rows` times `row_bytes` bytes.
    pub bytes: &'a [u8],
}

impl Tensor<'_> {
    /// Returns the number of values.
    pub fn elements(&self) -> u64 {
        self.dims.iter().product()
    }

    /// Returns the number of values in a row.
    pub fn row_len(&self) -> u64 {
        self.dims[0]
    }

    /// Returns the number of rows, the product of all further dimensions.
    pub fn rows(&self) -> u64 {
        self.dims[1..].iter().product()
    }

    /// Returns the size of a row in bytes.
    pub fn row_bytes(&self) -> u64 {
        self.row_len() / self.ggml_type.block_len * self.ggml_type.block_bytes
    }

    /// Returns the dimensions that are in the file.
    pub fn shape(&self) -> &[u64] {
        &self.dims[..self.dim_count]
    }
}

/// A tensor's entry in the header, with its computed size. The location is not checked yet.
pub(super) struct Layout<'a> {
    name: &'a str,
    dims: [u64; DIMENSIONS_MAX as usize],
    dim_count: usize,
    ggml_type: GgmlType,
    offset: u64,
    bytes: u64,
}

impl<'a> Layout<'a> {
    pub fn new(
        name: &'a str,
        dims: [u64; DIMENSIONS_MAX as usize],
        dim_count: usize,
        ggml_type: GgmlType,
        offset: u64,
    ) -> Result<Self, Error> {
        let shape = || dims[..dim_count].to_vec();
        let size = || Error::Size { tensor: quoted(name), dims: shape() };
        if dims.contains(&0) {
            return Err(Error::NoValues { tensor: quoted(name), dims: shape() });
        }
        let block_len = ggml_type.block_len;
        if !dims[0].is_multiple_of(block_len) {
            let (row_len, name, tensor) = (dims[0], ggml_type.name, quoted(name));
            return Err(Error::Row { tensor, row_len, block_len, name });
        }
        // Both products must fit, since the number of values is used as well.
        let elements = dims.iter().try_fold(1u64, |n, &dim| n.checked_mul(dim)).ok_or_else(size)?;
        let bytes = (elements / block_len).checked_mul(ggml_type.block_bytes).ok_or_else(size)?;
        Ok(Self { name, dims, dim_count, ggml_type, offset, bytes })
    }
}

/// Returns the alignment of tensor data: the file's, or the default.
pub(super) fn alignment(metadata: &Metadata<'_>) -> Result<u64, Error> {
    match metadata.get("general.alignment") {
        None => Ok(ALIGNMENT_DEFAULT),
        Some(Value::U32(value)) => Some(u64::from(value))
            .filter(|a| a.is_power_of_two() && (ALIGNMENT_MIN..=ALIGNMENT_MAX).contains(a))
            .ok_or(Error::Alignment { value }),
        Some(other) => Err(Error::AlignmentType { found: other.describe() }),
    }
}

/// Finds the data of every tensor. The data of all tensors starts at `data_offset` in the file.
pub(super) fn locate<'a>(
    file: &'a [u8],
    layouts: Vec<Layout<'a>>,
    data_offset: u64,
    alignment: u64,
) -> Result<Vec<Tensor<'a>>, Error> {
    // A header without tensors need not be padded to the start of the data.
    let start = usize::try_from(data_offset).ok();
    let data = start.and_then(|start| file.get(start..)).unwrap_or_default();
    let mut names = HashSet::with_capacity(layouts.len());
    let mut tensors = Vec::with_capacity(layouts.len());
    for layout in layouts {
        let Layout { name, dims, dim_count, ggml_type, offset, bytes } = layout;
        if !names.insert(name) {
            return Err(Error::NameTwice { tensor: quoted(name) });
        }
        if !offset.is_multiple_of(alignment) {
            return Err(Error::Misaligned { tensor: quoted(name), offset, alignment });
        }
        let Some(bytes) = slice(data, offset, bytes) else {
            let data_bytes = data.len() as u64;
            return Err(Error::OutOfBounds { tensor: quoted(name), offset, bytes, data_bytes });
        };
        tensors.push(Tensor { name, dims, dim_count, ggml_type, offset, bytes });
    }
    check_gaps(&tensors, data.len() as u64)?;
    Ok(tensors)
}

fn slice(data: &[u8], offset: u64, bytes: u64) -> Option<&[u8]> {
    let end = usize::try_from(offset.checked_add(bytes)?).ok()?;
    data.get(usize::try_from(offset).ok()?..end)
}

/// Checks that tensors do not overlap, and that only padding follows the last one. Tensors may be
/// in any order.
fn check_gaps(tensors: &[Tensor<'_>], data_bytes: u64) -> Result<(), Error> {
    let mut places: Vec<_> =
        tensors.iter().map(|t| (t.offset, t.offset + t.bytes.len() as u64, t.name)).collect();
    places.sort_unstable();
    if let Some(pair) = places.windows(2).find(|pair| pair[0].1 > pair[1].0) {
        return Err(Error::Overlap { first: quoted(pair[0].2), second: quoted(pair[1].2) });
    }
    let bytes = data_bytes - places.last().map_or(0, |place| place.1);
    if bytes > TRAILING_BYTES_MAX {
        return Err(Error::Trailing { bytes, max: TRAILING_BYTES_MAX });
    }
    Ok(())
}
