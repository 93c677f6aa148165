//! Formats of the KV cache, in units of 32 values. They are formats of weights that can be written
//! quickly.

use std::{marker::PhantomData, str::FromStr};

use bytemuck::Pod;

use crate::{
    DType,
    format::{Bf16, F16, F32, FloatFormat, Q4_0, Q5_0, Q8_0},
    isa::{Cpu, Half, Isa, Kernel, LANES},
};

/// The number of values that are stored together. Rows of the cache are padded to a multiple of
/// this number.
pub const UNIT: usize = 32;

/// Defines [`CacheType`] from the types that implement [`FloatCache`] and [`Quantized`].
macro_rules! cache_types {
    (float: $($float:ident)*; quantized: $($quantized:ident)*;) => {
        /// The format in which keys or values are stored.
        ///
        /// ```
        /// use rope_cpu_kernels::cache::CacheType;
        ///
        /// let dtype: CacheType = "q8_0".parse()?;
        /// assert_eq!(dtype.row_bytes(128), 4 * 34); // 32 values and a scale in 34 bytes
        /// # Ok::<(), String>(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the names are those of the formats")]
        pub enum CacheType {
            $($float,)*
            $($quantized,)*
        }

        impl CacheType {
            /// All formats, in order of precision, the finest first.
            pub const ALL: [CacheType; [$(stringify!($float),)* $(stringify!($quantized),)*].len()] =
                [$(CacheType::$float,)* $(CacheType::$quantized,)*];

            /// Returns whether attention expects mixed rows, multiplied by a Hadamard matrix
            /// ([`crate::hadamard`]). Raw keys, which rotate when they are used, are never mixed.
            pub fn is_mixed(self) -> bool {
                match self {
                    $(CacheType::$float => $float::MIXED,)*
                    $(CacheType::$quantized => $quantized::MIXED,)*
                }
            }

            /// Returns the format of weights that has the same blocks.
            pub fn format(self) -> DType {
                match self {
                    $(CacheType::$float => DType::$float,)*
                    $(CacheType::$quantized => DType::$quantized,)*
                }
            }
        }

        /// Runs `kernel` for the format `dtype` with the instruction set `cpu`.
        pub(crate) fn run(cpu: Cpu, dtype: CacheType, kernel: impl CacheKernel) {
            match dtype {
                $(CacheType::$float => {
                    cpu.call(FloatCacheKernel::<$float, _>(kernel, PhantomData))
                })*
                $(CacheType::$quantized => {
                    cpu.call(QuantizedCacheKernel::<$quantized, _>(kernel, PhantomData))
                })*
            }
        }
    };
}

cache_types! {
    float: F32 F16 Bf16;
    quantized: Q8_0 Q5_0 Q4_0;
}

impl CacheType {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        self.format().name()
    }

    /// Returns the number of bytes of a row of `values` values, padded to a multiple of [`UNIT`].
    pub fn row_bytes(self, values: usize) -> usize {
        let (block, bytes) = self.format().block();
        values.next_multiple_of(UNIT) / block * bytes
    }

    /// Returns whether keys are stored without their bias, in models that have one. This is the
    /// case for integer types: a bias that is far larger than the differences between keys would
    /// determine their scale.
    pub fn separates_bias(self) -> bool {
        self.is_quantized()
    }

    /// Returns whether values are stored as integers, with a scale for each [`UNIT`].
    pub(crate) fn is_quantized(self) -> bool {
        self.format().is_quantized()
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
    /// Whether rows are mixed ([`CacheType::is_mixed`]).
    const MIXED: bool = false;
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
    /// Whether [`CacheKernel::run`] has no dot products of integers ([`Kernel::FLOATS`]).
    const FLOATS: bool = true;
    /// Whether [`CacheKernel::run_quantized`] has none either.
    const FLOATS_QUANTIZED: bool = Self::FLOATS;
    /// Runs the computation for any format.
    fn run<I: Isa, C: CacheFormat>(self, isa: I);
    /// Runs the computation for a quantized format, by default as for any format.
    #[inline(always)]
    fn run_quantized<I: Isa, C: Quantized>(self, isa: I) {
        self.run::<I, C>(isa);
    }
}

/// A [`CacheKernel`] for a floating-point format.
struct FloatCacheKernel<C, K>(K, PhantomData<C>);

impl<C: CacheFormat, K: CacheKernel> Kernel for FloatCacheKernel<C, K> {
    const FLOATS: bool = K::FLOATS;
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        self.0.run::<I, C>(isa);
    }
}

/// A [`CacheKernel`] for a quantized format.
struct QuantizedCacheKernel<C, K>(K, PhantomData<C>);

impl<C: Quantized, K: CacheKernel> Kernel for QuantizedCacheKernel<C, K> {
    const FLOATS: bool = K::FLOATS_QUANTIZED;
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        self.0.run_quantized::<I, C>(isa);
    }
}

/// A floating-point format that can be written as well as read.
pub(crate) trait FloatCache: FloatFormat {
    /// Converts 8 values to the format.
    fn store_eight<I: Isa>(isa: I, x: &[f32; 8]) -> [Self::Element; 8];
}

impl<F: FloatCache> CacheFormat for F {
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

/// Writes a row of values to `out` ([`CacheType::row_bytes`]). The number of values must be a
/// multiple of [`UNIT`].
///
/// ```
/// use rope_cpu_kernels::{Cpu, cache::{CacheType, load, store}};
///
/// let (cpu, dtype) = (Cpu::best(), CacheType::Q8_0);
/// let mut row = vec![0; dtype.row_bytes(32)];
/// store(cpu, dtype, &[0.3; 32], &mut row);
/// let mut read = [0.0; 32];
/// load(cpu, dtype, &row, &mut read);
/// assert!((read[0] - 0.3).abs() < 0.003);
/// ```
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

/// Reads a row to `out`. The number of values must be a multiple of [`UNIT`].
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
