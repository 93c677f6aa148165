//! The five formats of the KV cache, in units of 32 values.

use std::{marker::PhantomData, str::FromStr};

use bytemuck::{Pod, Zeroable};
use half::{bf16, f16};

use crate::{
    activations::quantize_group,
    format::{Bf16, F16, F32, FloatFormat},
    isa::{Cpu, Half, Isa, Kernel, LANES},
};

/// The number of values that are stored together. Rows of the cache are padded to a multiple of it.
pub const UNIT: usize = 32;

/// The format in which keys or values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the formats")]
pub enum CacheType {
    F32,
    F16,
    Bf16,
    Q8_0,
    Q4_0,
}

impl CacheType {
    /// All formats, the most precise first.
    pub const ALL: [CacheType; 5] =
        [CacheType::F32, CacheType::F16, CacheType::Bf16, CacheType::Q8_0, CacheType::Q4_0];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            CacheType::F32 => "f32",
            CacheType::F16 => "f16",
            CacheType::Bf16 => "bf16",
            CacheType::Q8_0 => "q8_0",
            CacheType::Q4_0 => "q4_0",
        }
    }

    /// Returns the number of bytes of a row of `values` values, padded to a multiple of [`UNIT`].
    pub fn row_bytes(self, values: usize) -> usize {
        values.div_ceil(UNIT)
            * match self {
                CacheType::F32 => size_of::<<Floats<F32> as CacheFormat>::Unit>(),
                CacheType::F16 => size_of::<<Floats<F16> as CacheFormat>::Unit>(),
                CacheType::Bf16 => size_of::<<Floats<Bf16> as CacheFormat>::Unit>(),
                CacheType::Q8_0 => size_of::<<Q8 as CacheFormat>::Unit>(),
                CacheType::Q4_0 => size_of::<<Q4 as CacheFormat>::Unit>(),
            }
    }

    /// Returns whether values are stored as integers with a scale for each [`UNIT`].
    pub(crate) fn is_quantized(self) -> bool {
        matches!(self, CacheType::Q8_0 | CacheType::Q4_0)
    }
}

impl FromStr for CacheType {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|t| t.name() == name).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|t| t.name()).collect();
            format!("unknown cache type {name}: choose one of {}", names.join(", "))
        })
    }
}

/// A format of the cache, which writes and reads 32 values.
pub(crate) trait CacheFormat: 'static {
    /// 32 stored values.
    type Unit: Pod;
    /// Writes 32 values.
    fn store<I: Isa>(isa: I, values: &[f32; UNIT], out: &mut Self::Unit);
    /// Reads values `16 * half .. 16 * half + 16`.
    fn load<I: Isa>(isa: I, unit: &Self::Unit, half: usize) -> I::WideFloats;
}

/// A format that stores integers with a scale.
pub(crate) trait Quantized: CacheFormat {
    /// Returns the 32 integers, signed and of magnitude at most 127.
    fn quants<I: Isa>(isa: I, unit: &Self::Unit) -> I::Bytes;
    /// Returns the scale of the integers.
    fn scale(unit: &Self::Unit) -> Half;
}

/// A computation that reads or writes the cache, written once and compiled for every format and
/// instruction set.
pub(crate) trait CacheKernel: Sized {
    /// Runs the computation for any format.
    fn run<I: Isa, C: CacheFormat>(self, isa: I);
    /// Runs the computation for a quantized format, by default as for any format.
    #[inline(always)]
    fn run_quantized<I: Isa, C: Quantized>(self, isa: I) {
        self.run::<I, C>(isa);
    }
}

/// Runs `kernel` for the format `dtype` with the instruction set `cpu`.
pub(crate) fn run(cpu: Cpu, dtype: CacheType, kernel: impl CacheKernel) {
    match dtype {
        CacheType::F32 => cpu.call(FloatCacheKernel::<Floats<F32>, _>(kernel, PhantomData)),
        CacheType::F16 => cpu.call(FloatCacheKernel::<Floats<F16>, _>(kernel, PhantomData)),
        CacheType::Bf16 => cpu.call(FloatCacheKernel::<Floats<Bf16>, _>(kernel, PhantomData)),
        CacheType::Q8_0 => cpu.call(QuantizedCacheKernel::<Q8, _>(kernel, PhantomData)),
        CacheType::Q4_0 => cpu.call(QuantizedCacheKernel::<Q4, _>(kernel, PhantomData)),
    }
}

/// A [`CacheKernel`] for a floating-point format.
struct FloatCacheKernel<C, K>(K, PhantomData<C>);

impl<C: CacheFormat, K: CacheKernel> Kernel for FloatCacheKernel<C, K> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        self.0.run::<I, C>(isa);
    }
}

/// A [`CacheKernel`] for a quantized format.
struct QuantizedCacheKernel<C, K>(K, PhantomData<C>);

impl<C: Quantized, K: CacheKernel> Kernel for QuantizedCacheKernel<C, K> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        self.0.run_quantized::<I, C>(isa);
    }
}

/// A floating-point format of weights, used for the cache.
pub(crate) struct Floats<F>(PhantomData<F>);

/// A floating-point format that can be written as well as read.
pub(crate) trait FloatCache: FloatFormat {
    /// Converts 8 values to the format.
    fn store_eight<I: Isa>(isa: I, x: &[f32; 8]) -> [Self::Element; 8];
    /// Converts 16 values to f32.
    fn load_wide<I: Isa>(isa: I, x: &[Self::Element; LANES]) -> I::WideFloats;
}

impl FloatCache for F32 {
    #[inline(always)]
    fn store_eight<I: Isa>(_: I, x: &[f32; 8]) -> [[u8; 4]; 8] {
        x.map(f32::to_le_bytes)
    }
    #[inline(always)]
    fn load_wide<I: Isa>(isa: I, x: &[[u8; 4]; LANES]) -> I::WideFloats {
        isa.wide_load_f32(&x.map(f32::from_le_bytes))
    }
}
impl FloatCache for F16 {
    #[inline(always)]
    fn store_eight<I: Isa>(isa: I, x: &[f32; 8]) -> [Half; 8] {
        isa.f16_from_floats(isa.load_f32(x))
    }
    #[inline(always)]
    fn load_wide<I: Isa>(isa: I, x: &[Half; LANES]) -> I::WideFloats {
        isa.wide_from_f16(x)
    }
}
impl FloatCache for Bf16 {
    #[inline(always)]
    fn store_eight<I: Isa>(_: I, x: &[f32; 8]) -> [Half; 8] {
        x.map(|x| bf16::from_f32(x).to_le_bytes())
    }
    #[inline(always)]
    fn load_wide<I: Isa>(isa: I, x: &[Half; LANES]) -> I::WideFloats {
        isa.wide_from_bf16(x)
    }
}

impl<F: FloatCache> CacheFormat for Floats<F> {
    type Unit = [[F::Element; LANES]; 2];
    #[inline(always)]
    fn store<I: Isa>(isa: I, values: &[f32; UNIT], out: &mut Self::Unit) {
        let out = out.as_flattened_mut().as_chunks_mut::<8>().0;
        for (x, out) in values.as_chunks().0.iter().zip(out) {
            *out = F::store_eight(isa, x);
        }
    }
    #[inline(always)]
    fn load<I: Isa>(isa: I, unit: &Self::Unit, half: usize) -> I::WideFloats {
        F::load_wide(isa, &unit[half])
    }
}

/// Q8_0 as in GGUF: a half-precision scale, then 32 signed bytes.
pub(crate) struct Q8;

/// 32 values of [`Q8`].
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Q8Unit {
    scale: Half,
    quants: [[u8; LANES]; 2],
}

impl CacheFormat for Q8 {
    type Unit = Q8Unit;
    #[inline(always)]
    fn store<I: Isa>(isa: I, values: &[f32; UNIT], out: &mut Q8Unit) {
        let (quants, scale) = quantize_group(isa, values);
        out.scale = f16::from_f32(scale).to_le_bytes();
        out.quants = bytemuck::must_cast(quants);
    }
    #[inline(always)]
    fn load<I: Isa>(isa: I, unit: &Q8Unit, half: usize) -> I::WideFloats {
        isa.wide_mul(isa.wide_from_i8(&unit.quants[half]), isa.wide_splat_f16(unit.scale))
    }
}

impl Quantized for Q8 {
    #[inline(always)]
    fn quants<I: Isa>(isa: I, unit: &Q8Unit) -> I::Bytes {
        isa.load(bytemuck::must_cast_ref(&unit.quants))
    }
    #[inline(always)]
    fn scale(unit: &Q8Unit) -> Half {
        unit.scale
    }
}

/// Q4_0 as in GGUF: a half-precision scale, then 32 nibbles that represent -8 ..= 7.
pub(crate) struct Q4;

/// 32 values of [`Q4`].
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Q4Unit {
    scale: Half,
    nibbles: [u8; LANES],
}

impl CacheFormat for Q4 {
    type Unit = Q4Unit;
    #[inline(always)]
    fn store<I: Isa>(_: I, values: &[f32; UNIT], out: &mut Q4Unit) {
        // The value of largest magnitude becomes -8, as in ggml.
        let largest = values.iter().fold(0.0, |m: f32, &x| if x.abs() > m.abs() { x } else { m });
        let scale = largest / -8.0;
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        let quant = |x: f32| (x * inverse + 8.5).clamp(0.0, 15.0) as u8;
        out.scale = f16::from_f32(scale).to_le_bytes();
        for (i, byte) in out.nibbles.iter_mut().enumerate() {
            *byte = quant(values[i]) | quant(values[i + 16]) << 4;
        }
    }
    #[inline(always)]
    fn load<I: Isa>(isa: I, unit: &Q4Unit, half: usize) -> I::WideFloats {
        let quants = match half {
            0 => isa.wide_from_nibbles::<0>(&unit.nibbles),
            _ => isa.wide_from_nibbles::<4>(&unit.nibbles),
        };
        isa.wide_mul(quants, isa.wide_splat_f16(unit.scale))
    }
}

impl Quantized for Q4 {
    #[inline(always)]
    fn quants<I: Isa>(isa: I, unit: &Q4Unit) -> I::Bytes {
        isa.sub(isa.nibbles(&unit.nibbles), isa.splat(8))
    }
    #[inline(always)]
    fn scale(unit: &Q4Unit) -> Half {
        unit.scale
    }
}

/// Writes a row of values, whose number is a multiple of [`UNIT`], to `out`
/// ([`CacheType::row_bytes`]).
pub fn store(cpu: Cpu, dtype: CacheType, values: &[f32], out: &mut [u8]) {
    assert_eq!((values.len() % UNIT, out.len()), (0, dtype.row_bytes(values.len())));
    run(cpu, dtype, Store { values, out });
}

struct Store<'a> {
    values: &'a [f32],
    out: &'a mut [u8],
}

impl CacheKernel for Store<'_> {
    #[inline(always)]
    fn run<I: Isa, C: CacheFormat>(self, isa: I) {
        let units: &mut [C::Unit] = bytemuck::cast_slice_mut(self.out);
        for (x, out) in self.values.as_chunks().0.iter().zip(units) {
            C::store(isa, x, out);
        }
    }
}

/// Reads a row to `out`, whose length is a multiple of [`UNIT`].
pub fn load(cpu: Cpu, dtype: CacheType, row: &[u8], out: &mut [f32]) {
    assert_eq!((out.len() % UNIT, row.len()), (0, dtype.row_bytes(out.len())));
    run(cpu, dtype, Load { row, out });
}

struct Load<'a> {
    row: &'a [u8],
    out: &'a mut [f32],
}

impl CacheKernel for Load<'_> {
    #[inline(always)]
    fn run<I: Isa, C: CacheFormat>(self, isa: I) {
        load_row::<I, C>(isa, bytemuck::cast_slice(self.row), self.out.as_chunks_mut().0);
    }
}

/// Writes a row as floats to `out`.
#[inline(always)]
pub(crate) fn load_row<I: Isa, C: CacheFormat>(isa: I, row: &[C::Unit], out: &mut [[f32; LANES]]) {
    for (unit, out) in row.iter().zip(out.as_chunks_mut::<2>().0) {
        for half in 0..2 {
            out[half] = isa.wide_to_f32s(C::load(isa, unit, half));
        }
    }
}
