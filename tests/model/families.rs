//! Keys, arrays and sizes in a file that change how a model of a family is computed.

use rope_cpu::{
    gguf::Gguf,
    kv_cache::CacheType,
    model::{
        Config, Gating, Rotation, Session,
        architecture::{NormKind, Unrotated},
    },
    rope::{Flags, Sourced},
};

use crate::model::{
    architectures::{
        BOUND, GELU_BOUND, GOLDEN, ROUNDING, SHOWN, TOKENS, apart,
        computes_what_its_definition_says, expected, found,
    },
    session::{How, difference, load, logits, mean_difference, tokens, with_file, with_session},
};
use rope_cpu_testing::{
    builder::{ARRAY, BOOL, F32, STRING, U32, array, string},
    reference::{Frequencies, Rules, forward, forward_by},
    tiny::{Tiny, family},
};

/// llama.cpp ignores the window of phi3, which all its layers have.
#[test]
fn phi3_with_a_window_computes_what_its_definition_says() {
    let phi3 = Tiny { window: Some((10, 1 << 20)), ..Tiny::named("phi3") };
    computes_what_its_definition_says("phi3 with a window", phi3);
}

/// Models with vision compute text as the models without. llama.cpp (b11434) does not read the
/// epsilon of qwen2vl files, so its logits of tiny activations are off by as much as 2e-3.
#[test]
fn text_does_not_know_of_vision() {
    assert!(found(&Tiny::named("qwen2vl")) == found(&Tiny::named("qwen2")));
    // ollama names the sections otherwise, and leaves out the length of heads.
    let ollama = Tiny { architecture: family("qwen25vl"), ..Tiny::named("qwen2") };
    let sections = array(U32, 3, [1u32, 1, 4].map(u32::to_le_bytes));
    let mut b = ollama.builder().key("qwen25vl.rope.mrope_section", ARRAY, sections);
    let left_out = ["rope.dimension_count", "key_length", "value_length"];
    let has = |key: &[u8], name: &str| key.windows(name.len()).any(|part| part == name.as_bytes());
    b.keys.retain(|key| !left_out.iter().any(|name| has(key, name)));
    let run = |session: &mut Session| logits(session, &tokens(&ollama, TOKENS));
    assert!(with_file(&b, &[], &How::default(), run) == found(&Tiny::named("qwen2")));
    let parts = Tiny::named("qwen3vl");
    let qwen3 = Tiny { architecture: family("qwen3"), sections: None, ..parts.clone() };
    assert!(found(&parts) == found(&qwen3));
}

/// Converters reorder queries and keys of GLM 4 with vision: llama.cpp pairs halves if the file has
/// sections of the first two kinds.
#[test]
fn glm_4_pairs_halves_if_its_file_has_sections() {
    let plain = Tiny::named("glm4");
    let [first, second] = [[0, 3, 0, 0], [3, 0, 0, 0]].map(|sections| {
        let tiny = Tiny { sections: Some(sections), ..plain.clone() };
        found(&tiny)
    });
    assert!(first == found(&plain) && second == found(&plain));
    let halves = Tiny { sections: Some([1, 2, 0, 0]), ..plain.clone() };
    let error = difference(&expected(&halves), &found(&halves));
    assert!(error < BOUND, "{error}");
    // Pairs of other families do not depend on sections.
    let llama = Tiny::named("llama");
    let sections = array(U32, 4, [1u32, 2, 3, 0].map(u32::to_le_bytes));
    let file = llama.builder().key("llama.rope.dimension_sections", ARRAY, sections);
    let run = |session: &mut Session| logits(session, &tokens(&llama, TOKENS));
    assert!(with_file(&file, &[], &How { threads: 2, ..How::default() }, run) == found(&llama));
}

/// llama.cpp uses the divisors of Phi 3 whatever the scaling in the file, which applies to them.
#[test]
fn divisors_of_phi_3_act_whatever_the_scaling_in_the_file() {
    let tiny = Tiny::named("phi3");
    let with = |scaling: &str, factor: f32| {
        let b = tiny.builder().key("phi3.rope.scaling.type", STRING, string(scaling));
        let b = b.key("phi3.rope.scaling.factor", F32, factor.to_le_bytes());
        let model = load(&b, &[]).unwrap();
        let plan = model.rope_plan(&Flags::default(), Sourced::given(TOKENS, "--ctx")).unwrap();
        let ignored = plan.warnings.iter().find(|warning| warning.contains("ignored"));
        assert_eq!(ignored, None, "{scaling}");
        let how = How { threads: 2, ..How::default() };
        with_file(&b, &[], &how, |session| logits(session, &tokens(&tiny, TOKENS)))
    };
    for scaling in ["linear", "none", "longrope"] {
        assert!(with(scaling, 0.0) == found(&tiny), "{scaling}");
    }
    let divided = |factor: f64| {
        let all = Frequencies::long(&tiny).global.into_iter().map(|one| one / factor);
        let all: Vec<f64> = all.collect();
        forward(&tiny, &Frequencies { window: all.clone(), global: all }, &tokens(&tiny, TOKENS))
    };
    let found = with("linear", 2.0);
    let error = difference(&divided(2.0), &found);
    assert!(error < BOUND, "{error}");
    assert!(difference(&divided(1.0), &found) > 100.0 * BOUND);
}

/// DeepSeek's files may set the length of the temperature of queries.
#[test]
fn the_length_of_a_temperature_may_be_in_the_file() {
    let scale = |name: &str, length: u32, position: usize| {
        let tiny = Tiny { temperature: None, ..Tiny::named(name) };
        let key = format!("{name}.attention.temperature");
        let b = tiny.builder().key(format!("{key}_scale"), F32, 0.5f32.to_le_bytes());
        let b = b.key(format!("{key}_length"), U32, length.to_le_bytes());
        let context = Sourced::given(tiny.context, "--ctx");
        let model = load(&b, &[]).unwrap();
        model.rope_plan(&Flags::default(), context).unwrap().query_scale(position)
    };
    let second = (1.0 + 0.5 * 2f64.ln()) as f32;
    // The original context is 64.
    for (name, length, expected) in [
        ("deepseek2", 16, [1.0, second]),
        ("deepseek2", 0, [1.0, 1.0]),
        ("mistral3", 16, [1.0, 1.0]),
    ] {
        assert_eq!([15, 16].map(|position| scale(name, length, position)), expected, "{name}");
    }
}

/// The first files of GLM-4.7-Flash do not say how scores of experts become weights. llama.cpp knows
/// them by their layers, and by the length of their vocabulary or its list.
#[test]
fn the_first_files_of_glm_4_7_flash_have_sigmoids() {
    const LEN: u64 = 154_880;
    let gating = |layers: usize, size: Option<u64>, listed: Option<u64>| {
        let dense = Some(layers - 1);
        let tiny = Tiny { layers, dense, feed_forward: 32, ..Tiny::named("deepseek2-lite") };
        let mut b = tiny.builder();
        let key = b"expert_gating_func";
        b.keys.retain(|entry| !entry.windows(key.len()).any(|part| part == key));
        if let Some(size) = size {
            b = b.key("deepseek2.vocab_size", U32, (size as u32).to_le_bytes());
        }
        if let Some(len) = listed {
            let tokens = array(STRING, len, (0..len).map(|_| [0; 8]));
            b = b.key("tokenizer.ggml.tokens", ARRAY, tokens);
        }
        let bytes = b.bytes();
        let config = Config::from_metadata(&Gguf::parse(&bytes, &[]).unwrap()).unwrap();
        config.mixture().unwrap().routing.gating
    };
    for (layers, size, listed, expected) in [
        (47, Some(LEN), None, Gating::Sigmoid),
        (47, None, Some(LEN), Gating::Sigmoid),
        (47, Some(LEN), Some(50), Gating::Sigmoid),
        (47, Some(50), Some(LEN), Gating::Softmax),
        (47, None, Some(50), Gating::Softmax),
        (46, None, Some(LEN), Gating::Softmax),
        (47, None, None, Gating::Softmax),
    ] {
        assert_eq!(gating(layers, size, listed), expected, "{layers}, {size:?}, {listed:?}");
    }
}

/// The largest EXAONE 4 has windows in three of four layers, and only these rotate. llama.cpp (b11434)
/// knows it by its number of layers.
#[test]
fn the_largest_exaone_has_windows() {
    let small =
        Tiny { embedding: 24, feed_forward: 16, heads: 2, kv_heads: 1, ..Tiny::named("exaone4") };
    let large = Tiny { layers: 64, window: Some((10, 4)), ..small };
    let error = difference(&expected(&large), &found(&large));
    assert!(error < 32.0 * BOUND, "{error}");
    let mut rotating = large.clone();
    rotating.architecture.positions.unrotated = Unrotated::Never;
    for other in [Tiny { window: None, ..large.clone() }, rotating] {
        let apart = difference(&expected(&other), &found(&large));
        assert!(apart > 100.0 * 32.0 * BOUND, "{apart}");
    }
    let layers = Tiny { layers: 5, ..large };
    let without = Tiny { window: None, ..layers.clone() };
    assert!(found(&layers) == found(&without), "only 64 layers have windows");
}

/// Files of the larger models of Command R have norms of heads. llama.cpp (b11434) knows the models by
/// their number of layers.
#[test]
fn the_larger_command_r_has_norms_of_each_head() {
    let large = Tiny::command_r_plus();
    let found = |tiny: &Tiny| {
        let all = found(tiny);
        SHOWN.map(|i| all[i].clone())
    };
    let error = difference(&GOLDEN["command-r-plus"], &found(&large));
    assert!(error < 32.0 * 2.0 * BOUND, "{error}");
    let small = Tiny { layers: 2, ..large };
    let expected = |tiny: &Tiny| {
        let all = expected(tiny);
        SHOWN.map(|i| all[i].clone())
    };
    let error = difference(&expected(&small), &found(&small));
    assert!(error < BOUND, "{error}");
    let mut rms = small.clone();
    rms.architecture.norms.kind = NormKind::Rms;
    for other in [Tiny { head_norms: false, ..small.clone() }, rms] {
        let apart = difference(&expected(&other), &found(&small));
        assert!(apart > 100.0 * BOUND, "{apart}");
    }
}

/// Keys that are normalized after their rotation cannot rotate again.
#[test]
fn methods_that_need_raw_keys_are_refused_for_hunyuan() {
    let model = load(&Tiny::named("hunyuan-dense").builder(), &[]).unwrap();
    let context = || Sourced::given(4096, "--ctx");
    let refused = |flags: &Flags| model.rope_plan(flags, context()).unwrap_err().to_string();
    let shift = Flags { context_shift: true, ..Flags::default() };
    for (flags, cause) in
        [(Flags::method("self-extend"), "RoPE scaling self-extend"), (shift, "`context_shift`")]
    {
        let error = refused(&flags);
        assert!(error.starts_with(cause), "{error}");
        assert!(
            error.contains("hunyuan-dense models normalize keys after their rotation"),
            "{error}"
        );
    }
    // Elements of a key have weights after rotation, so that scores depend on more than distances.
    let error = refused(&Flags::method("dca"));
    assert!(error.contains("hunyuan-dense models normalize keys after their rotation"), "{error}");
    assert!(model.rope_plan(&Flags::method("yarn"), context()).is_ok());
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

/// Layers may have their own numbers of heads and KV heads, and heads of their own length.
#[test]
fn arrays_have_the_heads_of_each_layer() {
    let shapes = &[[6, 2, 20], [4, 4, 40], [8, 1, 12], [6, 2, 20], [3, 3, 20]];
    for name in ["llama", "phi3", "gemma2", "qwen3"] {
        let n_rot = Tiny::named(name).n_rot.min(12);
        let tiny = Tiny { shapes, layers: 5, n_rot, ..Tiny::named(name) };
        let error = difference(&expected(&tiny), &found(&tiny));
        assert!(error < BOUND, "{name}: {error}");
    }
    let error = difference(&expected(&Tiny::mixed()), &found(&Tiny::mixed()));
    assert!(error < BOUND, "with windows: {error}");
}

/// Layers with a window may have heads of their own length, and rotate another part of them.
#[test]
fn window_layers_have_heads_of_their_own() {
    for window_head in [[12, 8], [44, 40]] {
        let tiny = Tiny { window_head: Some(window_head), layers: 7, ..Tiny::gemma3() };
        for tiny in [Tiny { shared_kv: 3, ..tiny.clone() }, tiny] {
            let error = difference(&expected(&tiny), &found(&tiny));
            assert!(error < BOUND, "{window_head:?}: {error}");
        }
    }
}

/// The last layers may attend to the keys and values of earlier ones.
#[test]
fn layers_share_keys_and_values() {
    let shapes = &[[6, 2, 20], [4, 4, 40], [8, 1, 12], [6, 2, 20], [2, 2, 20], [4, 4, 40]];
    let llama = Tiny { shapes, layers: 6, shared_kv: 3, ..Tiny::llama() };
    let gemma3 = Tiny { layers: 7, shared_kv: 4, ..Tiny::gemma3() };
    for tiny in [&llama, &gemma3] {
        let error = difference(&expected(tiny), &found(tiny));
        assert!(error < BOUND, "{}: {error}", tiny.architecture.name);
    }
    // A layer adds the bias to keys that an earlier layer stored without it.
    let large = Tiny { key_bias: 100.0, biases: &["attn_k"], ..llama.clone() };
    let small = Tiny { key_bias: 0.3, ..large.clone() };
    let how = How { keys: CacheType::Q4_0, ..How::default() };
    let cost = |tiny: &Tiny| {
        let found = with_session(tiny, &how, |session| logits(session, &tokens(tiny, TOKENS)));
        mean_difference(&expected(tiny), &found)
    };
    assert!(cost(&large) < cost(&small), "{} {}", cost(&large), cost(&small));
    let unlike = Tiny { shapes: &shapes[..3], layers: 3, shared_kv: 0, ..llama };
    let key = "llama.attention.shared_kv_layers";
    let error = load(&unlike.builder().key(key, U32, 1u32.to_le_bytes()), &[]).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("shared_kv_layers is 1: layer 2 has other heads"), "{error}");
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

/// The file names the norm, and may list the layers with a window, with or without the layer that
/// predicts tokens.
#[test]
fn a_mixture_of_cohere_has_the_norm_and_the_windows_of_its_file() {
    let tiny = Tiny::named("cohere2moe");
    let mut rms = tiny.clone();
    rms.architecture.norms.kind = NormKind::Rms;
    let error = difference(&expected(&rms), &found(&rms));
    assert!(error < BOUND, "RMS norm: {error}");
    let listed = |flags: &[u8]| {
        let mut b = tiny.builder();
        b.keys.retain(|entry| !entry.windows(8).any(|part| part == b"_pattern"));
        let key = "cohere2moe.attention.sliding_window_pattern";
        let all = array(BOOL, flags.len() as u64, flags.iter().map(|flag| [*flag]));
        let b = if flags.is_empty() { b } else { b.key(key, ARRAY, all) };
        load(&b, &[])
    };
    for flags in [&[][..], &[0, 1, 1, 1, 0, 1], &[0, 1, 1, 1, 0, 1, 0]] {
        let model = listed(flags).unwrap();
        let windows = model.config().layers.iter().map(|one| one.attention.unwrap().window);
        let windows: Vec<_> = windows.collect();
        assert_eq!(windows, [None, Some(10), Some(10), Some(10), None, Some(10)], "{flags:?}");
        let predictor = model.config().predictor.unwrap().attention.unwrap();
        assert_eq!((predictor.window, predictor.rotation), (None, Rotation::Global), "{flags:?}");
    }
    let error = listed(&[0, 1, 1, 1, 0]).err().unwrap().to_string();
    assert!(error.contains("sliding_window_pattern is an array of 5"), "{error}");
}

/// The largest model of each family divides scores by the square root of `embedding / heads`.
#[test]
fn the_largest_gemma_divides_scores_by_another_length() {
    let scale = |tiny: Tiny| {
        let bytes = tiny.builder().bytes();
        let config = Config::from_metadata(&Gguf::parse(&bytes, &[]).unwrap()).unwrap();
        config.layers[0].attention.unwrap().scale
    };
    let gemma2 = Tiny { head_dim: 16, ..Tiny::named("gemma2") };
    for (tiny, largest) in [(gemma2, 46), (Tiny::gemma3(), 62)] {
        let of = |layers| scale(Tiny { layers, ..tiny.clone() });
        let [by_embedding, by_head] =
            [tiny.embedding / tiny.heads, tiny.head_dim].map(|n| 1.0 / (n as f32).sqrt());
        assert_ne!(by_embedding, by_head);
        assert_eq!(of(largest), by_embedding, "{}", tiny.architecture.name);
        for layers in [1, 46, 62].into_iter().filter(|layers| *layers != largest) {
            assert_eq!(of(layers), by_head, "{}, {layers} layers", tiny.architecture.name);
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

/// The first files of Gemma 2 do not have the keys of its soft caps.
#[test]
fn gemma_2_has_limits_where_its_file_is_silent() {
    let mut b = Tiny::named("gemma2").builder();
    b.keys.retain(|key| !key.windows(11).any(|part| part == b"softcapping"));
    let bytes = b.bytes();
    let gguf = Gguf::parse(&bytes, &[]).unwrap();
    let config = Config::from_metadata(&gguf).unwrap();
    assert_eq!((config.scales.score_cap, config.scales.logit_cap), (Some(50.0), Some(30.0)));
}
