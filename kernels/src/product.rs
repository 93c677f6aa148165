//! Products of weights and activations, for every format, instruction set and number of tokens.

use std::{collections::TryReserveError, marker::PhantomData, ops::Range};

use crate::{
    activations,
    buffer::{filled, with_capacity},
    dot, float_gemm,
    format::{FloatFormat, Format, SPAN, Visitor},
    gemm,
    isa::{Cpu, LANES},
    operands::{Input, Matrix, Output, Product},
    regime::Regime,
};

/// A worker thread's buffers for products. The default has none, which is enough for one token in
/// [`Regime::Few`].
#[derive(Default)]
pub struct Scratch {
    gemm: gemm::Scratch,
    /// Activations of several tokens in the order of a format: (tokens, spans).
    arranged: Vec<dot::Arranged>,
    /// A panel of floats: (columns), where lanes are rows.
    floats: Vec<[f32; LANES]>,
}

impl Scratch {
    /// Creates buffers for matrices of up to `columns` columns, and up to `tokens` tokens.
    ///
    /// # Errors
    /// If the system has no memory left.
    pub fn new(columns: usize, tokens: usize) -> Result<Self, TryReserveError> {
        Ok(Scratch {
            gemm: gemm::Scratch::for_tokens(tokens)?,
            arranged: with_capacity(tokens * activations::spans_for(columns))?,
            floats: filled([0.0; LANES], columns)?,
        })
    }

    /// Returns the number of bytes of [`Scratch::new`].
    pub const fn bytes(columns: usize, tokens: usize) -> usize {
        gemm::Scratch::bytes(tokens)
            + tokens * columns.div_ceil(SPAN) * size_of::<dot::Arranged>()
            + columns * size_of::<[f32; LANES]>()
    }
}

/// Multiplies `rows` of `weights` with every token of `input`.
///
/// A product with quantized weights is a sum of exact integer sums, of 32 (or 16) products each,
/// times their scales. The order of the additions depends on [`Input::regime`], but not on the
/// instruction set or on other rows and tokens.
///
/// ```
/// use rope_cpu_kernels::{Cpu, DType, Input, Matrix, Output, Regime, Scratch, multiply};
///
/// struct Vector([f32; 2]);
///
/// impl Output for Vector {
///     fn put(&mut self, _token: usize, row: usize, values: &[f32]) {
///         self.0[row..][..values.len()].copy_from_slice(values);
///     }
/// }
///
/// let bytes = [1.0f32, 2.0, 3.0, 4.0].map(f32::to_le_bytes);
/// let weights = Matrix::new(DType::F32, 2, 2, bytes.as_flattened())?;
/// let input = Input { regime: Regime::Few, tokens: 1, floats: &[10.0, 1.0], spans: &[] };
/// let mut out = Vector([0.0; 2]);
/// multiply(Cpu::best(), &weights, 0..2, input, &mut Scratch::new(2, 1)?, &mut out);
/// assert_eq!(out.0, [12.0, 34.0]); // 1 * 10 + 2 * 1, 3 * 10 + 4 * 1
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn multiply(
    cpu: Cpu,
    weights: &Matrix<'_>,
    rows: Range<usize>,
    input: Input<'_>,
    scratch: &mut Scratch,
    out: &mut dyn Output,
) {
    assert!(rows.end <= weights.rows());
    let product = Product { weights, rows, input, out };
    weights.dtype().visit(Multiply { cpu, product, scratch });
}

struct Multiply<'a> {
    cpu: Cpu,
    product: Product<'a>,
    scratch: &'a mut Scratch,
}

impl Visitor for Multiply<'_> {
    type Output = ();
    fn quantized<F: Format>(self) {
        let Multiply { cpu, product, scratch } = self;
        match product.input.regime {
            Regime::Few if product.input.tokens > 1 => {
                cpu.call(dot::Together::<F>(product, &mut scratch.arranged, PhantomData));
            }
            Regime::Few => cpu.call(dot::Dot::<F>(product, PhantomData)),
            Regime::Many => cpu.call(gemm::Gemm::<F>(product, &mut scratch.gemm, PhantomData)),
        }
    }
    fn float<F: FloatFormat>(self) {
        let Multiply { cpu, product, scratch } = self;
        match product.input.regime {
            Regime::Few => cpu.call(dot::FloatDot::<F>(product, PhantomData)),
            Regime::Many => {
                cpu.call(float_gemm::FloatGemm::<F>(product, &mut scratch.floats, PhantomData))
            }
        }
    }
}
