//! Keys and values of past tokens, in pages.

use std::str::FromStr;

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
