//! The choice of an instruction set at run time.

#[cfg(target_arch = "aarch64")]
use super::Neon;
#[cfg(target_arch = "x86_64")]
use super::{Avx2, Avx512, AvxVnni};
use super::{Isa, Kernel, Scalar};

/// An instruction set that the running CPU has. Each variant carries the proof.
#[derive(Clone, Copy)]
pub enum Cpu {
    /// Plain Rust.
    Scalar(Scalar),
    /// AVX2 with FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// AVX2 with AVX-VNNI.
    #[cfg(target_arch = "x86_64")]
    AvxVnni(AvxVnni),
    /// AVX-512 with VNNI.
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    /// NEON with the dot product.
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
}

impl Cpu {
    /// The names of all instruction sets of the architecture, the slowest first.
    pub const NAMES: &[&str] = &[
        Scalar::NAME,
        #[cfg(target_arch = "x86_64")]
        Avx2::NAME,
        #[cfg(target_arch = "x86_64")]
        AvxVnni::NAME,
        #[cfg(target_arch = "x86_64")]
        Avx512::NAME,
        #[cfg(target_arch = "aarch64")]
        Neon::NAME,
    ];

    /// Returns the instruction sets that the running CPU has, the slowest first.
    pub fn available() -> Vec<Cpu> {
        [
            Some(Cpu::Scalar(Scalar)),
            #[cfg(target_arch = "x86_64")]
            Avx2::new().map(Cpu::Avx2),
            #[cfg(target_arch = "x86_64")]
            AvxVnni::new().map(Cpu::AvxVnni),
            #[cfg(target_arch = "x86_64")]
            Avx512::new().map(Cpu::Avx512),
            #[cfg(target_arch = "aarch64")]
            Neon::new().map(Cpu::Neon),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Returns the fastest instruction set that the running CPU has.
    pub fn best() -> Cpu {
        Self::available().pop().unwrap_or(Cpu::Scalar(Scalar))
    }

    /// Returns the instruction set named `name`, if the running CPU has it.
    pub fn named(name: &str) -> Option<Cpu> {
        Self::available().into_iter().find(|cpu| cpu.name() == name)
    }

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        struct Name;
        impl Kernel for Name {
            type Output = &'static str;
            #[inline(always)]
            fn run<I: Isa>(self, _: I) -> &'static str {
                I::NAME
            }
        }
        self.call(Name)
    }

    /// Runs `kernel` with this instruction set.
    #[inline]
    pub fn call<K: Kernel>(self, kernel: K) -> K::Output {
        match self {
            Cpu::Scalar(isa) => isa.call(kernel),
            #[cfg(target_arch = "x86_64")]
            Cpu::Avx2(isa) => isa.call(kernel),
            #[cfg(target_arch = "x86_64")]
            Cpu::AvxVnni(isa) => isa.call(kernel),
            #[cfg(target_arch = "x86_64")]
            Cpu::Avx512(isa) => isa.call(kernel),
            #[cfg(target_arch = "aarch64")]
            Cpu::Neon(isa) => isa.call(kernel),
        }
    }
}

impl std::fmt::Debug for Cpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
