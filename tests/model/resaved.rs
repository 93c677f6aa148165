//! Files that llama.cpp saved: `llama_model_save_to_file` writes the keys of all families into a file
//! of any, with its own defaults.

use rope_cpu::{
    model::{Error, Pooling},
    rope::{Flags, Sourced},
};

use crate::model::{
    architectures::found,
    session::{How, load, logits, tokens, with_file},
};
use rope_cpu_testing::{
    builder::{ARRAY, BOOL, Builder, F32, I32, STRING, U32, array, string},
    tiny::{EPSILON, Tiny},
};

/// The numbers that llama.cpp (b11434) writes for a family that does not set them, from
/// `llama_hparams` and src/llama-model-saver.cpp.
const NUMBERS: [(&str, u32); 20] = [
    ("leading_dense_block_count", 0),
    ("expert_feed_forward_length", 0),
    ("expert_shared_feed_forward_length", 0),
    ("expert_chunk_feed_forward_length", 0),
    ("expert_count", 0),
    ("expert_used_count", 0),
    ("expert_shared_count", 0),
    ("expert_group_count", 0),
    ("expert_group_used_count", 0),
    ("expert_gating_func", 0),
    ("moe_every_n_layers", 0),
    ("interleave_moe_layer_step", 0),
    ("nextn_predict_layers", 0),
    ("pooling_type", u32::MAX),
    ("attention.sliding_window", 0),
    ("attention.rope_pattern", 1),
    ("attention.temperature_length", 0),
    ("attention.key_length_mla", 0),
    ("attention.value_length_mla", 0),
    ("ssm.group_count", 0),
];

const FLOATS: [(&str, f32); 24] = [
    ("expert_weights_scale", 0.0),
    ("expert_group_scale", 0.05),
    ("logit_scale", 0.0),
    ("attn_logit_softcapping", 50.0),
    ("router_logit_softcapping", 30.0),
    ("final_logit_softcapping", 30.0),
    ("residual_scale", 0.0),
    ("embedding_scale", 0.0),
    ("attention.max_alibi_bias", 0.0),
    ("attention.clamp_kqv", 0.0),
    ("attention.layer_norm_epsilon", 0.0),
    ("attention.layer_norm_rms_epsilon", 0.0),
    ("attention.scale", 0.0),
    ("attention.output_scale", 0.0),
    ("attention.value_scale", 0.0),
    ("attention.temperature_scale", 0.0),
    ("rope.scaling.factor", 0.0),
    ("rope.scaling.attn_factor", 1.0),
    ("rope.scaling.yarn_log_multiplier", 0.0),
    ("rope.scaling.yarn_ext_factor", -1.0),
    ("rope.scaling.yarn_beta_fast", 32.0),
    ("rope.scaling.yarn_beta_slow", 1.0),
    ("activation.situ_beta", 1.0),
    ("activation.situ_linear_beta", 0.0),
];

/// Returns whether a file has a key.
fn has(b: &Builder, key: &str) -> bool {
    b.keys.iter().any(|entry| entry[8..].starts_with(key.as_bytes()) && entry[0] == key.len() as u8)
}

/// Returns a file with the keys that llama.cpp adds when it saves it.
fn saved(tiny: &Tiny, file: Builder) -> Builder {
    let a = tiny.architecture.name;
    let with = |b: Builder, key: &str, kind: u32, value: &[u8]| {
        let key = format!("{a}.{key}");
        if has(&b, &key) { b } else { b.key(key, kind, value) }
    };
    let file =
        NUMBERS.into_iter().fold(file, |b, (key, number)| with(b, key, U32, &number.to_le_bytes()));
    let file = FLOATS.into_iter().fold(file, |b, (key, value)| {
        // What the family itself sets to another default.
        let value = match (a, key) {
            ("gemma3" | "gemma4" | "muse-glimmer", "final_logit_softcapping") => 0.0,
            ("gemma4", "attention.scale") => 1.0,
            // One epsilon is the other's default.
            ("nemotron_h" | "nemotron_h_moe", "attention.layer_norm_rms_epsilon") => EPSILON,
            _ => value,
        };
        with(b, key, F32, &value.to_le_bytes())
    });
    // `rope.scaling.finetuned` is true where Granite and MiniCPM rotate, and false elsewhere.
    let finetuned = ["granite", "granitehybrid", "minicpm"].contains(&a);
    let layers = tiny.layers as u64 + u64::from(tiny.predicts);
    let zeros = array(F32, layers, (0..layers).map(|_| [0; 4]));
    let file = with(file, "rope.scaling.finetuned", BOOL, &[finetuned.into()]);
    let file = with(file, "rope.scaling.type", STRING, &string("linear"));
    let file = with(file, "rope.dimension_sections", ARRAY, &array(I32, 4, [[0; 4]; 4]));
    let file = with(file, "swiglu_clamp_exp", ARRAY, &zeros);
    let file = with(file, "swiglu_clamp_shexp", ARRAY, &zeros);
    let file = with(file, "use_parallel_residual", BOOL, &[0]);
    let file = with(file, "expert_weights_norm", BOOL, &[0]);
    with(file, "ssm.dt_b_c_rms", BOOL, &[0])
}

/// Computes tokens with a file of the model.
fn computed(tiny: &Tiny, file: &Builder) -> Vec<Vec<f32>> {
    with_file(file, &[], &How { threads: 2, ..How::default() }, |session| {
        logits(session, &tokens(tiny, 60))
    })
}

#[test]
fn a_file_that_llama_cpp_saved_computes_the_same() {
    for (name, tiny) in Tiny::all() {
        let file = saved(&tiny, tiny.builder());
        if let Err(error) = load(&file, &[]) {
            panic!("{name}: {error}");
        }
        assert!(computed(&tiny, &file) == found(&tiny), "{name}");
    }
}

/// Nothing that such a file says is worth a warning.
#[test]
fn a_file_that_llama_cpp_saved_has_no_warnings() {
    for name in ["llama", "qwen3", "phi3"] {
        let tiny = Tiny::named(name);
        let model = load(&saved(&tiny, tiny.builder()), &[]).unwrap();
        let context = Sourced::given(tiny.context, "--ctx");
        let plan = model.rope_plan(&Flags::default(), context).unwrap();
        assert_eq!(plan.warnings, [""; 0], "{name}");
    }
}

#[test]
fn a_pooling_that_is_not_specified_is_the_mean() {
    let pooling = |kind: u32, value: [u8; 4]| {
        let file = Tiny::named("qwen3").builder().key("qwen3.pooling_type", kind, value);
        load(&file, &[]).map(|model| Pooling::of(&model)).map_err(|error| error.to_string())
    };
    assert_eq!(pooling(U32, u32::MAX.to_le_bytes()), Ok(Pooling::Mean));
    assert_eq!(pooling(I32, (-1i32).to_le_bytes()), Ok(Pooling::Mean));
    assert_eq!(pooling(U32, 3u32.to_le_bytes()), Ok(Pooling::Last));
    let error = pooling(U32, (u32::MAX - 1).to_le_bytes()).unwrap_err();
    assert!(error.contains("qwen3.pooling_type is 4294967294: must be 0 (none)"), "{error}");
}

/// Caps that a family does not have are refused, unless llama.cpp saved its defaults.
#[test]
fn soft_caps_of_other_families_are_refused() {
    let with = |name: &str, attention: f32, logits: Option<f32>| {
        let tiny = Tiny { soft_caps: None, ..Tiny::named(name) };
        let a = tiny.architecture.name;
        let mut b = tiny.builder();
        b.keys.retain(|entry| !entry.windows(11).any(|part| part == b"softcapping"));
        let b = b.key(format!("{a}.attn_logit_softcapping"), F32, attention.to_le_bytes());
        let key = format!("{a}.final_logit_softcapping");
        let b = logits.into_iter().fold(b, |b, cap| b.key(&key, F32, cap.to_le_bytes()));
        load(&b, &[]).map(|model| {
            let config = model.config();
            [config.scales.score_cap, config.scales.logit_cap]
        })
    };
    let named = |result: Result<_, Error>| result.map_err(|error| error.to_string());
    for name in ["gemma4", "muse-glimmer", "llama"] {
        for (attention, logits) in [(25.0, None), (25.0, Some(30.0)), (50.0, None)] {
            let error = named(with(name, attention, logits)).unwrap_err();
            let expected = format!(
                "metadata key {name}.attn_logit_softcapping is {attention:?}: not supported in {name} \
                 models, and results without it would be wrong; override it with 0 to compute \
                 without it"
            );
            assert!(error.ends_with(&expected), "{error}");
        }
        let cap = if name == "llama" { None } else { Some(30.0) };
        assert_eq!(named(with(name, 50.0, Some(30.0))), Ok([None, cap]), "{name}");
        assert_eq!(named(with(name, 0.0, None)), Ok([None, None]), "{name}");
    }
    assert_eq!(named(with("gemma2", 25.0, Some(20.0))), Ok([Some(25.0), Some(20.0)]));
}

/// One value says whether all layers rotate.
#[test]
fn a_pattern_may_be_one_value() {
    let listed = Tiny::named("granite_swa");
    let with = |value: u8| {
        let mut b = listed.builder();
        let key = b"rope_pattern";
        b.keys.retain(|entry| !entry.windows(key.len()).any(|part| part == key));
        computed(&listed, &b.key("granite_swa.attention.rope_pattern", BOOL, [value]))
    };
    assert!(with(1) == found(&Tiny { unrotated: None, ..listed.clone() }));
    assert!(with(0) == found(&Tiny { unrotated: Some(1), ..listed.clone() }));
    // Granite says it in another key, and llama.cpp saves both.
    let granite = Tiny::named("granitehybrid");
    let none = granite.builder().key("granitehybrid.attention.rope_pattern", BOOL, [0]);
    assert!(computed(&granite, &none) == found(&granite));
}
