//! Files that are not a supported model, and invalid inputs of a session.

use std::ops::ControlFlow;

use rope_cpu::model::{Engine, Error, Feed, Output, Place, Role};

use crate::model::session::{How, load, logits, tokens, with_file, with_model, with_session};
use rope_cpu_testing::{
    builder::{ARRAY, BOOL, Builder, F32, STRING, U32, array, string},
    tiny::{Tiny, files::add_tensor},
};

/// Returns the message of the error that loading the file gives, without its name.
fn error(b: Builder) -> String {
    let error = load(&b, &[]).unwrap_err().to_string();
    error.strip_prefix("model.gguf: ").expect("the name of the file").into()
}

/// Returns a model file without the keys and tensors that contain `name` in their names.
fn without(name: &str) -> Builder {
    let mut b = Tiny::llama().builder();
    let named = |entry: &Vec<u8>| entry.windows(name.len()).any(|w| w == name.as_bytes());
    b.keys.retain(|key| !named(key));
    b.tensors.retain(|tensor| !named(tensor));
    b
}

#[test]
fn each_fault_names_the_key_or_tensor() {
    let number =
        |key: &str, value: u32| without(key).key(format!("llama.{key}"), U32, value.to_le_bytes());
    let by_layer = |key: &str, values: &[u32]| {
        let values = values.iter().map(|value| value.to_le_bytes());
        without(key).key(format!("llama.{key}"), ARRAY, array(U32, values.len() as u64, values))
    };
    let cases = [
        (
            by_layer("attention.head_count_kv", &[2, 4]),
            "metadata key llama.attention.head_count_kv[1] is 4: must divide attention.head_count, \
             which is 6",
        ),
        (
            by_layer("feed_forward_length", &[104, 0]),
            "metadata key llama.feed_forward_length[1] is 0: must be from 1 to 1048576",
        ),
        (
            by_layer("feed_forward_length", &[104]),
            "metadata key llama.feed_forward_length is an array of 1: must have a value for each of \
             the 2 layers",
        ),
        (
            without("general.architecture").key("general.architecture", STRING, string("qwen9")),
            "architecture qwen9 is not supported; the nearest supported one is qwen2; all: llama, \
             smollm3, qwen2, qwen2vl, qwen25vl, qwen3, qwen3vl, qwen3moe, qwen3vlmoe, phi3, phi2, starcoder2, mellum, laguna, gemma2, gemma3, \
             gemma4, gemma-embedding, gpt-oss, mistral3, olmo2, granite, granitemoe, granitehybrid, granite_swa, minicpm, exaone4, glm4, glm4moe, \
             ernie4_5, ernie4_5-moe, seed_oss, arcee, apertus, hunyuan-dense, \
             hunyuan-moe, command-r, cohere2, cohere2moe, muse-glimmer, lfm2, lfm2moe, falcon-h1, nemotron_h, nemotron_h_moe, deepseek2, qwen35, qwen35moe, qwen3next, bert, nomic-bert",
        ),
        (
            without("general.architecture").key("general.architecture", STRING, string("clip")),
            "the file is only the vision or audio part of a model (mmproj): open the model's own file",
        ),
        (without("general.architecture"), "metadata key general.architecture is missing"),
        (without("embedding_length"), "metadata key llama.embedding_length is missing"),
        (number("block_count", 0), "metadata key llama.block_count is 0: must be from 1 to 4096"),
        (
            number("attention.head_count_kv", 4),
            "metadata key llama.attention.head_count_kv is 4: must divide attention.head_count, which \
             is 6",
        ),
        (
            number("attention.head_count", 1 << 19),
            "metadata key llama.attention.head_count is 524288: the length of a head is 20: it must \
             be from 1 to 1024, and all heads together at most 1048576",
        ),
        (
            without("rms_epsilon").key(
                "llama.attention.layer_norm_rms_epsilon",
                F32,
                (-1.0f32).to_le_bytes(),
            ),
            "metadata key llama.attention.layer_norm_rms_epsilon is -1: must not be negative",
        ),
        (
            number("attention.value_length", 8),
            "metadata key llama.attention.value_length is 8: must equal the length of keys, which is \
             20",
        ),
        (
            by_layer("attention.key_length", &[20, 8]),
            "metadata key llama.attention.value_length is 20: must equal the length of keys, which \
             is 8",
        ),
        (
            number("rope.dimension_count", 24),
            "metadata key llama.rope.dimension_count is 24: must be at most the length of a head, \
             which is 20",
        ),
        (number("expert_count", 8), "metadata key llama.expert_used_count is missing"),
        (without("token_embd.weight"), "tensor token_embd.weight is missing"),
        (without("blk.1.ffn_up.weight"), "tensor blk.1.ffn_up.weight is missing"),
        (
            add_tensor(without("blk.0.attn_q.bias"), "blk.0.attn_q.bias", &[60], &[0.0; 60]),
            "tensor blk.0.attn_q.bias has shape [60], where [120] is expected",
        ),
        (
            add_tensor(without("-"), "blk.0.attn_q_norm.weight", &[20], &[0.0; 20]),
            "tensor blk.0.attn_q_norm.weight is not supported in a model of this architecture: \
             results without it would be wrong",
        ),
    ];
    for (builder, expected) in cases {
        assert_eq!(error(builder), expected);
    }
}

/// A layer without rotation also stores its heads in pairs, so an odd number is an error there too.
#[test]
fn an_odd_number_of_dimensions_that_rotate_is_named() {
    let tiny = Tiny::named("muse-glimmer");
    let with = |numbers: [(&str, u32); 2]| {
        let mut b = tiny.builder();
        let name = b"rope.dimension_count";
        b.keys.retain(|entry| !entry.windows(name.len()).any(|part| part == name));
        numbers.into_iter().fold(b, |b, (suffix, number)| {
            let key = format!("muse-glimmer.rope.dimension_count{suffix}");
            b.key(key, U32, number.to_le_bytes())
        })
    };
    for (numbers, expected) in [([5, 8], " is 5"), ([8, 7], "_swa is 7")] {
        assert_eq!(
            error(with([("", numbers[0]), ("_swa", numbers[1])])),
            format!(
                "metadata key muse-glimmer.rope.dimension_count{expected}: must be even, as pairs \
                 rotate; by default it is the head size"
            )
        );
    }
    load(&with([("", 6), ("_swa", 8)]), &[]).unwrap();
}

/// A key of another family: results without it would be wrong.
#[test]
fn an_unread_key_that_would_change_results_is_named() {
    let with = |key: &str, kind: u32, value: [u8; 4]| {
        load(&Tiny::llama().builder().key(format!("llama.{key}"), kind, value), &[])
    };
    let float = |key: &str, value: f32| with(key, F32, value.to_le_bytes());
    let number = |key: &str, value: u32| with(key, U32, value.to_le_bytes());
    let expected = "model.gguf: metadata key llama.logit_scale is 2.0: not supported in llama models, \
                    and results without it would be wrong; override it with 1 to compute without it";
    assert_eq!(float("logit_scale", 2.0).unwrap_err().to_string(), expected);
    for refused in [
        float("embedding_scale", 12.0),
        float("residual_scale", 0.5),
        float("final_logit_softcapping", 30.0),
        float("attn_logit_softcapping", 50.0),
        float("attention.clamp_kqv", 8.0),
        float("swiglu_clamp_exp", 7.0),
        number("attention.sliding_window", 8),
        number("num_loops", 2),
    ] {
        let message = refused.unwrap_err().to_string();
        assert!(message.contains("not supported in llama models"), "{message}");
    }
    let context = Tiny::llama().context as u32;
    for accepted in [
        float("logit_scale", 1.0),
        float("final_logit_softcapping", 0.0),
        number("attention.sliding_window", 0),
        number("attention.sliding_window", context),
        // No effect without experts.
        number("expert_group_count", 8),
        // Descriptions, and keys of programs that are not known.
        number("vision.block_count", 27),
        float("quality", 0.5),
    ] {
        accepted.unwrap();
    }
}

/// llama.cpp rotates by this base, and rope-cpu by one for all layers.
#[test]
fn another_base_of_the_windows_of_gpt_oss_is_named() {
    let with = |base: f32| {
        let b = Tiny::named("gpt-oss").builder();
        load(&b.key("gpt-oss.rope.freq_base_swa", F32, base.to_le_bytes()), &[])
    };
    with(500.0).unwrap();
    let expected = "model.gguf: metadata key gpt-oss.rope.freq_base_swa is 20: must be rope.freq_base, \
                    which is 500: layers with a window rotate by the same base";
    assert_eq!(with(20.0).unwrap_err().to_string(), expected);
}

/// The weights of the experts of these families are a softmax, and sum to 1.
#[test]
fn another_choice_of_experts_is_named() {
    for name in ["llama-experts", "qwen3moe", "gpt-oss"] {
        let tiny = Tiny::named(name);
        let family = tiny.architecture.name;
        let with = |key: &str, kind: u32, value: &[u8]| {
            load(&tiny.builder().key(format!("{family}.{key}"), kind, value), &[])
        };
        let gating = |number: u32| with("expert_gating_func", U32, &number.to_le_bytes());
        // llama.cpp writes the last into files that it saves, and reads it in other families.
        let norm = with("expert_weights_norm", BOOL, &[0]);
        for accepted in [gating(0), gating(1), gating(3), norm] {
            accepted.unwrap();
        }
        let message = gating(2).unwrap_err().to_string();
        let expected =
            format!("{family}.expert_gating_func is 2: not supported in {family} models");
        assert!(message.contains(&expected), "{message}");
    }
}

/// ollama's files of models with vision hold both parts. The text is computed as without the other.
#[test]
fn a_vision_part_beside_the_text_is_not_read() {
    let tiny = Tiny::gemma3();
    let plain = tiny.builder();
    let both = plain.clone().append("v.blk.0.attn_k.weight", &[32, 2], 1, [0; 128]);
    let both = add_tensor(both, "mm.input_projection.weight", &[8, 4], &[1.0; 32]);
    let tokens = tokens(&tiny, 20);
    let read = |file: &Builder| {
        let bytes = load(file, &[]).unwrap().media_bytes();
        let how = How::default();
        (bytes, with_file(file, &[], &how, |session| logits(session, &tokens)))
    };
    let (none, expected) = read(&plain);
    let (bytes, found) = read(&both);
    assert_eq!((none, bytes), (0, 128 + 4 * 32));
    assert_eq!(found, expected);
    // Names that only look alike are parts of the text model.
    let other = add_tensor(plain, "vocab.weight", &[8], &[0.0; 8]);
    assert!(error(other).starts_with("tensor vocab.weight is not supported"));
}

#[test]
fn a_format_that_is_not_supported_is_named() {
    let b = without("output_norm.weight").append("output_norm.weight", &[72], 1, [0; 144]);
    assert_eq!(error(b), "tensor output_norm.weight is of type f16, where f32 is expected");
    let b = without("blk.0.attn_v.weight").append("blk.0.attn_v.weight", &[72, 40], 24, [0; 2880]);
    let expected =
        "tensor blk.0.attn_v.weight is of type i8, which is not supported; supported: f32";
    assert!(error(b).starts_with(expected));
}

/// Returns the model's file with `value` as the element `at` of the tensor `name`.
fn damaged(tiny: &Tiny, tensor: &(String, Vec<usize>), at: usize, value: f32) -> Builder {
    damaged_at(tiny, tensor, &[at], value)
}

/// Returns the model's file with `value` as the elements `at` of the tensor `name`.
fn damaged_at(
    tiny: &Tiny,
    (name, shape): &(String, Vec<usize>),
    at: &[usize],
    value: f32,
) -> Builder {
    let mut b = tiny.builder();
    let entry = |entry: &Vec<u8>| entry[8..].starts_with(name.as_bytes());
    b.tensors.retain(|tensor| !entry(tensor));
    let mut values = tiny.weights()[name].clone();
    at.iter().for_each(|at| values[*at] = value);
    let dims: Vec<u64> = shape.iter().rev().map(|&n| n as u64).collect();
    add_tensor(b, name, &dims, &values)
}

#[test]
fn a_vector_that_is_not_finite_is_named_when_the_model_is_loaded() {
    for tiny in [Tiny::llama(), Tiny::gemma3()] {
        for tensor in tiny.tensors().iter().filter(|(_, shape)| shape.len() == 1) {
            for value in [f32::NAN, f32::NEG_INFINITY] {
                let expected = format!(
                    "tensor {} has {value} at index 3: must be finite; the file is damaged, download \
                     it again or compare its checksum",
                    tensor.0
                );
                assert_eq!(error(damaged(&tiny, tensor, 3, value)), expected);
            }
        }
    }
}

/// Products in 8 bits and the softmax would turn such a value into an ordinary one.
#[test]
fn a_matrix_that_is_not_finite_is_an_error_that_names_its_place() {
    let models = [Tiny::llama(), Tiny::gemma3(), Tiny::named("qwen3moe")];
    for tiny in models {
        let tokens = tokens(&tiny, 40);
        let is_matrix = |(_, shape): &&(String, Vec<usize>)| shape.len() > 1;
        for tensor in tiny.tensors().iter().filter(is_matrix) {
            let (name, shape) = tensor;
            let place = match name.strip_prefix("blk.").and_then(|name| name.split_once('.')) {
                None if name == "token_embd.weight" => "the embedding (token_embd)".into(),
                None => "the output".into(),
                Some((layer, name)) if name.starts_with("attn") => {
                    format!("attention in layer {layer} (blk.{layer}.attn)")
                }
                Some((layer, _)) => {
                    format!("the feed-forward network in layer {layer} (blk.{layer}.ffn)")
                }
            };
            // The row of the last token, or one of the first rows.
            let row = if name == "token_embd.weight" { tokens[39] as usize } else { 1 };
            for value in [f32::NAN, f32::INFINITY] {
                let file = damaged(&tiny, tensor, row * shape[shape.len() - 1] + 2, value);
                with_file(&file, &[], &How::default(), |session| {
                    let go_on = &mut |_| ControlFlow::Continue(());
                    let error = session.extend(&tokens, go_on).unwrap_err().to_string();
                    let expected = "computed a value that is not finite, for sequence 0 of the step: its \
                                    weights are damaged; download the model again or compare its checksum";
                    assert_eq!(error, format!("{place} {expected}"), "{name}");
                    assert!(session.tokens().is_empty());
                });
            }
        }
    }
}

/// No activation, limit or soft cap turns such a value into an ordinary one.
#[test]
fn a_matrix_that_is_not_finite_is_an_error_in_every_family() {
    let mut hidden = Vec::new();
    for (family, tiny) in Tiny::all().into_iter().chain([("gemma3", Tiny::gemma3())]) {
        let tiny = Tiny { predicts: false, ..tiny };
        let tokens = tokens(&tiny, 40);
        let unread = (0..).find(|token| !tokens.contains(token)).unwrap();
        for tensor in tiny.tensors().iter().filter(|(_, shape)| shape.len() > 1) {
            let (name, shape) = tensor;
            let (columns, count) = (shape[shape.len() - 1], shape.iter().product::<usize>());
            let rows = match name.as_str() {
                // As an embedding, and for a token that is not read as a row of the output.
                "token_embd.weight" if tiny.tied => vec![tokens[39], unread],
                "token_embd.weight" | "per_layer_token_embd.weight" => vec![tokens[39]],
                _ => vec![0],
            };
            for row in rows {
                let at = row as usize * columns + 1;
                // Of each expert or head, as a token has few of them.
                let each = if shape.len() > 2 { count / shape[0] } else { count };
                let all: Vec<usize> = (at..count).step_by(each).collect();
                let file = damaged_at(&tiny, tensor, &all, f32::NAN);
                // Tables of floats are checked when the model is loaded.
                if let Err(error) = load(&file, &[]) {
                    assert!(error.to_string().contains(name), "{family}: {error}");
                    continue;
                }
                let found = with_file(&file, &[], &How::default(), |session| {
                    session.extend(&tokens, &mut |_| ControlFlow::Continue(())).map(|_| ())
                });
                match found {
                    Err(Error::NotFinite { .. }) => {}
                    Err(error) => panic!("{family}, {name}: {error}"),
                    Ok(()) => hidden.push(format!("{family}: {name}, row {row}")),
                }
            }
        }
    }
    assert_eq!(hidden, [""; 0]);
}

#[test]
fn a_value_that_is_not_finite_ends_its_own_sequence_alone() {
    let tiny = Tiny::llama();
    let all = tiny.tensors();
    let embeddings = all.iter().find(|(name, _)| name == "token_embd.weight").unwrap();
    let file = damaged(&tiny, embeddings, 7 * embeddings.1[1], f32::NAN);
    with_model(&file, &[], &How::default(), |model, rope, options| {
        let engine = &mut Engine::new(model, rope, options).unwrap();
        let (mut one, mut two) = (engine.sequence(), engine.sequence());
        let mut feeds =
            [(&mut one, &[1, 2][..]), (&mut two, &[3, 7][..])].map(|(sequence, tokens)| Feed {
                sequence,
                tokens,
                role: Role::Prompt,
                wanted: 0..9,
                output: Output::Logits,
            });
        let error = engine.step(&mut feeds, &mut |_, _, _| panic!()).unwrap_err();
        let expected = Error::NotFinite { feed: 1, place: Place::Embedding };
        assert_eq!(error.to_string(), expected.to_string());
        engine.step(&mut feeds[..1], &mut |_, _, _| {}).unwrap();
        assert_eq!((one.tokens(), two.tokens()), (&[1, 2][..], &[][..]));
    });
}

#[test]
fn more_than_the_context_and_unknown_tokens_are_refused_before_anything_is_computed() {
    let tiny = Tiny::llama();
    with_session(&tiny, &How { context: 100, ..How::default() }, |session| {
        let go_on = &mut |_| ControlFlow::Continue(());
        session.extend(&tokens(&tiny, 60), go_on).unwrap();
        let error = session.extend(&tokens(&tiny, 41), go_on).unwrap_err().to_string();
        let expected = "the context of 100 tokens is full: 60 are in use, 41 more do not fit";
        assert_eq!(error, expected);
        let error = session.extend(&[3, 50], go_on).unwrap_err().to_string();
        assert_eq!(error, "token 50 is not in the model's vocabulary of 50");
        assert_eq!(session.tokens().len(), 60);
        session.extend(&tokens(&tiny, 40), go_on).unwrap();
    });
}
