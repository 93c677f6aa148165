//! Every architecture, compared with its definition and with llama.cpp.

use std::{collections::HashMap, env, fs, ops::Range, path::PathBuf, sync::LazyLock};

use rope_cpu::{
    json,
    model::{Architecture, Feed, Output, Role, architecture::Inner},
    rope::{Layers, Table},
};
use rope_cpu_kernels::{DType, vector::Activation};

use crate::model::session::{
    How, difference, load, logits, tokens, with_engine, with_model, with_session,
};
use rope_cpu_testing::{
    builder::{STRING, U32, string},
    on_every_family,
    reference::{Frequencies, Rules, forward, forward_by},
    tiny::{Tiny, files::add_tensor},
};

/// The bound of `meaning`: logits of order 1 and some 10 products of about 100 terms in single
/// precision.
pub const BOUND: f32 = 1e-4;

/// llama.cpp rounds as often as rope-cpu. Its GELU comes from a table of 16-bit floats, which are
/// off by 2^-11 of a value (5e-4); sums of 104 such terms with random signs are off by as much, in
/// each of four layers with results normed to order 1. More networks add up.
pub const GELU_BOUND: f32 = 4.0 * 5e-4;

/// The number of tokens that are computed, here and in `adapters`.
pub const TOKENS: usize = 60;

pub fn found(tiny: &Tiny) -> Vec<Vec<f32>> {
    let how = How { threads: 2, ..How::default() };
    with_session(tiny, &how, |session| logits(session, &tokens(tiny, TOKENS)))
}

/// Returns the logits of [`TOKENS`] tokens by the definition.
pub fn expected(tiny: &Tiny) -> Vec<Vec<f32>> {
    if let Some((slope, original)) = tiny.temperature {
        // Frequencies are tested in tests/rope.
        let table = with_model(&tiny.builder(), &[], &How::default(), |_, rope, _| {
            Table::new(rope.plan(), Layers::Global, TOKENS)
        });
        let slope = f64::from(slope);
        let rules = Rules {
            place: &|_, j| Some(j),
            frequencies: &|_| (table.inv_freq.clone(), table.scale),
            distance: &|i, j| Some((i - j) as f64),
            query_scale: &|i| 1.0 + slope * (1.0 + (i / original) as f64).ln(),
        };
        return forward_by(tiny, &rules, &table.inv_freq, &tokens(tiny, TOKENS));
    }
    if tiny.score_weight != 0.0 {
        // m(s)^2 multiplies scores; cosines and sines are multiplied by m(s) / m(s).
        let table = with_model(&tiny.builder(), &[], &How::default(), |_, rope, _| {
            Table::new(rope.plan(), Layers::Global, TOKENS)
        });
        let m = 1.0 + 0.1 * f64::from(tiny.score_weight) * 4f64.ln();
        let m = if tiny.without == "the factor of scores" { 1.0 } else { m };
        let rules = Rules {
            place: &|_, j| Some(j),
            frequencies: &|_| (table.inv_freq.clone(), 1.0),
            distance: &|i, j| Some((i - j) as f64),
            query_scale: &|_| m * m,
        };
        return forward_by(tiny, &rules, &table.inv_freq, &tokens(tiny, TOKENS));
    }
    let rope = match tiny.long_rope {
        Some(original) if original < TOKENS => Frequencies::long(tiny),
        _ => Frequencies::new(tiny, 1.0),
    };
    forward(tiny, &rope, &tokens(tiny, TOKENS))
}

on_every_family!(
    computes_what_its_definition_says,
    outputs_do_not_depend_on_which_tokens_have_one,
    computes_what_llama_cpp_does,
    scales_beside_weights_multiply_them,
    weights_in_blocks_give_nearly_what_their_values_do,
);

#[test]
fn every_family_has_a_test() {
    let names: Vec<_> = Tiny::all().iter().map(|(name, _)| Tiny::test_name(name)).collect();
    assert_eq!(names, on_every_family!(@names));
}

pub fn computes_what_its_definition_says(name: &str, tiny: Tiny) {
    let error = difference(&expected(&tiny), &found(&tiny));
    assert!(error < BOUND, "{name}: {error}");
}

/// The last network is computed only for tokens with an output, and steps without an output end with the
/// last keys and values.
fn outputs_do_not_depend_on_which_tokens_have_one(name: &str, tiny: Tiny) {
    let (all, how) = (tokens(&tiny, 120), How::default());
    let read = |wanted: [Range<usize>; 2]| {
        with_engine(&tiny, &how, |engine| {
            let (mut one, mut two) = (engine.sequence(), engine.sequence());
            let mut parts = [&all[..111], &all[111..]];
            let mut found = HashMap::new();
            while parts.iter().any(|tokens| !tokens.is_empty()) {
                let role = [Role::Prompt, Role::Answer];
                let [a, b] = [0, 1].map(|i| (parts[i], role[i], wanted[i].clone()));
                let feed = |sequence, (tokens, role, wanted)| Feed {
                    sequence,
                    tokens,
                    role,
                    wanted,
                    output: Output::Logits,
                };
                let mut feeds = [feed(&mut one, a), feed(&mut two, b)];
                let each = &mut |feed: usize, token: usize, logits: &[f32]| {
                    found.insert((feed, token), logits.to_vec());
                };
                engine.step(&mut feeds, each).unwrap();
                parts = feeds.map(|feed| feed.tokens);
            }
            found
        })
    };
    let expected = read([0..usize::MAX, 0..usize::MAX]);
    assert_eq!(expected.len(), all.len(), "{name}");
    for wanted in [[110..111, 8..9], [3..7, 0..9], [0..0, 2..4], [90..111, 0..0]] {
        let found = read(wanted.clone());
        assert_eq!(found.len(), wanted[0].len() + wanted[1].len(), "{name}, {wanted:?}");
        let same = |(token, logits): (&(usize, usize), &Vec<f32>)| expected[token] == *logits;
        assert!(found.iter().all(same), "{name}, {wanted:?}");
    }
}

/// Writes all models, and their adapters, to the folder `TINY_MODELS`, for
/// `scripts/make-architecture-golden`.
#[test]
#[ignore = "writes files for scripts/make-architecture-golden"]
fn write_models() {
    let folder = PathBuf::from(env::var_os("TINY_MODELS").unwrap());
    let plus = ("command-r-plus", Tiny::command_r_plus());
    for (name, tiny) in Tiny::all().into_iter().chain(Tiny::encoders()).chain([plus]) {
        let file = |tiny: &Tiny| {
            let vocabulary = (tiny.vocabulary as u32).to_le_bytes();
            let file = tiny.builder().key("tokenizer.ggml.model", STRING, string("none"));
            file.key(format!("{}.vocab_size", tiny.architecture.name), U32, vocabulary).bytes()
        };
        fs::write(folder.join(format!("{name}.gguf")), file(&tiny)).unwrap();
        if tiny.architecture.name == "gemma4" {
            fs::write(folder.join(format!("{name}.assistant")), file(&tiny.assistant())).unwrap();
        }
        fs::write(folder.join(format!("{name}.lora")), tiny.adapter().bytes()).unwrap();
    }
}

/// The tokens with golden logits.
pub const SHOWN: [usize; 6] = [0, 1, 9, 10, 31, 59];

/// The logits of llama.cpp for each model, from `scripts/make-architecture-golden`.
pub static GOLDEN: LazyLock<HashMap<String, Vec<Vec<f32>>>> =
    LazyLock::new(|| json::parse(include_str!("../data/architectures.json")).unwrap());

/// The definition has the properties of a family from the same row as the library: only llama.cpp finds
/// a row that is wrong.
#[test]
fn every_family_is_compared_with_llama_cpp() {
    let missing = |family: &&Architecture| !GOLDEN.contains_key(family.name);
    let others: Vec<_> = Architecture::ALL.iter().filter(missing).map(|one| one.name).collect();
    // Their text is that of qwen2: see `families`.
    assert_eq!(others, ["qwen2vl", "qwen25vl"]);
}

fn computes_what_llama_cpp_does(name: &str, tiny: Tiny) {
    let Some(golden) = GOLDEN.get(name) else {
        return assert_eq!(name, "qwen2vl", "no golden logits");
    };
    let all = found(&tiny);
    let error = difference(golden, &SHOWN.map(|i| all[i].clone()));
    let networks = tiny.layers * (1 + usize::from(tiny.layer_input > 0));
    let bound = match tiny.architecture.network.inner {
        Inner::Gated(Activation::GeluTanh) | Inner::Alone(Activation::GeluTanh) => {
            GELU_BOUND.max(networks as f32 / 4.0 * GELU_BOUND)
        }
        _ => 2.0 * BOUND,
    };
    assert!(error < bound, "{name}: {error}");
}

/// A tensor that a family must have is named if the file lacks it.
#[test]
fn missing_tensors_are_named() {
    for (name, tensor) in [
        ("glm4moe", "blk.1.attn_k_norm.weight"),
        ("glm4moe", "blk.2.ffn_gate_shexp.weight"),
        ("cohere2moe", "blk.1.ffn_up_exps.weight"),
        ("muse-glimmer", "blk.2.attn_gate.weight"),
        ("muse-glimmer", "blk.4.post_ffw_norm.weight"),
    ] {
        let mut b = Tiny::named(name).builder();
        b.tensors.retain(|one| !one.windows(tensor.len()).any(|part| part == tensor.as_bytes()));
        let error = load(&b, &[]).err().unwrap().to_string();
        assert!(error.contains(tensor), "{name}: {error}");
    }
    let extra = add_tensor(
        Tiny::named("glm4moe-air").builder(),
        "blk.1.attn_k_norm.weight",
        &[20],
        &[1.0; 20],
    );
    let error = load(&extra, &[]).err().unwrap().to_string();
    assert!(error.contains("blk.1.attn_k_norm.weight"), "{error}");
}

#[test]
fn experts_in_tensors_of_their_own_are_the_same() {
    let together = Tiny::named("llama-experts");
    let apart = Tiny { experts_apart: true, ..together.clone() };
    assert!(found(&together) == found(&apart));
}

fn scales_beside_weights_multiply_them(name: &str, tiny: Tiny) {
    let scales = Tiny { scales: true, ..tiny.clone() };
    // The scales are powers of two, which do not round.
    assert!(found(&tiny) == found(&scales), "{name}");
}

/// Returns the mean difference, as a fraction of the mean absolute logit.
pub fn apart(expected: &[Vec<f32>], found: &[Vec<f32>]) -> f32 {
    let both = expected.iter().flatten().zip(found.iter().flatten());
    let (apart, all) = both.fold((0.0, 0.0), |(a, s), (e, f)| (a + (e - f).abs(), s + e.abs()));
    apart / all
}

/// The largest allowed value of [`apart`]. Quantizing activations to 8 bits has an error of 0.5 %
/// of a group: its largest value, some 2.2 times the usual one, over 127 and the root of 12. There
/// are about ten consecutive products, and peaked attention multiplies the error by up to 3.
pub const ROUNDING: f32 = 0.05;

/// Returns [`ROUNDING`], or four times that for four layers or more with outputs that are not
/// normalized, each of which multiplies the error by about 1.5; for gpt-oss, which multiplies by
/// `up + 1`, so that its network is larger beside what it is added to; for a network beside the
/// experts, which adds as much; and for the temperature of Ministral 3, which multiplies scores by
/// up to 1.7. Twice that for latents: attention to them has seven products in a row in place of four.
pub fn rounding(tiny: &Tiny) -> f32 {
    let norms = tiny.architecture.norms;
    let deep = tiny.layers > 3 && (norms.attention.after.is_none() || norms.of_sums);
    let large = tiny.architecture.network.inner == Inner::Gated(Activation::ClampedSilu)
        || tiny.temperature.is_some();
    let factor = if deep || large || tiny.shared > 0 { 4.0 } else { 1.0 };
    ROUNDING * factor * if tiny.latent.is_some() { 2.0 } else { 1.0 }
}

/// Quantized weights are multiplied with quantized activations, also in fused tensors, and in
/// tensors of three dimensions for several experts.
fn weights_in_blocks_give_nearly_what_their_values_do(name: &str, tiny: Tiny) {
    let tiny = tiny.in_blocks();
    let expected = expected(&tiny);
    for &micro_batch in How::micro_batches(&tiny) {
        let how = How { micro_batch, ..How::default() };
        let found = with_session(&tiny, &how, |s| how.read(s, &tokens(&tiny, TOKENS)));
        let error = apart(&expected, &found);
        assert!(error < rounding(&tiny), "{name}, {micro_batch}: {error}");
    }
}

/// The bound of weights in blocks is small enough to detect an expert that is not used.
#[test]
fn weights_in_blocks_show_each_expert() {
    for (name, used) in [("llama-experts", (5, 1)), ("qwen3moe", (7, 2))] {
        let tiny = Tiny::named(name).in_blocks();
        let other = Tiny { experts: Some(used), ..tiny.clone() };
        let error = apart(&expected(&tiny), &found(&other));
        assert!(error > 2.0 * ROUNDING, "{name} with fewer experts: {error}");
    }
}

/// The Bonsai models are Qwen3 models in these formats.
#[test]
fn qwen3_runs_in_one_bit_and_in_two() {
    for dtype in [DType::Q1_0, DType::Q2_0] {
        let tiny = Tiny {
            embedding: 128,
            feed_forward: 384,
            heads: 4,
            head_dim: 32,
            n_rot: 32,
            quantized: Some(dtype),
            ..Tiny::named("qwen3")
        };
        let (expected, found) = (expected(&tiny), found(&tiny));
        let error = apart(&expected, &found);
        assert!(error < ROUNDING, "{}: {error}", dtype.name());
    }
}
