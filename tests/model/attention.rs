//! Measured attention, compared with the scores of a plain forward pass.

use std::collections::HashMap;

use rope_cpu::{
    eval::attention::{Error, Measured, Settings, attention},
    kv_cache::CacheType,
    rope::Flags,
};

use crate::model::{
    distances, position,
    session::{How, tokens, with_engine},
};
use rope_cpu_lab::attention::mean;
use rope_cpu_testing::{
    reference::{Frequencies, Rules, scores_by},
    tiny::Tiny,
};

/// More than the windows of most cases.
const TOKENS: usize = 310;

/// Queries and keys are of order 3 in single precision, and rounding grows from layer to layer.
const BOUND: f64 = 2e-3;

/// The scores of the last query, by layer, head and key.
type Scores = HashMap<[usize; 3], f64>;

/// Returns the scores of the last query by the definition.
fn expected(tiny: &Tiny, rules: &Rules<'_>, window: &[f64]) -> Scores {
    let mut scores = HashMap::new();
    scores_by(
        tiny,
        rules,
        window,
        &tokens(tiny, TOKENS),
        &mut |[layer, head, query, key], score| {
            if query == TOKENS - 1 {
                scores.insert([layer, head, key], score);
            }
        },
    );
    scores
}

/// Measures the last query of all layers and heads, with a range for every distance.
fn measured(tiny: &Tiny, how: &How) -> Measured {
    let layers = (0..tiny.layers).filter(|layer| tiny.layer_attends(*layer)).collect();
    let settings = Settings { layers, heads: vec![], queries: 1, bins: TOKENS };
    let tokens = tokens(tiny, TOKENS);
    with_engine(tiny, how, |engine| attention(engine, &tokens, &settings, &mut |_| {}).unwrap())
}

/// Compares scores with the definition, and shares with scores.
fn check(name: &str, tiny: &Tiny, how: &How, expected: &Scores) {
    let measured = measured(tiny, how);
    assert_eq!(measured.positions, [TOKENS - 1]);
    let mut pairs = 0;
    for head in &measured.heads {
        let (layer, index) = (head.layer, head.head);
        let largest = head.bins.iter().max_by(|a, b| a.share.total_cmp(&b.share)).unwrap();
        for bin in &head.bins {
            let key = TOKENS - 1 - bin.distances.start;
            let score = expected.get(&[layer, index, key]);
            assert_eq!((bin.distances.len(), bin.pairs), (1, usize::from(score.is_some())));
            let Some(score) = score else { continue };
            let apart = (bin.score - score).abs();
            assert!(apart < BOUND, "{name}, layer {layer}, head {index}, key {key}: {apart}");
            assert_eq!(bin.highest, bin.score);
            let share = largest.share * (bin.score - largest.score).exp();
            assert!((bin.share - share).abs() < 1e-12);
            pairs += 1;
        }
        let all = head.sink + head.bins.iter().map(|bin| bin.share).sum::<f64>();
        assert!((all - 1.0).abs() < 1e-9, "{name}: {all}");
        assert_eq!(head.sink > 0.0, tiny.architecture.attention.sinks);
        let beyond = head.bins.iter().filter(|bin| bin.distances.start >= tiny.context);
        assert!((head.beyond - beyond.map(|bin| bin.share).sum::<f64>()).abs() < 1e-12);
    }
    assert_eq!(pairs, expected.len(), "{name}");
}

#[test]
fn scores_are_those_of_the_definition_in_every_kind_of_layer() {
    for name in [
        "llama",
        "gemma3",
        "gemma2",
        "gemma4",
        "gpt-oss",
        "smollm3",
        "phi3",
        "qwen35",
        "deepseek2",
        "laguna",
        "olmo2",
    ] {
        let tiny = match name {
            "llama" => Tiny::llama(),
            "gemma3" => Tiny::gemma3(),
            "deepseek2" => Tiny::latent(),
            "phi3" => Tiny { long_rope: None, ..Tiny::named("phi3") },
            name => Tiny::named(name),
        };
        let frequencies = Frequencies::new(&tiny, 1.0);
        let rules = Rules {
            place: &|_, j| Some(j),
            frequencies: &|_| (frequencies.global.clone(), 1.0),
            distance: &|i, j| Some((i - j) as f64),
            query_scale: &|_| 1.0,
        };
        let expected = expected(&tiny, &rules, &frequencies.window);
        check(name, &tiny, &How::default(), &expected);
    }
}

#[test]
fn scores_follow_methods_that_change_distances() {
    for tiny in [Tiny::llama(), Tiny::gemma3(), Tiny::capped()] {
        for case in distances::Case::all() {
            let expected = case.with_rules(&tiny, |rules, window| expected(&tiny, rules, window));
            check("distances", &tiny, &case.how(), &expected);
        }
    }
}

#[test]
fn scores_follow_frequencies_that_depend_on_the_length() {
    for case in position::Case::all() {
        let length = |i| case.effective(i);
        let expected =
            case.with_rules(&length, |rules, window| expected(&case.tiny, rules, window));
        check("position", &case.tiny, &case.how(), &expected);
    }
}

/// Biases that the cache leaves out of keys are part of scores.
#[test]
fn keys_are_not_rounded_by_the_cache() {
    let tiny = Tiny { layers: 1, ..Tiny::named("qwen2") };
    let of = |keys| measured(&tiny, &How { keys, ..How::default() });
    let (exact, rounded) = (of(CacheType::F32), of(CacheType::Q4_0));
    for (a, b) in exact.heads.iter().zip(&rounded.heads) {
        for (a, b) in a.bins.iter().zip(&b.bins) {
            assert!((a.score - b.score).abs() < 1e-4, "{} {}", a.score, b.score);
        }
    }
}

#[test]
fn several_queries_share_ranges_and_any_micro_batch_has_the_same_scores() {
    let tiny = Tiny::llama();
    let of = |queries, micro_batch| {
        let how = How { micro_batch, flags: Flags::default(), ..How::default() };
        let settings = Settings { layers: vec![1], heads: vec![0, 2], queries, bins: 5 };
        let tokens = tokens(&tiny, TOKENS);
        with_engine(&tiny, &how, |engine| {
            attention(engine, &tokens, &settings, &mut |_| {}).unwrap()
        })
    };
    let measured = of(20, 64);
    assert_eq!(measured.positions.len(), 20);
    let heads: Vec<_> = measured.heads.iter().map(|head| (head.layer, head.head)).collect();
    assert_eq!(heads, [(1, 0), (1, 2)]);
    for head in &measured.heads {
        let pairs: usize = head.bins.iter().map(|bin| bin.pairs).sum();
        assert_eq!(pairs, measured.positions.iter().map(|position| position + 1).sum::<usize>());
        assert!((head.bins.iter().map(|bin| bin.share).sum::<f64>() - 1.0).abs() < 1e-9);
    }
    let all = mean(&measured.heads);
    assert_eq!(all.last().unwrap().distances, 248..310);
    assert!((all.iter().map(|bin| bin.share).sum::<f64>() - 1.0).abs() < 1e-9);
    for (a, b) in all.iter().zip(mean(&of(20, 7).heads)) {
        assert!((a.score - b.score).abs() < 1e-4);
    }
}

#[test]
fn layers_and_heads_that_do_not_exist_are_named() {
    let check = |tiny: &Tiny, layers: Vec<usize>, heads| {
        let settings = Settings { layers, heads, queries: 1, bins: 1 };
        let tokens = tokens(tiny, 10);
        with_engine(tiny, &How::default(), |engine| {
            let error = attention(engine, &tokens, &settings, &mut |_| {}).unwrap_err();
            assert!(matches!(
                error,
                Error::Layer { .. } | Error::Head { .. } | Error::Architecture(_)
            ));
            error.to_string()
        })
    };
    let llama = Tiny::llama();
    let layer = check(&llama, vec![9], vec![]);
    assert!(layer.starts_with("layer 9: must be one of the layers that attend: 0, 1"), "{layer}");
    let head = check(&llama, vec![1], vec![99]);
    assert!(head.starts_with("head 99: must be from 0 to "), "{head}");
    let rotated = check(&Tiny::named("hunyuan-dense"), vec![0], vec![]);
    assert!(rotated.contains("scores of hunyuan-dense models cannot be measured"), "{rotated}");
}
