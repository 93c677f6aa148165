//! Products of weights with activations, for every format, instruction set and number of tokens.

use std::{marker::PhantomData, ops::Range};

use crate::{
    activations, dot, float_gemm,
    format::{FloatFormat, Format, SPAN, Visitor},
    gemm,
    isa::{Cpu, LANES},
    operands::{Input, Matrix, Output, Product},
    regime::Regime,
};

/// A worker thread's buffers for products.
pub struct Scratch {
    gemm: gemm::Scratch,
    /// Activations of several tokens in the order of a format: (tokens, spans).
    arranged: Vec<dot::Arranged>,
    /// A panel of floats: (columns), where lanes are rows.
    floats: Vec<[f32; LANES]>,
}

impl Scratch {
    /// Creates buffers for matrices of up to `columns` columns, and up to `tokens` tokens.
    pub fn new(columns: usize, tokens: usize) -> Self {
        Scratch {
            gemm: gemm::Scratch::for_tokens(tokens),
            arranged: Vec::with_capacity(tokens * activations::spans_for(columns)),
            floats: vec![[0.0; LANES]; columns],
        }
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
/// The product of a row of quantized weights with a token is a sum of exact integer sums, of 32 (or
/// 16) products each, times their scales. The order of the additions depends on [`Input::regime`],
/// but not on the instruction set, or on other rows and tokens.
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
