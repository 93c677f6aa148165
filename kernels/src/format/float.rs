use half::{bf16, f16};

use super::FloatFormat;
use crate::{
    cache::FloatCache,
    isa::{Half, Isa, LANES},
    quantize::Encode,
};

/// 32-bit floats.
pub struct F32;
/// IEEE half-precision floats.
pub struct F16;
/// `bfloat16` floats.
pub struct Bf16;

impl FloatFormat for F32 {
    const NAME: &'static str = "f32";
    type Element = [u8; 4];
    fn decode(element: [u8; 4]) -> f32 {
        f32::from_le_bytes(element)
    }
    #[inline(always)]
    fn load<I: Isa>(isa: I, elements: &[[u8; 4]; 8]) -> I::Floats {
        isa.load_f32(&elements.map(f32::from_le_bytes))
    }
    #[inline(always)]
    fn load_wide<I: Isa>(isa: I, x: &[[u8; 4]; LANES]) -> I::WideFloats {
        isa.wide_load_f32(&x.map(f32::from_le_bytes))
    }
}

impl FloatFormat for F16 {
    const NAME: &'static str = "f16";
    type Element = Half;
    fn decode(element: Half) -> f32 {
        f16::from_le_bytes(element).to_f32()
    }
    #[inline(always)]
    fn load<I: Isa>(isa: I, elements: &[Half; 8]) -> I::Floats {
        isa.floats_from_f16(elements)
    }
    #[inline(always)]
    fn load_wide<I: Isa>(isa: I, x: &[Half; LANES]) -> I::WideFloats {
        isa.wide_from_f16(x)
    }
}

impl FloatFormat for Bf16 {
    const NAME: &'static str = "bf16";
    type Element = Half;
    fn decode(element: Half) -> f32 {
        bf16::from_le_bytes(element).to_f32()
    }
    #[inline(always)]
    fn load<I: Isa>(isa: I, elements: &[Half; 8]) -> I::Floats {
        isa.floats_from_bf16(elements)
    }
    #[inline(always)]
    fn load_wide<I: Isa>(isa: I, x: &[Half; LANES]) -> I::WideFloats {
        isa.wide_from_bf16(x)
    }
}

impl Encode<1> for F32 {
    type Block = [u8; 4];
    fn encode([weight]: &[f32; 1], _: Option<&[f32; 1]>) -> [u8; 4] {
        weight.to_le_bytes()
    }
}

impl Encode<1> for F16 {
    type Block = Half;
    fn encode([weight]: &[f32; 1], _: Option<&[f32; 1]>) -> Half {
        f16::from_f32(*weight).to_le_bytes()
    }
}

impl Encode<1> for Bf16 {
    type Block = Half;
    fn encode([weight]: &[f32; 1], _: Option<&[f32; 1]>) -> Half {
        bf16::from_f32(*weight).to_le_bytes()
    }
}

impl FloatCache for F32 {
    #[inline(always)]
    fn store_eight<I: Isa>(_: I, x: &[f32; 8]) -> [[u8; 4]; 8] {
        x.map(f32::to_le_bytes)
    }
}

impl FloatCache for F16 {
    #[inline(always)]
    fn store_eight<I: Isa>(isa: I, x: &[f32; 8]) -> [Half; 8] {
        isa.f16_from_floats(isa.load_f32(x))
    }
}

impl FloatCache for Bf16 {
    #[inline(always)]
    fn store_eight<I: Isa>(_: I, x: &[f32; 8]) -> [Half; 8] {
        x.map(|x| bf16::from_f32(x).to_le_bytes())
    }
}
