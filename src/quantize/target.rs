//! Types of quantized files, with llama-quantize's names.

use rope_cpu_kernels::DType;

/// The type of a quantized file.
///
/// ```
/// use rope_cpu::quantize::Target;
///
/// let target = Target::named("q4_k").unwrap();
/// assert_eq!(target.name(), "Q4_K_M");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are from llama.cpp")]
pub enum Target {
    F32,
    F16,
    Bf16,
    Q1_0,
    Q2_0,
    Q2K,
    Q2KS,
    Q3KS,
    Q3KM,
    Q3KL,
    Q4_0,
    Q4_1,
    Q4KS,
    Q4KM,
    Q5_0,
    Q5_1,
    Q5KS,
    Q5KM,
    Q6K,
    Q8_0,
    Iq1S,
    Iq1M,
    Iq2Xxs,
    Iq2Xs,
    Iq2S,
    Iq2M,
    Iq3Xxs,
    Iq3Xs,
    Iq3S,
    Iq3M,
    Iq4Nl,
    Iq4Xs,
    Tq1_0,
    Tq2_0,
    Mxfp4Moe,
}

/// Each type with its name, its number in `general.file_type` (`enum llama_ftype` in llama.h), and
/// the format of most tensors.
const TARGETS: [(Target, &str, u32, DType); 35] = [
    (Target::F32, "F32", 0, DType::F32),
    (Target::F16, "F16", 1, DType::F16),
    (Target::Bf16, "BF16", 32, DType::Bf16),
    (Target::Q1_0, "Q1_0", 40, DType::Q1_0),
    (Target::Q2_0, "Q2_0", 41, DType::Q2_0),
    (Target::Q2K, "Q2_K", 10, DType::Q2K),
    (Target::Q2KS, "Q2_K_S", 21, DType::Q2K),
    (Target::Q3KS, "Q3_K_S", 11, DType::Q3K),
    (Target::Q3KM, "Q3_K_M", 12, DType::Q3K),
    (Target::Q3KL, "Q3_K_L", 13, DType::Q3K),
    (Target::Q4_0, "Q4_0", 2, DType::Q4_0),
    (Target::Q4_1, "Q4_1", 3, DType::Q4_1),
    (Target::Q4KS, "Q4_K_S", 14, DType::Q4K),
    (Target::Q4KM, "Q4_K_M", 15, DType::Q4K),
    (Target::Q5_0, "Q5_0", 8, DType::Q5_0),
    (Target::Q5_1, "Q5_1", 9, DType::Q5_1),
    (Target::Q5KS, "Q5_K_S", 16, DType::Q5K),
    (Target::Q5KM, "Q5_K_M", 17, DType::Q5K),
    (Target::Q6K, "Q6_K", 18, DType::Q6K),
    (Target::Q8_0, "Q8_0", 7, DType::Q8_0),
    (Target::Iq1S, "IQ1_S", 24, DType::Iq1S),
    (Target::Iq1M, "IQ1_M", 31, DType::Iq1M),
    (Target::Iq2Xxs, "IQ2_XXS", 19, DType::Iq2Xxs),
    (Target::Iq2Xs, "IQ2_XS", 20, DType::Iq2Xs),
    (Target::Iq2S, "IQ2_S", 28, DType::Iq2Xs),
    (Target::Iq2M, "IQ2_M", 29, DType::Iq2S),
    (Target::Iq3Xxs, "IQ3_XXS", 23, DType::Iq3Xxs),
    (Target::Iq3Xs, "IQ3_XS", 22, DType::Iq3S),
    (Target::Iq3S, "IQ3_S", 26, DType::Iq3S),
    (Target::Iq3M, "IQ3_M", 27, DType::Iq3S),
    (Target::Iq4Nl, "IQ4_NL", 25, DType::Iq4Nl),
    (Target::Iq4Xs, "IQ4_XS", 30, DType::Iq4Xs),
    (Target::Tq1_0, "TQ1_0", 36, DType::Tq1_0),
    (Target::Tq2_0, "TQ2_0", 37, DType::Tq2_0),
    (Target::Mxfp4Moe, "MXFP4_MOE", 38, DType::Mxfp4),
];

impl Target {
    /// Returns all names.
    pub fn names() -> impl Iterator<Item = &'static str> {
        TARGETS.into_iter().map(|target| target.1)
    }

    /// Returns the type with this name, in any case, or with this number. `Q3_K`, `Q4_K` and `Q5_K`
    /// stand for `Q3_K_M`, `Q4_K_M` and `Q5_K_M`.
    ///
    /// ```
    /// # use rope_cpu::quantize::Target;
    /// assert_eq!(Target::named("q4_k_m"), Some(Target::Q4KM));
    /// ```
    pub fn named(name: &str) -> Option<Self> {
        let name = name.to_uppercase();
        let name = match &name[..] {
            "Q3_K" => "Q3_K_M",
            "Q4_K" => "Q4_K_M",
            "Q5_K" => "Q5_K_M",
            other => other,
        };
        let found = TARGETS.into_iter().find(|t| t.1 == name || name.parse() == Ok(t.2));
        found.map(|target| target.0)
    }

    fn row(self) -> (Target, &'static str, u32, DType) {
        TARGETS.into_iter().find(|target| target.0 == self).unwrap_or(TARGETS[0])
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Returns the number in `general.file_type`.
    pub fn file_type(self) -> u32 {
        self.row().2
    }

    /// Returns the format of most tensors.
    pub fn dtype(self) -> DType {
        self.row().3
    }
}
