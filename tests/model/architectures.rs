//! Every architecture, compared with its definition, with llama.cpp, and with itself without each
//! of its features.

use std::collections::HashMap;

use rope_cpu::{gguf::Gguf, json, model::Config};

use crate::{
    build::{ARRAY, BOOL, F32, array},
    reference::{Frequencies, Rules, forward, forward_by},
    session::{How, difference, logits, tokens, with_file, with_session},
    tiny::Tiny,
};

/// The bound of `meaning`: logits of order 1 and some 10 products of about 100 terms in single
/// precision.
const BOUND: f32 = 1e-4;

/// llama.cpp rounds as often as rope-cpu. Its GELU comes from a table of 16-bit floats, which are
/// off by 2^-11 of a value (5e-4); sums of 104 such terms with random signs, in each of four layers
/// whose results are normed to order 1, are off by as much.
const GELU_BOUND: f32 = 4.0 * 5e-4;

const TOKENS: usize = 60;

fn found(tiny: &Tiny) -> Vec<Vec<f32>> {
    with_session(tiny, &How::default(), |session| logits(session, &tokens(tiny, TOKENS)))
}

fn expected(tiny: &Tiny) -> Vec<Vec<f32>> {
    let rope = match tiny.long_rope {
        Some(original) if original < TOKENS => Frequencies::long(tiny),
        _ => Frequencies::new(tiny, 1.0),
    };
    forward(tiny, &rope, &tokens(tiny, TOKENS))
}

#[test]
fn all_compute_what_their_definition_says() {
    // llama.cpp ignores the window of phi3, which all its layers have.
    let phi3 = Tiny { window: Some((10, 1 << 20)), ..Tiny::named("phi3") };
    for (name, tiny) in Tiny::all().into_iter().chain([("phi3 with a window", phi3)]) {
        let error = difference(&expected(&tiny), &found(&tiny));
        assert!(error < BOUND, "{name}: {error}");
    }
}

/// `scripts/make-architecture-golden` writes the same models, and the logits of llama.cpp.
#[test]
fn all_compute_what_llama_cpp_does() {
    const SHOWN: [usize; 6] = [0, 1, 9, 10, 31, 59];
    let golden: HashMap<String, Vec<Vec<f32>>> =
        json::parse(include_str!("../data/architectures.json")).unwrap();
    assert_eq!(golden.len(), Tiny::all().len());
    for (name, tiny) in Tiny::all() {
        let all = found(&tiny);
        let error = difference(&golden[name], &SHOWN.map(|i| all[i].clone()));
        let bound = if tiny.is_gemma() { GELU_BOUND } else { 2.0 * BOUND };
        assert!(error < bound, "{name}: {error}");
    }
}

/// Layers may have feed-forward networks of their own widths.
#[test]
fn an_array_has_a_width_for_each_layer() {
    for name in ["llama", "phi3", "gemma2"] {
        let tiny = Tiny { narrower: 24, ..Tiny::named(name) };
        let error = difference(&expected(&tiny), &found(&tiny));
        assert!(error < BOUND, "{name}: {error}");
    }
    let tiny = Tiny { narrower: 32, ..Tiny::named("llama").in_blocks() };
    let error = apart(&expected(&tiny), &found(&tiny));
    assert!(error < ROUNDING, "in blocks: {error}");
}

/// The layers with a window may be listed instead of following a period.
#[test]
fn an_array_has_a_window_for_each_layer() {
    let tiny = Tiny::named("gemma2");
    let with_windows = |layers: [u8; 4]| {
        let mut b = tiny.builder();
        b.keys.retain(|entry| !entry.windows(8).any(|part| part == b"_pattern"));
        let pattern = array(BOOL, 4, layers.map(|has| [has]));
        let b = b.key("gemma2.attention.sliding_window_pattern", ARRAY, pattern);
        with_file(&b, &[], &How::default(), |session| logits(session, &tokens(&tiny, TOKENS)))
    };
    assert!(with_windows([1, 0, 1, 0]) == found(&tiny));
    let apart = difference(&with_windows([0, 1, 1, 0]), &found(&tiny));
    assert!(apart > 10.0 * GELU_BOUND, "{apart}");
}

#[test]
fn experts_in_tensors_of_their_own_are_the_same() {
    let together = Tiny::named("llama-experts");
    let apart = Tiny { experts_apart: true, ..together.clone() };
    assert!(found(&together) == found(&apart));
}

#[test]
fn scales_beside_weights_multiply_them() {
    for (name, tiny) in Tiny::all() {
        let scales = Tiny { scales: true, ..tiny.clone() };
        // The scales are powers of two, which do not round.
        assert!(found(&tiny) == found(&scales), "{name}");
    }
}

/// The largest model of each family divides scores by the square root of `embedding / heads`.
#[test]
fn the_largest_gemma_divides_scores_by_another_length() {
    let scale = |tiny: Tiny| {
        let bytes = tiny.builder().bytes();
        Config::from_metadata(&Gguf::parse(&bytes, &[]).unwrap()).unwrap().attention_scale
    };
    let gemma2 = Tiny { head_dim: 16, ..Tiny::named("gemma2") };
    for (tiny, largest) in [(gemma2, 46), (Tiny::gemma3(), 62)] {
        let of = |layers| scale(Tiny { layers, ..tiny.clone() });
        let [by_embedding, by_head] =
            [tiny.embedding / tiny.heads, tiny.head_dim].map(|n| 1.0 / (n as f32).sqrt());
        assert_ne!(by_embedding, by_head);
        assert_eq!(of(largest), by_embedding, "{}", tiny.architecture);
        for layers in [1, 46, 62].into_iter().filter(|layers| *layers != largest) {
            assert_eq!(of(layers), by_head, "{}, {layers} layers", tiny.architecture);
        }
    }
}

/// The factor of cosines and sines is in the file, or else it is sqrt(1 + ln s / ln L).
#[test]
fn long_rope_scales_what_it_rotates() {
    let tiny = Tiny::named("phi3");
    let original = tiny.long_rope.unwrap();
    let s = tiny.context as f64 / original as f64;
    let computed = (1.0 + s.ln() / (original as f64).ln()).sqrt();
    assert!(computed > 1.2);
    let key = b"rope.scaling.attn_factor";
    let silent = || {
        let mut b = tiny.builder();
        b.keys.retain(|entry| !entry.windows(key.len()).any(|part| part == key));
        b
    };
    let given = silent().key("phi3.rope.scaling.attn_factor", F32, 0.75f32.to_le_bytes());
    let tokens = tokens(&tiny, TOKENS);
    let rope = Frequencies::long(&tiny);
    let by = |scale: f64| {
        let rules = Rules {
            place: &|_, j| Some(j),
            frequencies: &|_| (rope.global.clone(), scale),
            distance: &|i, j| Some((i - j) as f64),
            query_scale: &|_| 1.0,
        };
        forward_by(&tiny, &rules, &rope.window, &tokens)
    };
    for (file, scale) in [(silent(), computed), (given, 0.75)] {
        let found = with_file(&file, &[], &How::default(), |session| logits(session, &tokens));
        let error = difference(&by(scale), &found);
        assert!(error < BOUND, "{scale}: {error}");
        assert!(difference(&by(1.0), &found) > 100.0 * BOUND, "{scale} has no effect");
    }
}

/// Returns the mean difference, as a fraction of the mean absolute logit.
pub fn apart(expected: &[Vec<f32>], found: &[Vec<f32>]) -> f32 {
    let both = expected.iter().flatten().zip(found.iter().flatten());
    let (apart, all) = both.fold((0.0, 0.0), |(a, s), (e, f)| (a + (e - f).abs(), s + e.abs()));
    apart / all
}

/// The largest permitted value of [`apart`]: quantizing activations to 8 bits has an error of 0.5 %
/// of a group (its largest value, which is some 2.2 times the usual one, over 127 and the root of
/// 12) in each of about ten consecutive products, and peaked attention multiplies that by up to 3.
pub const ROUNDING: f32 = 0.05;

/// Returns [`ROUNDING`], or four times that for the five layers of SmolLM3, of which each but two
/// multiplies the error by about 1.5.
pub fn rounding(tiny: &Tiny) -> f32 {
    if tiny.layers > 4 { 4.0 * ROUNDING } else { ROUNDING }
}

/// Quantized weights are multiplied with quantized activations, including those of several experts,
/// in tensors of three dimensions, and those of fused tensors.
#[test]
fn weights_in_blocks_give_nearly_what_their_values_do() {
    for (name, tiny) in Tiny::all() {
        let tiny = tiny.in_blocks();
        let expected = expected(&tiny);
        for &micro_batch in How::micro_batches(&tiny) {
            let how = How { micro_batch, ..How::default() };
            let found = with_session(&tiny, &how, |s| how.read(s, &tokens(&tiny, TOKENS)));
            let error = apart(&expected, &found);
            assert!(error < rounding(&tiny), "{name}, {micro_batch}: {error}");
        }
    }
    for (name, used) in [("llama-experts", (5, 1)), ("qwen3moe", (7, 2))] {
        let tiny = Tiny::named(name).in_blocks();
        let other = Tiny { experts: Some(used), ..tiny.clone() };
        let error = apart(&expected(&tiny), &found(&other));
        assert!(error > 2.0 * ROUNDING, "{name} with fewer experts: {error}");
    }
}

/// The first files of Gemma 2 do not have the keys of its soft caps.
#[test]
fn gemma_2_has_limits_where_its_file_is_silent() {
    let mut b = Tiny::named("gemma2").builder();
    b.keys.retain(|key| !key.windows(11).any(|part| part == b"softcapping"));
    let bytes = b.bytes();
    let gguf = Gguf::parse(&bytes, &[]).unwrap();
    let config = Config::from_metadata(&gguf).unwrap();
    assert_eq!((config.attention_soft_cap, config.logit_soft_cap), (Some(50.0), Some(30.0)));
}

/// The bounds are small enough to detect each feature: a definition without it exceeds them.
#[test]
fn every_feature_matters() {
    let without = |name: &str, what: &str, change: &dyn Fn(&mut Tiny)| {
        let tiny = Tiny::named(name);
        let mut other = tiny.clone();
        change(&mut other);
        let apart = difference(&found(&tiny), &expected(&other));
        assert!(apart > 10.0 * GELU_BOUND, "{name} without {what}: {apart}");
    };
    without("llama", "its biases", &|t| t.biases = &[]);
    without("llama", "the bias of queries", &|t| t.biases = &t.biases[1..]);
    without("llama", "tied embeddings", &|t| t.tied = false);
    without("llama", "pairs side by side", &|t| t.architecture = "qwen2");
    without("llama-experts", "a second expert", &|t| t.experts = Some((5, 1)));
    without("smollm3", "a layer that does not rotate", &|t| t.unrotated = None);
    without("smollm3", "this layer that does not rotate", &|t| t.unrotated = Some(3));
    without("qwen2", "its biases", &|t| t.biases = &[]);
    without("qwen2", "pairs half a head apart", &|t| t.architecture = "llama");
    without("qwen3", "the norms of its heads", &|t| t.head_norms = false);
    without("qwen3moe", "the norms of its heads", &|t| t.head_norms = false);
    without("qwen3moe", "a third expert", &|t| t.experts = Some((7, 2)));
    without("phi3", "a part of a head that does not rotate", &|t| t.n_rot = 12);
    let phi3 = Tiny { window: Some((10, 1 << 20)), ..Tiny::named("phi3") };
    let whole = Tiny { window: None, ..phi3.clone() };
    assert!(difference(&found(&phi3), &expected(&whole)) > 10.0 * GELU_BOUND, "phi3's window");
    without("phi3", "LongRoPE's divisors", &|t| t.long_rope = None);
    without("gemma2", "its window", &|t| t.window = None);
    without("gemma2", "this window", &|t| t.window = Some((11, 2)));
    without("gemma2", "layers that have none", &|t| t.window = Some((10, 1 << 20)));
    without("gemma2", "the limit of scores", &|t| t.soft_caps = Some((100.0, 3.0)));
    without("gemma2", "the limit of logits", &|t| t.soft_caps = Some((1.5, 100.0)));
    without("gemma2", "the scale of embeddings", &|t| t.scaled = false);
    without("gemma2", "norms after attention and network", &|t| t.post_norms = false);
}
