//! The types of the KV cache.

use super::parameters::{Group, Options};
use rope_cpu::{
    kv_cache::CacheType,
    runtime::parameters::{self, CACHE_TYPE_K, CACHE_TYPE_V, cache_type},
    settings::Parameter,
};

/// The options of the KV cache's types.
pub type CacheArgs = Options<Cache>;

/// The group of the settings of the KV cache's types.
#[derive(Clone, Debug, Default)]
pub struct Cache;

impl Group for Cache {
    fn parameters() -> impl Iterator<Item = &'static Parameter> {
        parameters::CACHE.into_iter()
    }
}

impl CacheArgs {
    /// Returns the type of keys.
    pub fn keys(&self) -> CacheType {
        cache_type(&self.values, &CACHE_TYPE_K)
    }

    /// Returns the type of values.
    pub fn values(&self) -> CacheType {
        cache_type(&self.values, &CACHE_TYPE_V)
    }
}
