//! Settings that a model file recommends, in the keys `general.sampling.*`.

use super::{Error, Kind, Settings};
use crate::gguf::Metadata;

impl Settings {
    /// The defaults, with what the file says in their place.
    ///
    /// # Errors
    /// A key of another type, and a sampler that is not known. The values are not checked.
    pub fn from_metadata(metadata: &Metadata) -> Result<Self, Error> {
        let real = |name: &str| metadata.f32(&format!("general.sampling.{name}"));
        let whole = |name: &str| metadata.i32(&format!("general.sampling.{name}"));
        let default = Self::default();
        let natural = |name: &str| metadata.u32(&format!("general.sampling.{name}"));
        let samplers = metadata.string("general.sampling.sequence")?;
        Ok(Self {
            samplers: samplers.map_or(Ok(default.samplers), Kind::parse_names)?,
            temperature: real("temp")?.unwrap_or(default.temperature),
            top_k: whole("top_k")?.unwrap_or(default.top_k),
            top_p: real("top_p")?.unwrap_or(default.top_p),
            min_p: real("min_p")?.unwrap_or(default.min_p),
            xtc_probability: real("xtc_probability")?.unwrap_or(default.xtc_probability),
            xtc_threshold: real("xtc_threshold")?.unwrap_or(default.xtc_threshold),
            repeat_last_n: natural("penalty_last_n")?.map_or(default.repeat_last_n, |n| n as usize),
            repeat_penalty: real("penalty_repeat")?.unwrap_or(default.repeat_penalty),
            mirostat: natural("mirostat")?.unwrap_or(default.mirostat),
            mirostat_tau: real("mirostat_tau")?.unwrap_or(default.mirostat_tau),
            mirostat_eta: real("mirostat_eta")?.unwrap_or(default.mirostat_eta),
            ..default
        })
    }
}
