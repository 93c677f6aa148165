//! Checks that a request fits in the available memory, or finds a context and cache types that fit.

use std::fmt;

use thiserror::Error;

use super::{Bytes, Need, Request, Shape};
use crate::{
    kv_cache::{CacheType, PAGE},
    model::{Model, Options},
    platform::{
        self,
        memory::{Available, Limit},
    },
    settings::Setting,
};

impl Shape {
    /// Returns the part of `bytes` that is left for experts after the rest of `request`: less than
    /// [`Shape::experts_bytes`] if they do not all fit.
    pub fn expert_bytes(&self, request: &Request, bytes: u64) -> u64 {
        bytes.saturating_sub(self.need(request).total() - self.experts_bytes)
    }

    /// Returns whether `request` fits in `bytes`, with only the experts in memory that must be.
    fn fits(&self, request: &Request, bytes: u64) -> bool {
        self.need(request).total() - (self.experts_bytes - self.experts_least) <= bytes
    }

    /// Returns the largest context up to `context_max` with which `request` fits in `bytes`: a
    /// whole number of pages if it is less than `context_max`, and 0 if not even one page fits.
    pub fn largest_context(&self, request: &Request, context_max: usize, bytes: u64) -> usize {
        largest_context(context_max, |context| self.fits(&Request { context, ..*request }, bytes))
    }

    /// Returns the default context: the trained length `context_train`, or the largest context that
    /// fits if that is less, but at least a page. If the weights alone do not fit, a context takes
    /// up to a quarter of the memory, so that many experts stay.
    pub fn default_context(&self, request: &Request, context_train: usize, bytes: u64) -> usize {
        let need = |context| self.need(&Request { context, ..*request });
        let context = match largest_context(context_train, |context| need(context).total() <= bytes)
        {
            0 => largest_context(context_train, |context| {
                let fits = self.fits(&Request { context, ..*request }, bytes);
                fits && need(context).cache() <= bytes / 4
            }),
            whole => whole,
        };
        context.max(PAGE.min(context_train))
    }

    /// Returns the types of keys and values that make `request` fit in `bytes`, in order of
    /// precision. Keys lose more accuracy than values by coarser storage.
    pub fn fitting_types(&self, request: &Request, bytes: u64) -> Vec<(CacheType, CacheType)> {
        use CacheType::{F16, Q4_0, Q5_0, Q8_0};
        [(F16, F16), (Q8_0, Q8_0), (Q8_0, Q5_0), (Q5_0, Q5_0), (Q5_0, Q4_0), (Q4_0, Q4_0)]
            .into_iter()
            .filter(|&(keys, values)| self.fits(&Request { keys, values, ..*request }, bytes))
            .collect()
    }

    /// Checks that `request` fits in the available memory, and returns the memory it needs. Experts
    /// may exceed it: then only some of them are in memory at a time.
    ///
    /// # Errors
    /// If it does not fit. The error has the context and the cache types that would.
    pub fn check(&self, request: &Request, available: Available) -> Result<Need, Box<TooLarge>> {
        let need = self.need(request);
        if self.fits(request, available.bytes) {
            return Ok(need);
        }
        Err(Box::new(TooLarge {
            request: *request,
            need,
            available,
            context: self.largest_context(request, request.context, available.bytes),
            types: self.fitting_types(request, available.bytes),
        }))
    }
}

/// Returns the available memory that is left for experts after one sequence; `None` if the system does
/// not report it, or the model has no experts.
pub(in crate::model) fn expert_bytes(model: &Model, options: &Options) -> Option<u64> {
    // Do not ask the system for a model without experts.
    model.config().mixture()?;
    let available = platform::memory::available()?;
    let threads = options.threads.most();
    let mut shape = Shape::of(model, model.resident_bytes(), threads, options.predict);
    if let Some(assistant) = &options.assistant {
        shape = shape.assisted(assistant, threads);
    }
    Some(shape.expert_bytes(&Request::of(options), available.bytes))
}

/// Returns the largest context that `fits`, as [`Shape::largest_context`] does.
fn largest_context(context_max: usize, fits: impl Fn(usize) -> bool) -> usize {
    if fits(context_max) {
        return context_max;
    }
    // The need grows with the pages: `low` of them fit, `high` do not.
    let (mut low, mut high) = (0, context_max.div_ceil(PAGE));
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle * PAGE) { low = middle } else { high = middle }
    }
    low * PAGE
}

/// An error for a run that needs more memory than is available, with the settings that would fit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct TooLarge {
    /// The rejected request.
    pub request: Request,
    /// The memory that it needs.
    pub need: Need,
    /// The available memory.
    pub available: Available,
    /// The largest context that fits with the same types; 0 if none does.
    pub context: usize,
    /// The types that make the requested context fit.
    pub types: Vec<(CacheType, CacheType)>,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Request { context, sequences, .. } = self.request;
        let need = Bytes(self.need.total());
        match sequences {
            1 => write!(f, "a context of {context} tokens needs {need}, ")?,
            _ => write!(f, "{sequences} contexts of {context} tokens need {need}, ")?,
        }
        write!(f, "but {} is available", Bytes(self.available.bytes))?;
        match self.available.limit {
            Limit::Machine => {}
            Limit::Cgroup => write!(f, " within the limit of the control group")?,
            Limit::Job => write!(f, " within the limit of the job object")?,
            Limit::Process => write!(f, " within the limits of this process (ulimit -v, -d)")?,
        }
        write!(f, ": {}.", self.need.parts(&self.request))?;
        match self.context {
            0 => write!(f, " No context fits with these cache types.")?,
            largest => write!(
                f,
                " The largest context that fits is {largest} ({} {largest}).",
                Setting::CONTEXT
            )?,
        }
        if let Some(((keys, values), more)) = self.types.split_first() {
            let (keys, values) = (keys.name(), values.name());
            let (k, v) = (Setting::CACHE_TYPE_K, Setting::CACHE_TYPE_V);
            write!(f, " This one would fit with {k} {keys} {v} {values}")?;
            for (keys, values) in more {
                write!(f, " or {k} {} {v} {}", keys.name(), values.name())?;
            }
            write!(f, ".")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::memory::tests::{machine, request, smollm2};
    use CacheType::{F16, Q4_0, Q5_0, Q8_0};

    #[test]
    fn experts_need_not_fit() {
        let (weights, experts) = (96_000_000, 80_000_000);
        let shape = Shape { experts_bytes: experts, experts_least: 20_000_000, ..smollm2() };
        let small = request(256, F16, F16);
        let beside = shape.need(&small).total() - experts;
        // All but two layers of experts.
        let least = beside + 20_000_000;
        assert!(shape.check(&small, machine(least)).is_ok());
        assert!(shape.check(&small, machine(least - 1)).is_err());
        assert_eq!(shape.expert_bytes(&small, least), 20_000_000);
        assert_eq!(shape.expert_bytes(&small, beside - 1), 0);
        // If all fit with a page, they stay in memory by default, with any context that fits beside.
        let bytes = shape.need(&request(1024, F16, F16)).total();
        assert_eq!(shape.default_context(&small, 8192, bytes), 1024);
        let largest = shape.largest_context(&small, 8192, bytes);
        let least = |context| shape.need(&request(context, F16, F16)).total() - 60_000_000;
        assert!(least(largest) <= bytes && least(largest + PAGE) > bytes, "{largest}");
        // Else a context takes a quarter of the memory.
        let bytes = weights;
        let context = shape.default_context(&small, 8192, bytes);
        let cache = |context| shape.need(&request(context, F16, F16)).cache();
        assert!(cache(context) <= bytes / 4 && cache(context + PAGE) > bytes / 4, "{context}");
    }

    #[test]
    fn the_largest_context_fits_and_one_page_more_does_not() {
        let shape = smollm2();
        for bytes in [0, 96_000_000, 97_000_000, 150_000_000, 1_000_000_000, 10_000_000_000] {
            let request = request(1 << 17, F16, F16);
            let largest = shape.largest_context(&request, 1 << 17, bytes);
            let total = |context| shape.need(&Request { context, ..request }).total();
            assert!(largest == 0 || total(largest) <= bytes, "{bytes}: {largest}");
            assert!(largest == 1 << 17 || total(largest + 1) > bytes, "{bytes}: {largest}");
        }
        // A context that fits is not rounded.
        assert_eq!(shape.largest_context(&request(1, F16, F16), 1000, u64::MAX), 1000);
    }

    #[test]
    fn the_default_context_is_as_trained_or_as_fits() {
        let request = request(0, F16, F16);
        let context = |bytes| smollm2().default_context(&request, 8192, bytes);
        assert_eq!(context(u64::MAX), 8192);
        assert_eq!(context(200_000_000), 4352);
        assert_eq!(context(0), PAGE);
        assert_eq!(smollm2().default_context(&request, 100, 0), 100);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_would() {
        let shape = smollm2();
        let request = request(16384, F16, F16);
        let q8 = shape.need(&Request { keys: Q8_0, values: Q8_0, ..request }).total();
        let error = shape.check(&request, machine(q8)).unwrap_err();
        assert_eq!(
            error.types,
            [(Q8_0, Q8_0), (Q8_0, Q5_0), (Q5_0, Q5_0), (Q5_0, Q4_0), (Q4_0, Q4_0)]
        );
        assert_eq!(error.context, 8704);
        let message = error.to_string();
        for part in [
            "16384 tokens needs 456.0 MiB",
            "is available:",
            "(`context` 8704)",
            "`cache_type_k` q8_0",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
        assert!(shape.check(&request, machine(error.need.total())).is_ok());

        let error =
            shape.check(&request, Available { bytes: 5, limit: Limit::Cgroup }).unwrap_err();
        assert!(error.types.is_empty() && error.context == 0);
        let message = error.to_string();
        assert!(message.contains("limit of the control group"), "{message}");
        assert!(message.contains("No context fits"), "{message}");
    }
}
