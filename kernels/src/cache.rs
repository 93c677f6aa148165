//! How keys and values are stored between tokens: five formats, in units of 32 values.

use std::str::FromStr;

use half::{bf16, f16};

use crate::{
    format::{Bf16, F16, F32, FloatFormat},
    isa::{Cpu, Isa, Kernel},
};

/// Values that are stored together; rows of the cache are filled up to a multiple of it.
pub const UNIT: usize = 32;

/// How keys or values are stored.
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
    /// Every type, the most exact first.
    pub const ALL: [CacheType; 5] =
        [CacheType::F32, CacheType::F16, CacheType::Bf16, CacheType::Q8_0, CacheType::Q4_0];

    /// The name as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            CacheType::F32 => "f32",
            CacheType::F16 => "f16",
            CacheType::Bf16 => "bf16",
            CacheType::Q8_0 => "q8_0",
            CacheType::Q4_0 => "q4_0",
        }
    }

    /// Bytes of a row of `values`, which are filled up to a multiple of [`UNIT`].
    pub fn row_bytes(self, values: usize) -> usize {
        struct Bytes;
        impl CacheVisitor for Bytes {
            type Output = usize;
            fn visit<C: CacheFormat>(self) -> usize {
                C::BYTES
            }
        }
        values.div_ceil(UNIT) * self.visit(Bytes)
    }

    #[inline(always)]
    pub(crate) fn visit<V: CacheVisitor>(self, visitor: V) -> V::Output {
        match self {
            CacheType::F32 => visitor.visit::<Floats<F32>>(),
            CacheType::F16 => visitor.visit::<Floats<F16>>(),
            CacheType::Bf16 => visitor.visit::<Floats<Bf16>>(),
            CacheType::Q8_0 => visitor.visit::<Q8>(),
            CacheType::Q4_0 => visitor.visit::<Q4>(),
        }
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

pub(crate) trait CacheVisitor {
    type Output;
    fn visit<C: CacheFormat>(self) -> Self::Output;
}

/// One of the formats: how 32 values are written and read.
pub(crate) trait CacheFormat: 'static {
    /// Bytes of 32 values.
    const BYTES: usize;
    /// Writes 32 values to [`CacheFormat::BYTES`] bytes.
    fn store<I: Isa>(isa: I, values: &[f32; UNIT], out: &mut [u8]);
    /// Reads 32 values from [`CacheFormat::BYTES`] bytes.
    fn load<I: Isa>(isa: I, bytes: &[u8]) -> [I::Floats; 4];
}

/// A floating-point format of weights, used for the cache.
pub(crate) struct Floats<F>(F);

/// How one of them is written.
pub(crate) trait StoreEight: FloatFormat {
    fn store_eight<I: Isa>(isa: I, x: &[f32; 8], out: &mut [u8]);
}

impl StoreEight for F32 {
    #[inline(always)]
    fn store_eight<I: Isa>(_: I, x: &[f32; 8], out: &mut [u8]) {
        out.copy_from_slice(bytemuck::bytes_of(&x.map(f32::to_le_bytes)));
    }
}
impl StoreEight for F16 {
    #[inline(always)]
    fn store_eight<I: Isa>(isa: I, x: &[f32; 8], out: &mut [u8]) {
        out.copy_from_slice(isa.f16_from_floats(isa.load_f32(x)).as_flattened());
    }
}
impl StoreEight for Bf16 {
    #[inline(always)]
    fn store_eight<I: Isa>(_: I, x: &[f32; 8], out: &mut [u8]) {
        out.copy_from_slice(x.map(|x| bf16::from_f32(x).to_le_bytes()).as_flattened());
    }
}

impl<F: StoreEight> CacheFormat for Floats<F> {
    const BYTES: usize = UNIT * size_of::<F::Element>();
    #[inline(always)]
    fn store<I: Isa>(isa: I, values: &[f32; UNIT], out: &mut [u8]) {
        for (x, out) in values.as_chunks::<8>().0.iter().zip(out.chunks_exact_mut(Self::BYTES / 4))
        {
            F::store_eight(isa, x, out);
        }
    }
    #[inline(always)]
    fn load<I: Isa>(isa: I, bytes: &[u8]) -> [I::Floats; 4] {
        let all: &[F::Element] = bytemuck::cast_slice(&bytes[..Self::BYTES]);
        let eights = all.as_chunks::<8>().0;
        [
            F::load(isa, &eights[0]),
            F::load(isa, &eights[1]),
            F::load(isa, &eights[2]),
            F::load(isa, &eights[3]),
        ]
    }
}

/// Q8_0 as in GGUF: a half-precision scale, then 32 signed bytes.
pub(crate) struct Q8;

impl CacheFormat for Q8 {
    const BYTES: usize = 34;
    #[inline(always)]
    fn store<I: Isa>(isa: I, values: &[f32; UNIT], out: &mut [u8]) {
        let scale = values.iter().fold(0.0, |m: f32, x| m.max(x.abs())) / 127.0;
        let inverse = isa.splat_f32(if scale > 0.0 { 1.0 / scale } else { 0.0 });
        let (d, quants) = out.split_at_mut(2);
        d.copy_from_slice(&f16::from_f32(scale).to_le_bytes());
        for (x, out) in values.as_chunks::<8>().0.iter().zip(quants.as_chunks_mut::<8>().0) {
            *out = bytemuck::must_cast(isa.i8_from_floats(isa.mul(isa.load_f32(x), inverse)));
        }
    }
    #[inline(always)]
    fn load<I: Isa>(isa: I, bytes: &[u8]) -> [I::Floats; 4] {
        let (d, quants) = (&bytes.as_chunks::<2>().0[0], &bytes[2..].as_chunks::<32>().0[0]);
        let scale = isa.splat_f32(isa.f32_from_f16(*d));
        let [a, b, c, d] = isa.signed_to_floats(isa.load(quants));
        [isa.mul(a, scale), isa.mul(b, scale), isa.mul(c, scale), isa.mul(d, scale)]
    }
}

/// Q4_0 as in GGUF: a half-precision scale, then 32 nibbles that stand for -8 ..= 7.
pub(crate) struct Q4;

impl CacheFormat for Q4 {
    const BYTES: usize = 18;
    #[inline(always)]
    fn store<I: Isa>(_: I, values: &[f32; UNIT], out: &mut [u8]) {
        // The value of largest magnitude becomes -8, as in ggml.
        let largest = values.iter().fold(0.0, |m: f32, &x| if x.abs() > m.abs() { x } else { m });
        let scale = largest / -8.0;
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        let quant = |x: f32| (x * inverse + 8.5).clamp(0.0, 15.0) as u8;
        let (d, nibbles) = out.split_at_mut(2);
        d.copy_from_slice(&f16::from_f32(scale).to_le_bytes());
        for (i, byte) in nibbles[..16].iter_mut().enumerate() {
            *byte = quant(values[i]) | quant(values[i + 16]) << 4;
        }
    }
    #[inline(always)]
    fn load<I: Isa>(isa: I, bytes: &[u8]) -> [I::Floats; 4] {
        let (d, nibbles) = (&bytes.as_chunks::<2>().0[0], &bytes[2..].as_chunks::<16>().0[0]);
        let scale = isa.splat_f32(isa.f32_from_f16(*d));
        let offset = isa.mul(scale, isa.splat_f32(-8.0));
        let [a, b, c, d] = isa.signed_to_floats(isa.nibbles(nibbles));
        [
            isa.mul_add(a, scale, offset),
            isa.mul_add(b, scale, offset),
            isa.mul_add(c, scale, offset),
            isa.mul_add(d, scale, offset),
        ]
    }
}

/// Writes a row of values, a multiple of [`UNIT`] of them, to `out` ([`CacheType::row_bytes`]).
pub fn store(cpu: Cpu, dtype: CacheType, values: &[f32], out: &mut [u8]) {
    assert_eq!((values.len() % UNIT, out.len()), (0, dtype.row_bytes(values.len())));
    dtype.visit(Store { cpu, values, out });
}

struct Store<'a> {
    cpu: Cpu,
    values: &'a [f32],
    out: &'a mut [u8],
}

impl CacheVisitor for Store<'_> {
    type Output = ();
    fn visit<C: CacheFormat>(self) {
        self.cpu.call(StoreAs::<C>(self.values, self.out, std::marker::PhantomData));
    }
}

struct StoreAs<'a, C>(&'a [f32], &'a mut [u8], std::marker::PhantomData<C>);

impl<C: CacheFormat> Kernel for StoreAs<'_, C> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        for (x, out) in self.0.as_chunks::<UNIT>().0.iter().zip(self.1.chunks_exact_mut(C::BYTES)) {
            C::store(isa, x, out);
        }
    }
}

/// Reads a row back: `out` takes a multiple of [`UNIT`] values.
pub fn load(cpu: Cpu, dtype: CacheType, row: &[u8], out: &mut [f32]) {
    assert_eq!((out.len() % UNIT, row.len()), (0, dtype.row_bytes(out.len())));
    dtype.visit(Load { cpu, row, out });
}

struct Load<'a> {
    cpu: Cpu,
    row: &'a [u8],
    out: &'a mut [f32],
}

impl CacheVisitor for Load<'_> {
    type Output = ();
    fn visit<C: CacheFormat>(self) {
        self.cpu.call(LoadAs::<C>(self.row, self.out, std::marker::PhantomData));
    }
}

struct LoadAs<'a, C>(&'a [u8], &'a mut [f32], std::marker::PhantomData<C>);

impl<C: CacheFormat> Kernel for LoadAs<'_, C> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        for (bytes, out) in self.0.chunks_exact(C::BYTES).zip(self.1.as_chunks_mut::<UNIT>().0) {
            *out = load_32::<I, C>(isa, bytes);
        }
    }
}

/// 32 values as plain floats.
#[inline(always)]
pub(crate) fn load_32<I: Isa, C: CacheFormat>(isa: I, bytes: &[u8]) -> [f32; UNIT] {
    let [a, b, c, d] = C::load(isa, bytes);
    bytemuck::must_cast([isa.to_f32s(a), isa.to_f32s(b), isa.to_f32s(c), isa.to_f32s(d)])
}
