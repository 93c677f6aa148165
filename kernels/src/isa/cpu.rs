//! Chooses an instruction set at run time.

use super::{Isa, Kernel, Scalar};

/// Defines `$Cpu` from the list of instruction sets.
macro_rules! define {
    ($Cpu:ident: $($arch:literal: $($name:ident::$Isa:ident)*;)*) => {
        $($(
            #[cfg(target_arch = $arch)]
            pub use super::$name::$Isa;
        )*)*

        /// An instruction set that the running CPU has. Each variant carries the proof.
        #[derive(Clone, Copy)]
        #[allow(missing_docs, reason = "their types are documented")]
        pub enum $Cpu {
            Scalar(Scalar),
            $($(
                #[cfg(target_arch = $arch)]
                $Isa($Isa),
            )*)*
        }

        impl $Cpu {
            /// The names of all instruction sets of the architecture, the slowest first.
            pub const NAMES: &[&str] = &[
                "scalar",
                $($(
                    #[cfg(target_arch = $arch)]
                    stringify!($name),
                )*)*
            ];

            /// Returns the instruction sets that the running CPU has, the slowest first.
            pub fn available() -> Vec<Self> {
                [
                    Some(Self::Scalar(Scalar)),
                    $($(
                        #[cfg(target_arch = $arch)]
                        $Isa::new().map(Self::$Isa),
                    )*)*
                ]
                .into_iter()
                .flatten()
                .collect()
            }

            /// Returns the name on the command line.
            pub fn name(self) -> &'static str {
                match self {
                    Self::Scalar(_) => "scalar",
                    $($(
                        #[cfg(target_arch = $arch)]
                        Self::$Isa(_) => stringify!($name),
                    )*)*
                }
            }

            /// Runs `kernel` with this instruction set.
            #[inline]
            pub fn call<K: Kernel>(self, kernel: K) -> K::Output {
                match self {
                    Self::Scalar(isa) => isa.call(kernel),
                    $($(
                        #[cfg(target_arch = $arch)]
                        Self::$Isa(isa) => isa.call(kernel),
                    )*)*
                }
            }
        }
    };
}

instruction_sets!(define, Cpu);

impl Cpu {
    /// Returns the fastest instruction set of the running CPU.
    ///
    /// ```
    /// use rope_cpu_kernels::Cpu;
    ///
    /// let cpu = Cpu::best();
    /// assert!(Cpu::NAMES.contains(&cpu.name()));
    /// assert!(Cpu::named("scalar").is_some()); // every CPU has it
    /// ```
    pub fn best() -> Cpu {
        Self::available().pop().unwrap_or(Cpu::Scalar(Scalar))
    }

    /// Returns the instruction set called `name`; `None` if the running CPU lacks it.
    pub fn named(name: &str) -> Option<Cpu> {
        Self::available().into_iter().find(|cpu| cpu.name() == name)
    }
}

impl std::fmt::Debug for Cpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
