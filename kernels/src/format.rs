//! GGUF block formats, each described once: the bytes of a block, the weights that it stands for,
//! and how vector operations unpack 32 weights. This module does not depend on an instruction set.

mod bits;
mod codebook;
mod float;
mod iq1_m;
mod iq1_s;
mod iq2_s;
mod iq2_xs;
mod iq2_xxs;
mod iq3_s;
mod iq3_xxs;
mod iq4_nl;
mod iq4_xs;
mod mxfp4;
mod nvfp4;
mod q1_0;
mod q2_0;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
mod quants;
mod tq1_0;
mod tq2_0;

use bytemuck::{Pod, Zeroable, bytes_of_mut, cast_slice, must_cast};

pub use self::{
    float::{Bf16, F16, F32},
    iq1_m::Iq1M,
    iq1_s::Iq1S,
    iq2_s::Iq2S,
    iq2_xs::Iq2Xs,
    iq2_xxs::Iq2Xxs,
    iq3_s::Iq3S,
    iq3_xxs::Iq3Xxs,
    iq4_nl::Iq4Nl,
    iq4_xs::Iq4Xs,
    mxfp4::Mxfp4,
    nvfp4::Nvfp4,
    q1_0::Q1_0,
    q2_0::Q2_0,
    q2_k::Q2K,
    q3_k::Q3K,
    q4_0::Q4_0,
    q4_1::Q4_1,
    q4_k::Q4K,
    q5_0::Q5_0,
    q5_1::Q5_1,
    q5_k::Q5K,
    q6_k::Q6K,
    q8_0::Q8_0,
    quants::{Offset, Quants, Signed, Split, Unsigned},
    tq1_0::Tq1_0,
    tq2_0::Tq2_0,
};
use crate::{
    array::{from_fn, map},
    isa::{Isa, LANES},
};

/// The number of weights of a span, in which the kernels process rows.
pub const SPAN: usize = 256;
/// The number of weights of a group, which one vector of bytes holds.
pub const GROUP: usize = 32;

/// The scales and offsets of a span: weight = `scale * (quant - CENTER) - offset`.
///
/// Index 0 holds the first 16 weights of each of the eight groups, index 1 the last 16.
#[derive(Clone, Copy)]
pub struct Scales<I: Isa> {
    /// The factor.
    pub scale: [I::Floats; 2],
    /// The value to subtract, if [`Quants::OFFSET`].
    pub offset: [I::Floats; 2],
}

impl<I: Isa> Scales<I> {
    /// Creates scales of whole groups, without offsets.
    #[inline(always)]
    fn whole(isa: I, scale: I::Floats) -> Self {
        Self::split(isa, [scale; 2])
    }

    /// Creates scales of whole groups: `d` times integers.
    #[inline(always)]
    fn integers(isa: I, d: f32, scales: [i8; 8]) -> Self {
        Self::whole(isa, isa.mul(isa.splat_f32(d), isa.floats_from_i8(&scales)))
    }

    /// Creates scales of half groups: `d` times the integers of the first halves, and of the last
    /// halves.
    #[inline(always)]
    fn split_integers(isa: I, d: f32, scales: [[i8; 8]; 2]) -> Self {
        let d = isa.splat_f32(d);
        let halves = map(
            scales,
            #[inline(always)]
            |half| isa.mul(d, isa.floats_from_i8(&half)),
        );
        Self::split(isa, halves)
    }

    /// Returns the scales of the first halves of all groups, then of the last halves. Files store
    /// the two alternately.
    #[inline(always)]
    fn deal(isa: I, scales: &[u8; 16]) -> [[u8; 8]; 2] {
        const EVENS_THEN_ODDS: [u8; 32] =
            must_cast([[0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15_u8]; 2]);
        let dealt = isa.to_bytes(isa.lookup(scales, isa.load(&EVENS_THEN_ODDS)));
        let [halves, _]: [[[u8; 8]; 2]; 2] = must_cast(dealt);
        halves
    }

    /// Creates scales of half groups, without offsets.
    #[inline(always)]
    fn split(isa: I, scale: [I::Floats; 2]) -> Self {
        Scales { scale, offset: [isa.splat_f32(0.0); 2] }
    }
}

/// The [`Scales`] of eight rows: (halves of a group, groups), with a row in each lane.
pub struct ScalesOfRows<I: Isa> {
    /// See [`Scales::scale`].
    pub scale: [[I::Floats; 8]; 2],
    /// See [`Scales::offset`].
    pub offset: [[I::Floats; 8]; 2],
}

/// The result of [`Format::shared`], in a layout that the format defines.
pub type Shared<I> = [<I as Isa>::Bytes; 2];

/// A quantized format: integers (quants) of at most 8 bits, with a scale for each 16 or 32 of them.
pub trait Format: 'static {
    /// The name as GGUF spells it, in lower case.
    const NAME: &'static str;
    /// The number of weights in one block of the file: 32, 64, 128 or 256.
    const BLOCK: usize;
    /// 256 weights as stored in the file: one block of 256, or several smaller blocks.
    type Span: Pod;
    /// The kind of the quants.
    type Quants: Quants;
    /// The unsigned quant that represents zero, if it is the same for every scale; otherwise 0.
    const CENTER: u8 = 0;
    /// Whether the quants of a group are the [`Format::nibbles`] of 16 bytes, or what these stand
    /// for. Other formats implement [`Format::quants`].
    const NIBBLES: bool = false;
    /// Whether `dot` multiplies two groups at once, which saves instructions if the quants of a
    /// group are packed in 16 bytes. Requires one scale for each group, and quants that are signed
    /// or have at most 6 bits.
    const TWO_GROUPS: bool = Self::NIBBLES;

    /// Writes the weights of a span, computed in the order of operations of the `gguf` package.
    fn decode(span: &Self::Span, out: &mut [f32; SPAN]);
    /// Returns the scales and offsets of all groups.
    fn scales<I: Isa>(isa: I, span: &Self::Span) -> Scales<I>;
    /// Returns [`Format::scales`] of eight rows, with a row in each lane.
    #[inline(always)]
    fn scales_of_rows<I: Isa>(isa: I, rows: [&Self::Span; 8]) -> ScalesOfRows<I> {
        let scales = map(
            rows,
            #[inline(always)]
            |row| Self::scales(isa, row),
        );
        let [[scale, offset], [last_scale, last_offset]] = map(
            [0, 1],
            #[inline(always)]
            |part| {
                let scale = map(
                    scales,
                    #[inline(always)]
                    |row| row.scale[part],
                );
                let offset = map(
                    scales,
                    #[inline(always)]
                    |row| row.offset[part],
                );
                [isa.transpose_floats(scale), isa.transpose_floats(offset)]
            },
        );
        ScalesOfRows { scale: [scale, last_scale], offset: [offset, last_offset] }
    }
    /// Unpacks data that the quants of all groups share.
    #[inline(always)]
    fn shared<I: Isa>(isa: I, _: &Self::Span) -> Shared<I> {
        [isa.splat(0); 2]
    }
    /// Returns the bytes of group `group`, with its first 16 quants in the low nibbles. Used only if
    /// [`Format::NIBBLES`].
    #[inline(always)]
    fn nibbles(_: &Self::Span, _: usize) -> &[u8; 16] {
        &[0; 16]
    }
    /// Converts nibbles to quants, in the same order.
    #[inline(always)]
    fn of_nibbles<I: Isa>(_: I, nibbles: I::Bytes) -> I::Bytes {
        nibbles
    }
    /// Returns the first 16 quants of groups `2 * pair` and `2 * pair + 1`, and the last 16 quants
    /// of both. Used only if [`Format::TWO_GROUPS`].
    #[inline(always)]
    fn two_groups<I: Isa>(isa: I, span: &Self::Span, pair: usize) -> [I::Bytes; 2] {
        let (a, b) = (Self::nibbles(span, 2 * pair), Self::nibbles(span, 2 * pair + 1));
        let [first, last] = isa.nibbles_of_two(a, b);
        [Self::of_nibbles(isa, first), Self::of_nibbles(isa, last)]
    }
    /// Returns the 32 quants of group `group`; `shared` is the result of [`Format::shared`].
    #[inline(always)]
    fn quants<I: Isa>(isa: I, span: &Self::Span, _: Shared<I>, group: usize) -> I::Bytes {
        Self::of_nibbles(isa, isa.nibbles(Self::nibbles(span, group)))
    }
    /// Calls `put` with 0, then with 1. The second argument of `put(g, ..)` is the [`Isa::panel`] of
    /// group `2 * pair + g` of eight rows.
    #[inline(always)]
    fn panels<I: Isa>(
        isa: I,
        rows: [&Self::Span; 8],
        shared: &[Shared<I>; 8],
        pair: usize,
        mut put: impl FnMut(usize, [I::Bytes; 8]),
    ) {
        for g in 0..2 {
            let group = 2 * pair + g;
            if Self::NIBBLES {
                // Packed quants are half as many registers to transpose.
                let packed = isa.panel_half(from_fn(
                    #[inline(always)]
                    |r| Self::nibbles(rows[r], group),
                ));
                let lines = from_fn(
                    #[inline(always)]
                    |line| {
                        let nibbles = match line < 4 {
                            true => isa.and(packed[line], isa.splat(15)),
                            false => isa.shr::<4>(packed[line - 4]),
                        };
                        Self::of_nibbles(isa, nibbles)
                    },
                );
                put(g, lines);
            } else {
                put(
                    g,
                    isa.panel(from_fn(
                        #[inline(always)]
                        |r| Self::quants(isa, rows[r], shared[r], group),
                    )),
                );
            }
        }
    }
}

/// A format that stores each weight as a floating-point number.
pub trait FloatFormat: 'static {
    /// The name as GGUF spells it, in lower case.
    const NAME: &'static str;
    /// One weight as stored in the file.
    type Element: Pod;
    /// Converts one weight to f32.
    fn decode(element: Self::Element) -> f32;
    /// Converts eight weights to f32.
    fn load<I: Isa>(isa: I, elements: &[Self::Element; 8]) -> I::Floats;
    /// Converts 16 weights to f32.
    fn load_wide<I: Isa>(isa: I, elements: &[Self::Element; LANES]) -> I::WideFloats;
}

/// Returns a row's whole spans, and the remaining bytes.
#[inline(always)]
pub(crate) fn spans<F: Format>(row: &[u8]) -> (&[F::Span], &[u8]) {
    let (whole, rest) = row.split_at(row.len() - row.len() % size_of::<F::Span>());
    (cast_slice(whole), rest)
}

/// Returns a span of the blocks `rest`, padded with zero blocks. These stand for zero weights.
#[inline(always)]
pub(crate) fn tail<F: Format>(rest: &[u8]) -> F::Span {
    let mut span = F::Span::zeroed();
    // Copy block by block, since copies of a constant length are inlined.
    let block = size_of::<F::Span>() / (SPAN / F::BLOCK);
    let blocks = bytes_of_mut(&mut span).chunks_exact_mut(block);
    for (to, from) in blocks.zip(rest.chunks_exact(block)) {
        to.copy_from_slice(from);
    }
    span
}

/// A computation that is generic over the format of a [`DType`].
pub trait Visitor {
    /// The result of the computation.
    type Output;
    /// Runs the computation for a quantized format.
    fn quantized<F: Format>(self) -> Self::Output;
    /// Runs the computation for a floating-point format.
    fn float<F: FloatFormat>(self) -> Self::Output;
}

/// Defines [`DType`] from the types that implement [`FloatFormat`] and [`Format`].
macro_rules! formats {
    (float: $($float:ident)*; quantized: $($quantized:ident)*;) => {
        /// A format of weights.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "the names are those of GGUF")]
        pub enum DType {
            $($float,)*
            $($quantized,)*
        }

        impl DType {
            /// All formats.
            pub const ALL: [DType; [$(stringify!($float),)* $(stringify!($quantized),)*].len()] =
                [$(DType::$float,)* $(DType::$quantized,)*];

            /// Runs `visitor` for this format, as a type parameter.
            #[inline(always)]
            pub fn visit<V: Visitor>(self, visitor: V) -> V::Output {
                match self {
                    $(DType::$float => visitor.float::<$float>(),)*
                    $(DType::$quantized => visitor.quantized::<$quantized>(),)*
                }
            }

            /// Returns whether the format is quantized, so that products read quantized
            /// activations.
            pub fn is_quantized(self) -> bool {
                matches!(self, $(DType::$quantized)|*)
            }
        }
    };
}

formats! {
    float: F32 F16 Bf16;
    quantized: Q1_0 Q2_0 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2K Q3K Q4K Q5K Q6K Iq4Nl Iq4Xs Mxfp4 Nvfp4
        Tq2_0 Tq1_0 Iq3Xxs Iq3S Iq2Xxs Iq2Xs Iq2S Iq1S Iq1M;
}

impl DType {
    /// Returns the format with this name in GGUF, in any case.
    ///
    /// ```
    /// use rope_cpu_kernels::DType;
    ///
    /// let q4_0 = DType::named("Q4_0").unwrap();
    /// assert_eq!(q4_0.block(), (32, 18)); // 32 weights in 18 bytes
    /// assert!(q4_0.is_quantized());
    /// ```
    pub fn named(name: &str) -> Option<DType> {
        Self::ALL.into_iter().find(|t| t.name().eq_ignore_ascii_case(name))
    }

    /// Returns the name as GGUF spells it, in lower case.
    pub fn name(self) -> &'static str {
        struct Name;
        impl Visitor for Name {
            type Output = &'static str;
            fn quantized<F: Format>(self) -> &'static str {
                F::NAME
            }
            fn float<F: FloatFormat>(self) -> &'static str {
                F::NAME
            }
        }
        self.visit(Name)
    }

    /// Returns the number of weights and the number of bytes of a block.
    pub fn block(self) -> (usize, usize) {
        struct Block;
        impl Visitor for Block {
            type Output = (usize, usize);
            fn quantized<F: Format>(self) -> (usize, usize) {
                (F::BLOCK, size_of::<F::Span>() / (SPAN / F::BLOCK))
            }
            fn float<F: FloatFormat>(self) -> (usize, usize) {
                (1, size_of::<F::Element>())
            }
        }
        self.visit(Block)
    }
}
