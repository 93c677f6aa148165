//! What cache types cost, and what they cost for keys with a bias.

use rope_cpu::{
    kv_cache::CacheType,
    rope::{ATTENTION_SINKS, Flags, SCALE, dca, rerope, self_extend},
};

use crate::model::session::{How, mean_difference, tokens, with_session};
use rope_cpu_testing::tiny::Tiny;

const QUANTIZED: [CacheType; 3] = [CacheType::Q8_0, CacheType::Q5_0, CacheType::Q4_0];
const FEW_BITS: [CacheType; 2] = [CacheType::Q5_0, CacheType::Q4_0];

/// Returns the largest step of a cache type between values of magnitude 1.
pub fn step(dtype: CacheType) -> f64 {
    match dtype {
        CacheType::F32 => 0.0,
        CacheType::F16 => 1.0 / 2048.0,
        CacheType::Bf16 => 1.0 / 256.0,
        CacheType::Q8_0 => 1.0 / 127.0,
        CacheType::Q5_0 => 1.0 / 16.0,
        CacheType::Q4_0 => 1.0 / 8.0,
    }
}

/// Returns the mean difference that keys of type `keys` make to the logits of `count` tokens.
fn cost(tiny: &Tiny, keys: CacheType, how: &How, count: usize) -> f64 {
    let run = |keys| {
        let how = How { keys, flags: how.flags.clone(), ..*how };
        with_session(tiny, &how, |session| how.read(session, &tokens(tiny, count)))
    };
    mean_difference(&run(keys), &run(CacheType::F32))
}

/// A large bias makes attention depend less on what distinguishes keys, so rounding that costs half as
/// much. If keys were rounded with their bias, a step of 4 bits would be 12, and one of 8 bits 0.8.
fn assert_that_a_large_bias_costs_nothing(
    types: &[CacheType],
    tiny: &Tiny,
    how: &How,
    count: usize,
) {
    for &keys in types {
        let cost = |key_bias| cost(&Tiny { key_bias, ..tiny.clone() }, keys, how, count);
        let [small, medium, large] = [0.3, 4.0, 100.0].map(cost);
        let what = format!("{} {keys:?} {}", tiny.head_dim, how.micro_batch);
        let costs = format!("{what}: {small} {medium} {large}");
        assert!(medium < 1.25 * small && large < 0.65 * small, "{costs}");
    }
}

#[test]
fn a_large_bias_of_keys_costs_no_more_than_a_small_one() {
    let yarn = Flags::method("yarn").with(&SCALE, 2.0);
    let rerope = Flags::method("rerope").with(&rerope::WINDOW, 40);
    let extend =
        Flags::method("self-extend").with(&self_extend::GROUP, 4).with(&self_extend::WINDOW, 32);
    let sinks = Flags::default().with(&ATTENTION_SINKS, 4);
    let dca = Flags::method("dca").with(&dca::CHUNK_SIZE, 50).with(&dca::LOCAL_SIZE, 9);
    let models = [
        (Tiny::named("qwen2"), vec![Flags::default(), sinks, extend, dca]),
        (
            Tiny { head_dim: 64, n_rot: 32, ..Tiny::named("llama") },
            vec![Flags::default(), yarn, rerope],
        ),
    ];
    for (tiny, all) in models {
        for flags in all {
            for micro_batch in [64, 1] {
                let how = How { flags: flags.clone(), micro_batch, ..How::default() };
                assert_that_a_large_bias_costs_nothing(&QUANTIZED, &tiny, &how, 150);
            }
        }
    }
}

/// Attention to the first pages is computed in 8 bits, which costs as much as a q8_0 cache does.
#[test]
fn a_large_bias_of_far_keys_costs_no_more_than_a_small_one() {
    let tiny = Tiny { head_dim: 32, n_rot: 32, ..Tiny::named("qwen2") };
    assert_that_a_large_bias_costs_nothing(&FEW_BITS, &tiny, &How::default(), 1200);
}
