//! Instruction sets to test with, and random inputs.

use std::{env, fs::OpenOptions, io::Write, thread};

use half::f16;
use rope_cpu_kernels::{Cpu, DType};

/// Defines a test for each instruction set from `check: fn(Cpu)`.
macro_rules! on_every_isa {
    ($($check:ident),* $(,)?) => {
        $(rope_cpu_kernels::instruction_sets!(on_every_isa, $check);)*
    };
    ($check:ident: $($arch:literal: $($name:ident::$Isa:ident)*;)*) => {
        mod $check {
            use crate::common::with;
            #[test]
            fn scalar() { with("scalar", super::$check) }
            $($(
                #[cfg(target_arch = $arch)]
                #[test]
                fn $name() { with(stringify!($name), super::$check) }
            )*)*
        }
    };
}
pub(crate) use on_every_isa;

/// Runs `check` with an instruction set. If the CPU lacks it, the test is skipped with a message,
/// or fails if CI=true.
pub fn with(name: &str, check: fn(Cpu)) {
    let ci = env::var_os("CI").is_some_and(|ci| ci == "true");
    match Cpu::named(name) {
        Some(cpu) => check(cpu),
        None if ci => panic!("this CPU has no {name}, which CI must test"),
        None => skip(&format!("this CPU has no {name}")),
    }
}

/// Says that the current test cannot run, also in the file named by `CHECK_SKIPPED`.
fn skip(reason: &str) {
    println!("skipped: {reason}");
    if let Some(list) = env::var_os("CHECK_SKIPPED") {
        let list = OpenOptions::new().append(true).create(true).open(list);
        let test = thread::current().name().unwrap_or("unknown test").to_string();
        list.unwrap().write_all(format!("{test}: {reason}\n").as_bytes()).unwrap();
    }
}

/// Returns whether scripts/test-emulated runs the tests, some hundred times slower than a CPU.
pub fn emulated() -> bool {
    env::var_os("EMULATED").is_some()
}

pub fn scalar() -> Cpu {
    Cpu::named("scalar").unwrap()
}

/// Returns the 64-bit FNV-1a hash.
pub fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let next = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100000001b3);
    bytes.into_iter().fold(0xcbf29ce484222325, next)
}

/// A generator of reproducible random bytes (xorshift).
pub struct Random(pub u64);

impl Random {
    pub fn byte(&mut self) -> u8 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 24) as u8
    }
    /// Returns a number from -1 to 1.
    pub fn float(&mut self) -> f32 {
        let bits = u16::from_le_bytes([self.byte(), self.byte()]);
        f32::from(bits) / 32768.0 - 1.0
    }
    pub fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float()).collect()
    }
}

/// Returns the byte offsets of the half-precision scales of a block.
fn scales(dtype: DType) -> &'static [usize] {
    match dtype {
        DType::Q4_1 | DType::Q5_1 | DType::Q4K | DType::Q5K => &[0, 2],
        DType::Q2K => &[80, 82],
        DType::Q3K => &[108],
        DType::Q6K => &[208],
        DType::Tq1_0 => &[52],
        DType::Tq2_0 => &[64],
        DType::F32 | DType::F16 | DType::Bf16 | DType::Mxfp4 | DType::Nvfp4 | DType::Iq1M => &[],
        _ => &[0],
    }
}

/// Returns `rows` x `columns` random weights of moderate size.
pub fn weights(random: &mut Random, dtype: DType, rows: usize, columns: usize) -> Vec<u8> {
    let (block, bytes) = dtype.block();
    let mut out = Vec::new();
    for _ in 0..rows * columns / block {
        let mut one: Vec<u8> = match dtype {
            DType::F32 => random.float().to_le_bytes().to_vec(),
            DType::F16 => f16::from_f32(random.float()).to_le_bytes().to_vec(),
            DType::Bf16 => half::bf16::from_f32(random.float()).to_le_bytes().to_vec(),
            _ => (0..bytes).map(|_| random.byte()).collect(),
        };
        for &at in scales(dtype) {
            let scale = f16::from_f32(0.05 * random.float()).to_le_bytes();
            one[at..at + 2].copy_from_slice(&scale);
        }
        match dtype {
            // Powers of two around 1/8.
            DType::Mxfp4 => one[0] = 120 + one[0] % 8,
            // The upper four bits of the four scale words form the half-precision number 0.008.
            DType::Iq1M => (0..4).for_each(|i| {
                one[49 + 2 * i] = one[49 + 2 * i] & 15 | [0x80, 0x10, 0x00, 0x20][i];
            }),
            _ => {}
        }
        out.extend(one);
    }
    out
}
