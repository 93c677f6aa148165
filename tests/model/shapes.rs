//! Attention of random shapes, windows, sinks and cache types, compared with a plain softmax in double
//! precision.

use proptest::{prelude::*, test_runner::RngSeed};
use rope_cpu::kv_cache::CacheType;

use crate::model::{
    cache_types::step,
    session::{How, difference, mean_difference, tokens, with_session},
};
use rope_cpu_testing::{
    reference::{Frequencies, forward},
    tiny::Tiny,
};

/// The bound of `consistency`.
const BOUND: f32 = 2e-4;

/// The bound for models with sinks, which also have experts: these multiply the differences that attention
/// leaves. A softmax without its sink is off by more than 2e-2 (`features`).
const EXPERTS_BOUND: f32 = 1e-3;

/// Returns a model without a window, with a limit of logits, with a limit of scores, or with sinks.
fn family(index: usize) -> Tiny {
    match index {
        0 => Tiny::llama(),
        1 => Tiny::gemma3(),
        2 => Tiny::capped(),
        _ => Tiny::named("gpt-oss"),
    }
}

proptest! {
    // The same cases in each run: bounds of quantized caches hold for random values, not for all.
    #![proptest_config(ProptestConfig {
        cases: 40, rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn attention_is_a_softmax(
        index in 0..4usize,
        layers in 1..4usize,
        kv_heads in 1..4usize,
        group in 1..5usize,
        half_dim in 2..41usize,
        window in prop::option::of((1..300usize, 1..4usize)),
        count in 1..330usize,
        micro_batch in prop::sample::select(vec![1, 7, 64]),
        keys in prop::sample::select(CacheType::ALL.to_vec()),
        values in prop::sample::select(CacheType::ALL.to_vec()),
    ) {
        let (heads, head_dim) = (kv_heads * group, 2 * half_dim);
        let window = window.filter(|_| index > 0);
        let shape = Tiny { layers, kv_heads, heads, head_dim, ..family(index) };
        let tiny = Tiny { n_rot: head_dim, window, ..shape };
        let tokens = tokens(&tiny, count);
        let expected = forward(&tiny, &Frequencies::new(&tiny, 1.0), &tokens);
        let read = |keys, values| {
            let how = How { micro_batch, keys, values, context: 512, ..How::default() };
            with_session(&tiny, &how, |session| how.read(session, &tokens))
        };
        let what = format!(
            "{}: {} layers, {} of {} heads, {} dimensions, window {:?}, {count} tokens",
            tiny.architecture.name, tiny.layers, tiny.kv_heads, tiny.heads, tiny.head_dim, tiny.window
        );
        let apart = difference(&expected, &read(CacheType::F32, CacheType::F32));
        let exact = if index < 3 { BOUND } else { EXPERTS_BOUND };
        prop_assert!(apart < exact, "{what}: {apart}");
        // The bound of `distances`, for keys and for values.
        let mean = mean_difference(&expected, &read(keys, values));
        let bound = 8.0 * (step(keys) + step(values)) + f64::from(exact);
        prop_assert!(mean <= bound, "{what}, {} {}: {mean} > {bound}", keys.name(), values.name());
    }
}
