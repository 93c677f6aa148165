//! The formats of the cache.

use half::{bf16, f16};
use rope_cpu_kernels::{
    Cpu, Matrix,
    cache::{CacheType, load, store},
};

use crate::common::{Random, on_every_isa, scalar};

fn stored(cpu: Cpu, dtype: CacheType, x: &[f32]) -> (Vec<u8>, Vec<f32>) {
    let mut bytes = vec![0xA5; dtype.row_bytes(x.len())];
    store(cpu, dtype, x, &mut bytes);
    let mut back = vec![f32::NAN; x.len()];
    load(cpu, dtype, &bytes, &mut back);
    (bytes, back)
}

fn stores_and_loads_as_the_scalar_one(cpu: Cpu) {
    let mut random = Random(5);
    for dtype in CacheType::ALL {
        let mut x = random.floats(96);
        x[..32].fill(0.0);
        let (bytes, back) = stored(cpu, dtype, &x);
        assert_eq!((bytes, back), stored(scalar(), dtype, &x), "{}", dtype.name());
    }
}
on_every_isa!(stores_and_loads_as_the_scalar_one);

#[test]
fn what_is_stored_is_near_what_was_given() {
    let x = Random(11).floats(64);
    let largest = |i: usize| x[i / 32 * 32..][..32].iter().fold(0.0f32, |m, x| m.max(x.abs()));
    for dtype in CacheType::ALL {
        let (_, back) = stored(scalar(), dtype, &x);
        for (i, (&x, back)) in x.iter().zip(back).enumerate() {
            let bound = match dtype {
                CacheType::F32 => 0.0,
                CacheType::F16 => (f16::from_f32(x).to_f32() - x).abs(),
                CacheType::Bf16 => (bf16::from_f32(x).to_f32() - x).abs(),
                // Half a step, plus the rounding of the scale to half precision times the quant.
                CacheType::Q8_0 => largest(i) * (0.5 / 127.0 + 1.0 / 2048.0),
                // A whole step at the upper end of the range, as 16 is not a quant and -16 is.
                CacheType::Q5_0 => largest(i) * (1.0 / 16.0 + 1.0 / 2048.0),
                CacheType::Q4_0 => largest(i) * (1.0 / 8.0 + 1.0 / 2048.0),
            };
            assert!((x - back).abs() <= bound, "{}: {x} {back}", dtype.name());
        }
    }
}

#[test]
fn blocks_are_those_of_gguf() {
    let x = Random(13).floats(256);
    for dtype in CacheType::ALL {
        let (bytes, back) = stored(scalar(), dtype, &x);
        let mut decoded = vec![0.0; 256];
        Matrix::new(dtype.format(), 1, 256, &bytes).unwrap().decode_row(0, &mut decoded);
        assert_eq!(decoded, back, "{}", dtype.name());
    }
}
