//! The tensor types of GGUF files.

/// A tensor type with a known layout. There may be no kernel for it.
///
/// ```
/// use rope_cpu::gguf::GgmlType;
///
/// let q4_0 = GgmlType::named("q4_0").unwrap();
/// assert_eq!((q4_0.block_len, q4_0.block_bytes), (32, 18)); // 4.5 bits for each weight
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GgmlType {
    /// The number of the type in the file.
    pub number: u32,
    /// The name of the type in GGUF, in lower case.
    pub name: &'static str,
    /// The number of values in a block. Rows are whole blocks.
    pub block_len: u64,
    /// The size of a block in bytes.
    pub block_bytes: u64,
}

impl GgmlType {
    /// The 32-bit floating-point type.
    pub const F32: Self = Self { number: 0, name: "f32", block_len: 1, block_bytes: 4 };

    /// Returns the type with this name, in lower case.
    pub fn named(name: &str) -> Option<Self> {
        let &(number, name, block_len, block_bytes) = KNOWN.iter().find(|t| t.1 == name)?;
        Some(GgmlType { number, name, block_len, block_bytes })
    }
}

/// What a type number in a file means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    Known(GgmlType),
    /// A type that was removed from the format, with the type to use instead. No current program
    /// reads it.
    Removed {
        name: &'static str,
        instead: &'static str,
    },
    /// A type that only ik_llama.cpp supports.
    Fork {
        name: &'static str,
    },
    Unknown,
}

pub(super) fn lookup(number: u32) -> Lookup {
    if let Some(&(number, name, block_len, block_bytes)) = KNOWN.iter().find(|t| t.0 == number) {
        return Lookup::Known(GgmlType { number, name, block_len, block_bytes });
    }
    if let Some(&(_, name, instead)) = REMOVED.iter().find(|t| t.0 == number) {
        return Lookup::Removed { name, instead };
    }
    match FORK.iter().find(|t| t.0 == number) {
        Some(&(_, name)) => Lookup::Fork { name },
        None => Lookup::Unknown,
    }
}

/// Number, name, values in a block, bytes of a block; from `enum ggml_type` in ggml.h and the
/// block structs in ggml-common.h.
#[rustfmt::skip]
const KNOWN: [(u32, &str, u64, u64); 35] = [
    ( 0, "f32",       1,   4),
    ( 1, "f16",       1,   2),
    ( 2, "q4_0",     32,  18),
    ( 3, "q4_1",     32,  20),
    ( 6, "q5_0",     32,  22),
    ( 7, "q5_1",     32,  24),
    ( 8, "q8_0",     32,  34),
    ( 9, "q8_1",     32,  36),
    (10, "q2_k",    256,  84),
    (11, "q3_k",    256, 110),
    (12, "q4_k",    256, 144),
    (13, "q5_k",    256, 176),
    (14, "q6_k",    256, 210),
    (15, "q8_k",    256, 292),
    (16, "iq2_xxs", 256,  66),
    (17, "iq2_xs",  256,  74),
    (18, "iq3_xxs", 256,  98),
    (19, "iq1_s",   256,  50),
    (20, "iq4_nl",   32,  18),
    (21, "iq3_s",   256, 110),
    (22, "iq2_s",   256,  82),
    (23, "iq4_xs",  256, 136),
    (24, "i8",        1,   1),
    (25, "i16",       1,   2),
    (26, "i32",       1,   4),
    (27, "i64",       1,   8),
    (28, "f64",       1,   8),
    (29, "iq1_m",   256,  56),
    (30, "bf16",      1,   2),
    (34, "tq1_0",   256,  54),
    (35, "tq2_0",   256,  66),
    (39, "mxfp4",    32,  17),
    (40, "nvfp4",    64,  36),
    (41, "q1_0",    128,  18),
    (42, "q2_0",     64,  18),
];

const REMOVED: [(u32, &str, &str); 8] = [
    (4, "q4_2", "q4_0"),
    (5, "q4_3", "q4_1"),
    (31, "q4_0_4_4", "q4_0"),
    (32, "q4_0_4_8", "q4_0"),
    (33, "q4_0_8_8", "q4_0"),
    (36, "iq4_nl_4_4", "iq4_nl"),
    (37, "iq4_nl_4_8", "iq4_nl"),
    (38, "iq4_nl_8_8", "iq4_nl"),
];

/// The types of ik_llama.cpp, from its ggml.h.
#[rustfmt::skip]
const FORK: [(u32, &str); 48] = [
    (98, "q8_0_x4"), (99, "q8_1_x4"), (133, "q6_0"), (134, "iq1_bn"), (135, "iq2_bn"),
    (136, "q8_k64"), (137, "iq2_k"), (138, "iq3_k"), (139, "iq4_k"), (140, "iq5_k"),
    (141, "iq6_k"), (142, "iq2_tn"), (143, "iq1_tn"), (144, "iq4_ks"), (145, "iq2_ks"),
    (146, "iq4_kss"), (147, "q8_k16"), (148, "q8_k32"), (149, "q8_kr8"), (150, "q8_k128"),
    (151, "q8_kv"), (202, "q4_0_r8"), (206, "q5_0_r4"), (208, "q8_0_r8"), (210, "q2_k_r4"),
    (211, "q3_k_r4"), (212, "q4_k_r4"), (213, "q5_k_r4"), (214, "q6_k_r4"), (216, "iq2_xxs_r4"),
    (217, "iq2_xs_r4"), (218, "iq3_xxs_r4"), (219, "iq1_s_r4"), (220, "iq4_nl_r4"),
    (221, "iq3_s_r4"), (222, "iq2_s_r4"), (223, "iq4_xs_r8"), (229, "iq1_m_r4"),
    (230, "bf16_r16"), (233, "q6_0_r4"), (335, "iq2_bn_r4"), (337, "iq2_k_r4"), (338, "iq3_k_r4"),
    (339, "iq4_k_r4"), (340, "iq5_k_r4"), (344, "iq4_ks_r4"),
    (398, "q8_kv_r8"), (399, "q8_k_r8"),
];
