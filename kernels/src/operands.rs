//! The operands of products: weights, activations, and the destination.

use std::ops::Range;

use bytemuck::cast_slice;

use crate::{
    activations::{self, Span},
    format::{DType, FloatFormat, Format, SPAN, Visitor, spans, tail},
    regime::Regime,
};

/// A matrix of weights with the bytes of the file: `rows` x `columns`, in row-major order.
///
/// ```
/// use rope_cpu_kernels::{DType, Matrix};
///
/// let bytes = [0; 2 * 18]; // a block of Q4_0 has a scale of 2 bytes and 32 weights of 4 bits
/// let weights = Matrix::new(DType::named("Q4_0").unwrap(), 2, 32, &bytes)?;
/// assert_eq!(weights.part(1..2).bytes(), &bytes[18..]);
/// assert!(Matrix::new(DType::F32, 2, 32, &bytes).is_err()); // f32 needs 256 bytes
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    dtype: DType,
    rows: usize,
    columns: usize,
    bytes: &'a [u8],
}

impl<'a> Matrix<'a> {
    /// Creates a matrix.
    ///
    /// # Errors
    ///
    /// If the number of columns is not a multiple of the block, or `bytes` does not match the
    /// shape.
    pub fn new(dtype: DType, rows: usize, columns: usize, bytes: &'a [u8]) -> Result<Self, String> {
        let (block, block_bytes) = dtype.block();
        let name = dtype.name();
        if !columns.is_multiple_of(block) {
            return Err(format!(
                "{columns} columns of {name} are not a multiple of its block of {block}"
            ));
        }
        let expected = (columns / block).checked_mul(block_bytes).and_then(|n| n.checked_mul(rows));
        if expected != Some(bytes.len()) {
            let found = bytes.len();
            return Err(format!("{rows} x {columns} weights of {name} do not take {found} bytes"));
        }
        Ok(Matrix { dtype, rows, columns, bytes })
    }

    /// Returns the format of the weights.
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the number of rows, which is the number of outputs of the product.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of columns, which is the number of inputs of the product.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Returns the bytes of all rows.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the matrix of rows `rows`.
    pub fn part(&self, rows: Range<usize>) -> Self {
        let bytes = &self.bytes[rows.start * self.row_bytes()..rows.end * self.row_bytes()];
        Matrix { rows: rows.len(), bytes, ..*self }
    }

    /// Returns the number of bytes of a row.
    pub(crate) fn row_bytes(&self) -> usize {
        self.bytes.len() / self.rows.max(1)
    }

    /// Returns the bytes of `row`.
    pub(crate) fn row(&self, row: usize) -> &'a [u8] {
        &self.bytes[row * self.row_bytes()..][..self.row_bytes()]
    }

    /// Returns the bytes of `row` and all following rows.
    pub(crate) fn rows_from(&self, row: usize) -> &'a [u8] {
        &self.bytes[row * self.row_bytes()..]
    }

    /// Writes the weights of `row` to `out` (columns).
    pub fn decode_row(&self, row: usize, out: &mut [f32]) {
        assert_eq!(out.len(), self.columns);
        decode_row(self.dtype, self.row(row), out);
    }
}

/// Writes the weights of a row to `out` (columns).
pub(crate) fn decode_row(dtype: DType, row: &[u8], out: &mut [f32]) {
    dtype.visit(Decode { row, out });
}

struct Decode<'a> {
    row: &'a [u8],
    out: &'a mut [f32],
}

impl Visitor for Decode<'_> {
    type Output = ();
    fn quantized<F: Format>(self) {
        let (whole, rest) = spans::<F>(self.row);
        let tail = tail::<F>(rest);
        let all = whole.iter().chain([&tail]);
        let mut values = [0.0; SPAN];
        for (span, out) in all.zip(self.out.chunks_mut(SPAN)) {
            F::decode(span, &mut values);
            out.copy_from_slice(&values[..out.len()]);
        }
    }
    fn float<F: FloatFormat>(self) {
        let elements: &[F::Element] = cast_slice(self.row);
        for (x, out) in elements.iter().zip(self.out) {
            *out = F::decode(*x);
        }
    }
}

/// The activations of all tokens. Products with quantized weights use `spans`, and products with
/// floating-point weights use `floats`.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// The order of the sums.
    pub regime: Regime,
    /// The number of tokens.
    pub tokens: usize,
    /// The activations as floats: (tokens, columns).
    pub floats: &'a [f32],
    /// The activations rounded to 8 bits: (tokens, [`activations::spans_for`] columns).
    pub spans: &'a [Span],
}

impl<'a> Input<'a> {
    /// Returns the floats of `token`.
    #[inline(always)]
    pub(crate) fn floats_of(&self, token: usize, columns: usize) -> &'a [f32] {
        &self.floats[token * columns..][..columns]
    }

    /// Returns the spans of `token`.
    #[inline(always)]
    pub(crate) fn spans_of(&self, token: usize, columns: usize) -> &'a [Span] {
        let n = activations::spans_for(columns);
        &self.spans[token * n..][..n]
    }
}

/// The destination of a product.
pub trait Output {
    /// Writes the products of `token` with the rows from `row` on.
    fn put(&mut self, token: usize, row: usize, values: &[f32]);
}

/// The arguments of a product.
pub(crate) struct Product<'a> {
    pub(crate) weights: &'a Matrix<'a>,
    pub(crate) rows: Range<usize>,
    pub(crate) input: Input<'a>,
    pub(crate) out: &'a mut dyn Output,
}
