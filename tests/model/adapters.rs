//! Low-rank adapters, compared with merged weights and with llama.cpp.

use std::collections::HashMap;

use rope_cpu::{
    json,
    model::{Engine, Error, Feed, Output, Role, Sequence, saved},
};

use crate::model::{
    architectures::{ROUNDING, apart, expected, rounding},
    session::{
        How, difference, load, logits, tokens, with_adapters, with_file, with_model, with_session,
    },
};
use rope_cpu_testing::{
    builder::{Builder, F32, STRING, U32, string},
    on_every_family,
    tiny::{Tiny, files::add_tensor},
};

on_every_family!(
    computes_what_merged_weights_would,
    adapters_beside_weights_in_blocks_compute_what_merged_weights_would,
    a_sequence_has_the_bits_of_a_model_opened_with_its_scales,
);

/// The bound of `architectures`, for two layers: one more product of 5 terms does not round by more.
const BOUND: f32 = 1e-4;
const SCALE: f32 = 0.75;
const TOKENS: usize = 60;

fn adapted(tiny: &Tiny, adapters: &[(Builder, f32)], how: &How) -> Vec<Vec<f32>> {
    with_adapters(tiny, adapters, how, |session| how.read(session, &tokens(tiny, TOKENS)))
}

fn once(tiny: &Tiny, scale: f32) -> Vec<Vec<f32>> {
    adapted(tiny, &[(tiny.adapter(), scale)], &How::default())
}

fn computes_what_merged_weights_would(name: &str, tiny: Tiny) {
    let merged = Tiny { merged: SCALE, ..tiny.clone() };
    let found = once(&tiny, SCALE);
    let error = difference(&expected(&merged), &found);
    // A layer with latents has up to twice as many products in a row: seven, where others have four.
    let layers = tiny.layers.max(2) * (1 + usize::from(tiny.latent.is_some()));
    assert!(error < BOUND * layers as f32 / 2.0, "{name}: {error}");
    let without = expected(&tiny);
    assert!(difference(&without, &found) > 1000.0 * BOUND, "{name}: no effect");
}

/// Products with F16 convert the weights to F32, so the bound is the same.
#[test]
fn adapters_in_f16_compute_what_merged_weights_would() {
    for name in ["llama", "qwen3moe"] {
        let tiny = Tiny { half_adapters: true, ..Tiny::named(name) };
        let merged = Tiny { merged: SCALE, ..tiny.clone() };
        let expected = expected(&merged);
        let error = difference(&expected, &once(&tiny, SCALE));
        assert!(error < BOUND, "{name}: {error}");
        let single = Tiny { half_adapters: false, ..tiny.clone() };
        let error = difference(&expected, &once(&single, SCALE));
        assert!(error > 2.0 * BOUND, "{name}: nothing was rounded: {error}");
    }
}

/// A and B are floats, which multiply activations that are not quantized. Only the inputs of the
/// weights in blocks are quantized, as without an adapter.
fn adapters_beside_weights_in_blocks_compute_what_merged_weights_would(name: &str, tiny: Tiny) {
    let tiny = tiny.in_blocks();
    let merged = Tiny { merged: SCALE, ..tiny.clone() };
    let expected = expected(&merged);
    for &micro_batch in How::micro_batches(&tiny) {
        let how = How { micro_batch, ..How::default() };
        let error = apart(&expected, &adapted(&tiny, &[(tiny.adapter(), SCALE)], &how));
        assert!(error < rounding(&tiny), "{name}, {micro_batch}: {error}");
    }
    let without = apart(&expected, &once(&tiny, 0.0));
    assert!(without > 4.0 * ROUNDING, "{name}: no effect: {without}");
}

/// `scripts/make-architecture-golden` writes the same models and adapters.
#[test]
fn some_compute_what_llama_cpp_does() {
    const SHOWN: [usize; 6] = [0, 1, 9, 10, 31, 59];
    let golden: HashMap<String, Vec<Vec<f32>>> =
        json::parse(include_str!("../data/adapters.json")).unwrap();
    assert_eq!(golden.len(), 3);
    for (name, expected) in golden {
        let all = once(&Tiny::named(&name), SCALE);
        let error = difference(&expected, &SHOWN.map(|i| all[i].clone()));
        assert!(error < 2.0 * BOUND, "{name}: {error}");
    }
}

#[test]
fn an_output_that_shares_the_embeddings_stays() {
    let untied = Tiny::named("qwen2");
    let tied = Tiny { tied: true, ..untied.clone() };
    let adapter = || {
        let mut b = untied.adapter();
        b.tensors.retain(|tensor| tensor.windows(10).any(|w| w == b"token_embd"));
        b
    };
    let embeddings = &tied.weights()["token_embd.weight"];
    let shape = [tied.embedding, tied.vocabulary].map(|n| n as u64);
    let twin = add_tensor(tied.builder(), "output.weight", &shape, embeddings);
    let of = |file| {
        with_file(&file, &[(adapter(), SCALE)], &How::default(), |session| {
            logits(session, &tokens(&tied, TOKENS))
        })
    };
    let found = of(tied.builder());
    assert!(found == of(twin));
    assert!(difference(&found, &once(&tied, 0.0)) > 1000.0 * BOUND);
}

#[test]
fn several_add_up_and_none_is_nothing() {
    let tiny = Tiny::named("llama");
    let of = |scale| (tiny.adapter(), scale);
    let two = adapted(&tiny, &[of(0.5), of(0.25)], &How::default());
    assert!(difference(&once(&tiny, 0.75), &two) < 2.0 * BOUND);
    let plain = with_session(&tiny, &How::default(), |s| logits(s, &tokens(&tiny, TOKENS)));
    assert!(once(&tiny, 0.0) == plain);
}

#[test]
fn threads_and_micro_batches_make_no_difference() {
    for tiny in [Tiny::named("phi3"), Tiny::named("qwen3moe")] {
        let of = |threads, micro_batch| {
            let how = How { threads, micro_batch, ..How::default() };
            adapted(&tiny, &[(tiny.adapter(), SCALE)], &how)
        };
        let whole = of(1, 64);
        assert!(whole == of(3, 64));
        assert!(whole == of(2, 7));
        for &micro_batch in How::micro_batches(&tiny) {
            assert!(difference(&whole, &of(2, micro_batch)) < 2.0 * BOUND, "{micro_batch}");
        }
    }
}

/// Products with quantized weights read activations quantized to 8 bits.
#[test]
fn quantized_adapters_are_as_near_as_their_activations() {
    let tiny = Tiny::named("qwen2");
    // B is of Q8_0: for each row a scale of 1/64 as f16, and 32 quants.
    let quant = |row: usize, i: usize| ((row * 37 + i * 59) % 251) as i32 - 125;
    let (rows, rank, columns) = (tiny.vocabulary, 32, tiny.embedding);
    let a: Vec<f32> = (0..rank * columns).map(|i| ((i * 61 % 127) as f32 - 63.0) / 500.0).collect();
    let all = (0..rows).flat_map(|row| (0..rank).map(move |i| quant(row, i)));
    let floats: Vec<f32> = all.map(|q| q as f32 / 64.0).collect();
    let base = || {
        let mut b = tiny.adapter();
        b.tensors.clear();
        b.data.clear();
        add_tensor(b, "output.weight.lora_a", &[columns as u64, rank as u64], &a)
    };
    let exact = add_tensor(base(), "output.weight.lora_b", &[rank as u64, rows as u64], &floats);
    let blocks = (0..rows).flat_map(|row| {
        let quants = (0..rank).map(move |i| quant(row, i) as i8 as u8);
        0x2400u16.to_le_bytes().into_iter().chain(quants)
    });
    let shape = [rank as u64, rows as u64];
    let rounded = base().append("output.weight.lora_b", &shape, 8, blocks);
    let scale = 0.01;
    let of = |b: Builder| adapted(&tiny, &[(b, scale)], &How::default());
    let (exact, rounded, without) = (of(exact), of(rounded), once(&tiny, 0.0));
    // The values between A and B are sums of 72 products of at most 0.13 with a normed input. Its
    // 72 squares sum up to about 72 (norms weigh up to 1.3). So a value is at most 0.13 * 1.3 * 72
    // = 12, rounded to steps of 12/127. Half a step times 32 weights of at most 2, times alpha/rank
    // * scale.
    let bound = 12.0 / 127.0 / 2.0 * 32.0 * 2.0 * 8.0 / 32.0 * scale;
    let error = difference(&exact, &rounded);
    assert!(error > 0.0 && error < bound, "{error} {bound}");
    assert!(difference(&exact, &without) > 2.0 * bound);
}

/// Returns the message of the error that reading the adapter gives, without the path of the file.
fn error(b: Builder) -> String {
    let Error::In { source, .. } = load(&Tiny::named("qwen2").builder(), &[(b, 1.0)]).unwrap_err()
    else {
        panic!("the error has no path")
    };
    source.to_string()
}

#[test]
fn a_foreign_adapter_is_refused_by_what_is_foreign() {
    let tiny = Tiny::named("qwen2");
    let own = || tiny.adapter();
    let without = |name: &str| {
        let mut b = own();
        let named = |entry: &Vec<u8>| entry.windows(name.len()).any(|w| w == name.as_bytes());
        b.keys.retain(|key| !named(key));
        b.tensors.retain(|tensor| !named(tensor));
        b
    };
    let with = |name: &str, value: &str| without(name).key(name, STRING, string(value));
    let no_such = "the file is not a LoRA adapter for a model of this architecture";
    let cases = [
        (tiny.builder(), "metadata key general.type is missing".to_string()),
        (
            with("general.type", "model"),
            format!("metadata key general.type is model, where adapter is expected: {no_such}"),
        ),
        (
            with("adapter.type", "dora"),
            format!("metadata key adapter.type is dora, where lora is expected: {no_such}"),
        ),
        (
            with("general.architecture", "llama"),
            format!(
                "metadata key general.architecture is llama, where qwen2 is expected: {no_such}"
            ),
        ),
        (
            own().key("adapter.alora.invocation_tokens", U32, 7u32.to_le_bytes()),
            "adapters that are activated by tokens (metadata key adapter.alora.invocation_tokens) are \
             not supported"
                .into(),
        ),
        (
            without("blk.1.attn_k.weight.lora_b"),
            "tensor blk.1.attn_k.weight.lora_a is one of a pair, .lora_a and .lora_b: the other is \
             missing"
                .into(),
        ),
        (
            add_tensor(own(), "blk.0.attn_k.bias", &[24], &[0.0; 24]),
            "tensor blk.0.attn_k.bias is not supported in an adapter: its name must end in .lora_a, \
             .lora_b or _norm.weight"
                .into(),
        ),
        (
            Tiny { layers: 3, ..tiny.clone() }.adapter(),
            "the adapter changes tensor blk.2.attn_q.weight, which the model lacks: it is for another \
             model"
                .into(),
        ),
        (
            Tiny { feed_forward: 96, ..tiny.clone() }.adapter(),
            "tensor blk.0.ffn_gate.weight.lora_a has shape [72, 5] and blk.0.ffn_gate.weight.lora_b \
             [5, 96], which do not fit the model's [72, 104]: the adapter is for another model"
                .into(),
        ),
        (
            add_tensor(
                add_tensor(without("token_embd"), "token_embd.weight.lora_a", &[72, 5], &[0.0; 360]),
                "token_embd.weight.lora_b",
                &[5, 50],
                &[0.0; 250],
            ),
            "tensor token_embd.weight.lora_a has shape [72, 5] and token_embd.weight.lora_b [5, 50], \
             which do not fit the model's [72, 50]: the adapter is for another model"
                .into(),
        ),
        (
            add_tensor(
                add_tensor(own(), "output_norm.weight.lora_a", &[72, 5], &[0.0; 360]),
                "output_norm.weight.lora_b",
                &[5, 1],
                &[0.0; 5],
            ),
            "the adapter changes tensor output_norm.weight, which is not a matrix: this is not \
             supported"
                .into(),
        ),
        (
            add_tensor(
                without("blk.0.ffn_gate.weight.lora_a"),
                "blk.0.ffn_gate.weight.lora_a",
                &[72, 5],
                &std::array::from_fn::<_, 360, _>(|i| if i == 150 { f32::NAN } else { 0.0 }),
            ),
            "tensor blk.0.ffn_gate.weight.lora_a has NaN in row 2: must be finite; the adapter is \
             damaged, download it again"
                .into(),
        ),
        (
            without(".lora_"),
            "the file is not a LoRA adapter: it has no tensors .lora_a and .lora_b".into(),
        ),
    ];
    for (b, expected) in cases {
        assert_eq!(error(b), expected);
    }
}

/// In files with one tensor for each expert, all experts of a layer are changed alike, or none.
#[test]
fn experts_in_tensors_of_their_own_are_changed_alike() {
    let together = Tiny::named("llama-experts");
    let apart = Tiny { experts_apart: true, ..together.clone() };
    let (columns, rows, experts) = (together.embedding, together.feed_forward, 5);
    assert_eq!(together.experts.unwrap().0, experts);
    let base = || {
        let mut b = together.adapter();
        b.tensors.clear();
        b.data.clear();
        b
    };
    let values = |len: usize| (0..len).map(|i| ((i * 61 % 127) as f32 - 63.0) / 200.0);
    let half = |b: Builder, name: &str, part: &str, dims: &[usize]| {
        let values: Vec<f32> = values(dims.iter().product()).collect();
        let dims: Vec<u64> = dims.iter().map(|&n| n as u64).collect();
        add_tensor(b, &format!("{name}.weight.lora_{part}"), &dims, &values)
    };
    let one = |b: Builder, expert: usize, rank: usize| {
        let name = format!("blk.0.ffn_up.{expert}");
        half(half(b, &name, "a", &[columns, rank]), &name, "b", &[rank, rows])
    };
    let error =
        |adapters: &[(Builder, f32)]| load(&apart.builder(), adapters).unwrap_err().to_string();
    let refused = |adapters: &[(Builder, f32)], expert: usize| {
        let error = error(adapters);
        let expected =
            format!("the adapter changes tensor blk.0.ffn_up.{expert}.weight and not the");
        assert!(error.contains(&expected), "{error}");
    };
    let all = |rank: usize| (0..experts).fold(base(), |b, expert| one(b, expert, rank));
    refused(&[(one(base(), 3, 4), 1.0)], 3);
    refused(&[(one(base(), 0, 4), 1.0)], 0);
    let wider = (0..experts).fold(base(), |b, expert| one(b, expert, 4 + 20 * (expert / 4)));
    refused(&[(wider, 1.0)], 4);
    refused(&[(all(4), 1.0), (one(base(), 1, 4), 1.0)], 1);

    // The halves of each expert have the same values, as in `one`.
    let repeated = |b: Builder, part: &str, dims: [usize; 2]| {
        let each: Vec<f32> = values(dims[0] * dims[1]).collect();
        let dims = [dims[0] as u64, dims[1] as u64, experts as u64];
        let name = format!("blk.0.ffn_up_exps.weight.lora_{part}");
        add_tensor(b, &name, &dims, &each.repeat(experts))
    };
    let stacked = repeated(repeated(base(), "a", [columns, 4]), "b", [4, rows]);
    let found = adapted(&apart, &[(all(4), SCALE)], &How::default());
    assert!(found == adapted(&together, &[(stacked, SCALE)], &How::default()));
    assert!(difference(&found, &once(&together, 0.0)) > 100.0 * BOUND);
}

/// Tensors that are looked up, or multiplied after pooling, are read without adapters.
#[test]
fn an_adapter_of_a_tensor_that_is_read_without_adapters_is_refused() {
    let refused = |tiny: &Tiny, file: &Builder, name: &str, [columns, rows]: [usize; 2]| {
        let mut adapter = tiny.adapter();
        adapter.tensors.clear();
        adapter.data.clear();
        for (half, [columns, rows]) in [("a", [columns, 2]), ("b", [2, rows])] {
            let dims = [columns as u64, rows as u64];
            let values = vec![0.5; columns * rows];
            adapter = add_tensor(adapter, &format!("{name}.lora_{half}"), &dims, &values);
        }
        let error = load(file, &[(adapter, 1.0)]).unwrap_err().to_string();
        let expected = format!("the adapter changes tensor {name}, which is read without adapters");
        assert!(error.contains(&expected), "{error}");
    };
    let predictor = format!("blk.{}.nextn.embed_tokens.weight", Tiny::named("qwen35").layers);
    // The models with tensors of their own, and with tensors that are added with this number of rows.
    type Case<'n> = (Tiny, &'n [&'n str], &'n [(&'n str, Option<usize>)]);
    let cases: [Case<'_>; 4] = [
        (
            Tiny::named("bert"),
            &["token_types.weight", "position_embd.weight"],
            &[("cls.weight", None), ("cls.output.weight", Some(3))],
        ),
        (
            Tiny::named("gemma-embedding"),
            &[],
            &[("dense_2.weight", None), ("dense_3.weight", None)],
        ),
        (Tiny::named("gemma4"), &["per_layer_token_embd.weight"], &[]),
        (Tiny { predicts_alone: true, ..Tiny::named("qwen35") }, &[&predictor], &[]),
    ];
    for (tiny, own, added) in cases {
        let e = tiny.embedding;
        let file = added.iter().fold(tiny.builder(), |b, (name, rows)| {
            let rows = rows.unwrap_or(e);
            add_tensor(b, name, &[e as u64, rows as u64], &vec![0.01; e * rows])
        });
        load(&file, &[]).unwrap();
        for (name, rows) in added {
            refused(&tiny, &file, name, [e, rows.unwrap_or(e)]);
        }
        for name in own {
            let all = tiny.tensors();
            let (_, shape) = all.iter().find(|(known, _)| known == name).unwrap();
            refused(&tiny, &file, name, [shape[1], shape[0]]);
        }
    }
}

#[test]
fn norms_are_named_and_alpha_may_be_missing() {
    let tiny = Tiny::named("qwen2");
    let mut b = add_tensor(tiny.adapter(), "blk.0.attn_norm.weight", &[72], &[1.0; 72]);
    let alpha = b"adapter.lora.alpha";
    b.keys.retain(|key| !key.windows(alpha.len()).any(|w| w == alpha));
    let model = load(&tiny.builder(), &[(b.clone(), 1.0)]).unwrap();
    assert_eq!(model.adapters()[0].norms(), ["blk.0.attn_norm.weight"]);
    // With alpha the scale was multiplied by 8/5.
    let found = adapted(&tiny, &[(b, 8.0 / 5.0)], &How::default());
    assert!(difference(&once(&tiny, 1.0), &found) < BOUND);
}

/// Keys and values computed with one adapter must not be reused with another.
#[test]
fn another_adapter_is_another_model() {
    let tiny = Tiny::named("qwen2");
    let own = tiny.adapter();
    let mut other = tiny.adapter();
    other.data[0] ^= 1;
    let other = other.key("x", F32, 0f32.to_le_bytes());
    let mut alpha = tiny.adapter();
    let (name, value) = (b"adapter.lora.alpha", 16f32.to_le_bytes());
    let at = alpha.keys.iter().position(|key| key.windows(name.len()).any(|w| w == name)).unwrap();
    let end = alpha.keys[at].len() - value.len();
    alpha.keys[at][end..].copy_from_slice(&value);
    let with = |adapters: &[_]| load(&tiny.builder(), adapters).unwrap().fingerprint();
    let of = |file: &Builder, scale| with(&[(file.clone(), scale)]);
    let all = [with(&[]), of(&own, 1.0), of(&own, 0.5), of(&other, 1.0), of(&alpha, 1.0)];
    for (i, a) in all.iter().enumerate() {
        assert!(!all[..i].contains(a), "{i}");
    }
    assert_eq!(all[1], of(&own, 1.0));
    // What is multiplied by equal numbers adds the same.
    assert_eq!(all[1], of(&alpha, 0.5));
}

fn a_sequence_has_the_bits_of_a_model_opened_with_its_scales(name: &str, tiny: Tiny) {
    let two = |a, b| [(tiny.adapter(), a), (tiny.adapter(), b)];
    let opened = |a, b| adapted(&tiny, &two(a, b), &How::default());
    let [first, second, none] = [opened(1.0, 0.25), opened(SCALE, -0.5), opened(0.0, 0.0)];
    assert!(difference(&first, &second) > 1000.0 * BOUND, "{name}");
    with_adapters(&tiny, &two(1.0, 0.25), &How::default(), |session| {
        let all = tokens(&tiny, TOKENS);
        assert_eq!(session.adapter_scales(), [1.0, 0.25]);
        assert!(logits(session, &all) == first, "{name}");
        for (scales, expected) in
            [([SCALE, -0.5], &second), ([0.0, 0.0], &none), ([1.0, 0.25], &first)]
        {
            session.set_adapter_scales(&scales).unwrap();
            assert!(session.tokens().is_empty(), "{name}");
            assert!(logits(session, &all) == *expected, "{name}: {scales:?}");
            // Equal scales change nothing.
            session.set_adapter_scales(&scales).unwrap();
            assert_eq!(session.tokens(), all, "{name}");
        }
    });
}

/// Reads a token into each of two sequences, in one step.
fn step(engine: &mut Engine, sequences: [&mut Sequence; 2]) -> Result<(), Error> {
    let mut feeds = sequences.map(|sequence| Feed {
        sequence,
        tokens: &[1],
        role: Role::Prompt,
        wanted: 0..1,
        output: Output::Logits,
    });
    engine.step(&mut feeds, &mut |_, _, _| {})
}

#[test]
fn scales_that_cannot_be_are_errors_and_a_step_has_one_set() {
    let tiny = Tiny::named("llama");
    let adapters = [(tiny.adapter(), 1.0), (tiny.adapter(), 0.5)];
    with_model(&tiny.builder(), &adapters, &How::default(), |model, rope, options| {
        let engine = &mut Engine::new(model, rope, options).unwrap();
        let (mut one, mut two) = (engine.sequence(), engine.sequence());
        step(engine, [&mut one, &mut two]).unwrap();
        let error = two.set_adapter_scales(&[1.0]).unwrap_err();
        assert!(matches!(error, Error::ScaleCount { found: 1, adapters: 2 }), "{error}");
        for scale in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let error = two.set_adapter_scales(&[1.0, scale]).unwrap_err();
            assert!(matches!(error, Error::Scale { adapter: 1, .. }), "{error}");
        }
        assert_eq!((two.adapter_scales(), two.tokens()), (&[1.0, 0.5][..], &[1][..]));
        two.set_adapter_scales(&[0.0, 0.5]).unwrap();
        let error = step(engine, [&mut one, &mut two]).unwrap_err();
        assert!(matches!(error, Error::AdapterScales { feed: 1 }), "{error}");
        assert_eq!((one.tokens(), two.tokens()), (&[1][..], &[][..]));
        one.set_adapter_scales(&[0.0, 0.5]).unwrap();
        step(engine, [&mut one, &mut two]).unwrap();
    });
}

#[test]
fn a_file_is_of_the_scales_of_its_sequence() {
    let tiny = Tiny::named("llama");
    with_adapters(&tiny, &[(tiny.adapter(), 1.0)], &How::default(), |session| {
        let model = session.model().fingerprint();
        let all = tokens(&tiny, TOKENS);
        let files = [1.0, SCALE, 0.0].map(|scale| {
            session.set_adapter_scales(&[scale]).unwrap();
            logits(session, &all);
            let mut file = Vec::new();
            assert_eq!(session.save(model, TOKENS, &mut file).unwrap(), TOKENS);
            (scale, file)
        });
        for (written, file) in &files {
            for (scale, _) in &files {
                session.set_adapter_scales(&[*scale]).unwrap();
                let restored = session.restore(model, &file[..], file.len() as u64);
                match scale == written {
                    true => restored.unwrap(),
                    false => assert!(matches!(restored, Err(saved::Error::Model))),
                }
                let expected = if scale == written { &all[..] } else { &[] };
                assert_eq!(session.tokens(), expected);
            }
        }
    });
}
