//! Embeddings: of the tokens of a model that also has logits, and of encoders.

use std::collections::HashMap;

use rope_cpu::{
    json,
    kv_cache::CacheType,
    model::{
        Engine, Error, Feed, Output, Pairing, Pooling, Role, Session,
        architecture::{EmbeddingTerms, Factors, Inner, Unrotated},
    },
    rope::{FREQ_SCALE, Flags, Sourced},
};
use rope_cpu_kernels::vector::{Activation, Ungated};

use crate::model::{
    engine::read,
    session::{How, difference, load, tokens, with_engine, with_model},
};
use rope_cpu_testing::{
    builder::{ARRAY, Builder, STRING, U32, string, strings},
    on_families,
    reference::{Frequencies, forward, logits_of_embedding},
    tiny::{Tiny, files::add_tensor},
};

/// The error of a product of about 100 terms in single precision, of order 1.
const BOUND: f32 = 1e-5;

/// The bound of `meaning`, which holds for embeddings as well: they are normed to order 1.
const DEFINITION_BOUND: f32 = 1e-4;

#[test]
fn logits_follow_from_embeddings_whatever_shares_the_batch() {
    for tiny in [Tiny::llama(), Tiny::gemma3()] {
        let tokens = tokens(&tiny, 90);
        let (text, other) = tokens.split_at(40);
        with_engine(&tiny, &How { micro_batch: 24, ..How::default() }, |engine| {
            let (mut expected, mut expected_other) = (Vec::new(), Vec::new());
            let sequences = [(); 4].map(|()| engine.sequence());
            let [mut alone, mut other_alone, mut one, mut two] = sequences;
            read(engine, &mut alone, Role::Prompt, text, &mut expected);
            read(engine, &mut other_alone, Role::Prompt, other, &mut expected_other);
            let (mut embeddings, mut found_other) =
                (Vec::<Vec<f32>>::new(), Vec::<Vec<f32>>::new());
            let feed = |sequence, tokens, output| Feed {
                sequence,
                tokens,
                role: Role::Prompt,
                wanted: 0..usize::MAX,
                output,
            };
            let mut feeds =
                [feed(&mut one, text, Output::Embedding), feed(&mut two, other, Output::Logits)];
            while feeds.iter().any(|feed| !feed.tokens.is_empty()) {
                let each = &mut |feed, token, output: &[f32]| {
                    let found = if feed == 0 { &mut embeddings } else { &mut found_other };
                    assert_eq!(found.len(), token);
                    found.push(output.to_vec());
                };
                engine.step(&mut feeds, each).unwrap();
            }
            assert!(found_other == expected_other);
            let logits: Vec<_> =
                embeddings.iter().map(|embedding| logits_of_embedding(&tiny, embedding)).collect();
            let error = difference(&expected, &logits);
            assert!(error < BOUND, "{error}");
        });
    }
}

/// Returns the embeddings of the tokens of each text. All texts are fed together.
fn embed(engine: &mut Engine, texts: &[&[u32]]) -> Result<Vec<Vec<Vec<f32>>>, Error> {
    let mut sequences: Vec<_> = texts.iter().map(|_| engine.sequence()).collect();
    let mut embeddings = vec![Vec::new(); texts.len()];
    let feeds = sequences.iter_mut().zip(texts).map(|(sequence, text)| Feed {
        sequence,
        tokens: text,
        role: Role::Prompt,
        wanted: 0..usize::MAX,
        output: Output::Embedding,
    });
    let mut feeds: Vec<_> = feeds.collect();
    while feeds.iter().any(|feed| !feed.tokens.is_empty()) {
        engine.step(&mut feeds, &mut |feed, token, embedding| {
            assert_eq!(embeddings[feed].len(), token);
            embeddings[feed].push(embedding.to_vec());
        })?;
    }
    Ok(embeddings)
}

/// Returns the embeddings of the first tokens of a text that [`tokens`] makes.
fn found(tiny: &Tiny, how: &How, count: usize) -> Vec<Vec<f32>> {
    with_engine(tiny, how, |engine| embed(engine, &[&tokens(tiny, count)]).unwrap().remove(0))
}

fn expected(tiny: &Tiny, count: usize) -> Vec<Vec<f32>> {
    forward(tiny, &Frequencies::new(tiny, 1.0), &tokens(tiny, count))
}

/// Texts of one token, of less than a tile, and of more than one page and one part of the context.
const LENGTHS: [usize; 5] = [1, 9, 60, 300, 1100];

/// A micro-batch for the longest text, and a context of as many positions as BERT has learned.
fn whole() -> How {
    How { micro_batch: 1100, context: 1100, ..How::default() }
}

on_families!(computes_what_its_definition_says: gemma_embedding bert nomic_bert);

fn computes_what_its_definition_says(name: &str, tiny: Tiny) {
    for count in LENGTHS {
        let error = difference(&expected(&tiny, count), &found(&tiny, &whole(), count));
        assert!(error < DEFINITION_BOUND, "{name}, {count} tokens: {error}");
    }
}

/// The golden embeddings are from `scripts/make-architecture-golden`.
#[test]
fn encoders_compute_what_llama_cpp_does() {
    const SHOWN: [usize; 6] = [0, 1, 9, 10, 31, 59];
    let golden: HashMap<String, Vec<Vec<f32>>> =
        json::parse(include_str!("../data/architectures.json")).unwrap();
    for (name, tiny) in Tiny::encoders() {
        let all = found(&tiny, &whole(), 60);
        let error = difference(&golden[name], &SHOWN.map(|i| all[i].clone()));
        let bound = match tiny.architecture.network.inner {
            // llama.cpp's GELU is a table of 16-bit floats: see `architectures`.
            Inner::Gated(Activation::GeluTanh) => 4.0 * 5e-4,
            // The table has the tanh approximation for BERT as well, which is off by 5e-4.
            Inner::Ungated(Ungated::Gelu) => 2.0 * (5e-4 + 5e-4),
            _ => 2.0 * DEFINITION_BOUND,
        };
        assert!(error < bound, "{name}: {error}");
    }
}

/// The bound is small enough to detect each feature: a definition without it exceeds it.
#[test]
fn every_feature_of_an_encoder_matters() {
    let without = |name: &str, what: &str, change: &dyn Fn(&mut Tiny)| {
        let tiny = Tiny::named(name);
        let mut other = tiny.clone();
        change(&mut other);
        let apart = difference(&found(&tiny, &whole(), 60), &expected(&other, 60));
        assert!(apart > 100.0 * DEFINITION_BOUND, "{name} without {what}: {apart}");
    };
    without("gemma-embedding", "its window", &|t| t.window = None);
    without("gemma-embedding", "this window", &|t| t.window = Some((12, 2)));
    without("gemma-embedding", "norms after attention and network", &|t| t.drop_post_norms());
    without("bert", "its biases", &|t| t.biases = &[]);
    without("bert", "the biases of its norms", &|t| t.norm_biases = false);
    without("bert", "vectors of positions", &|t| t.architecture.terms = EmbeddingTerms::Types);
    without("bert", "vectors of types", &|t| t.architecture.terms = EmbeddingTerms::None);
    without("bert", "norms of sums", &|t| t.architecture.norms.of_sums = false);
    without("bert", "keys that do not rotate", &|t| {
        t.architecture.positions.unrotated = Unrotated::Never;
    });
    without("nomic-bert", "vectors of types", &|t| t.architecture.terms = EmbeddingTerms::None);
    without("nomic-bert", "pairs half a head apart", &|t| {
        t.architecture.positions.pairing = Pairing::Adjacent;
    });
    without("gemma-embedding", "the scale of embeddings", &|t| {
        t.architecture.scales.factors = Factors::None;
    });
}

on_families!(texts_have_the_bits_that_they_have_alone: gemma_embedding bert nomic_bert);

/// Texts that do not fit in a step wait for the next one.
fn texts_have_the_bits_that_they_have_alone(name: &str, tiny: Tiny) {
    for tiny in [tiny.clone(), tiny.in_blocks()] {
        let all: Vec<_> = LENGTHS.map(|count| tokens(&tiny, count)).into();
        let texts: Vec<_> = all.iter().map(|text| &text[..]).collect();
        for cache in [CacheType::F32, CacheType::F16, CacheType::Q8_0] {
            let (keys, values) = (cache, cache);
            let how = How { keys, values, ..whole() };
            let alone: Vec<_> = LENGTHS.iter().map(|count| found(&tiny, &how, *count)).collect();
            for (micro_batch, threads) in [(1100, 1), (1100, 3), (1101, 2), (2000, 2)] {
                let how = How { micro_batch, threads, ..how.clone() };
                with_engine(&tiny, &how, |engine| {
                    engine.limit_step(16);
                    assert!(embed(engine, &texts).unwrap() == alone, "{name}, {micro_batch}");
                });
            }
        }
    }
}

#[test]
fn scaling_acts_on_the_global_layers_of_an_encoder() {
    let tiny = Tiny::named("gemma-embedding");
    let flags = Flags::default().with(&FREQ_SCALE, 0.25);
    let found = found(&tiny, &How { flags, ..whole() }, 100);
    let expected = forward(&tiny, &Frequencies::new(&tiny, 4.0), &tokens(&tiny, 100));
    assert!(difference(&expected, &found) < DEFINITION_BOUND);
}

/// BERT has a vector for each of its positions, and none beyond.
#[test]
fn learned_positions_limit_the_context() {
    let tiny = Tiny::named("bert");
    let how = How { context: 1101, ..How::default() };
    with_model(&tiny.builder(), &[], &how, |model, rope, options| {
        let error = Engine::new(model, rope, options).err().unwrap();
        let expected = Error::LearnedPositions { context: 1101, max: 1100 };
        assert_eq!(error.to_string(), expected.to_string());
    });
}

/// Far keys cannot be at other distances, and a context cannot shift.
#[test]
fn methods_that_need_raw_keys_are_refused_for_encoders() {
    let model = load(&Tiny::named("gemma-embedding").builder(), &[]).unwrap();
    let shift = Flags { context_shift: true, ..Flags::default() };
    for flags in [Flags::method("self-extend"), Flags::method("rerope"), shift] {
        let error = model.rope_plan(&flags, Sourced::given(4096, "--ctx")).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("gemma-embedding models read each text in one pass"), "{error}");
    }
    let error = model.rope_plan(&Flags::method("dca"), Sourced::given(4096, "--ctx")).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("gemma-embedding models attend to later ones as well"), "{error}");
}

#[test]
fn an_encoder_has_no_logits_and_reads_a_text_at_once() {
    let tiny = Tiny::named("gemma-embedding");
    let text = tokens(&tiny, 65);
    with_model(&tiny.builder(), &[], &How::default(), |model, rope, options| {
        let error = Session::new(model, rope, options).err().unwrap();
        assert!(matches!(error, Error::Encoder { architecture: "gemma-embedding" }), "{error}");
    });
    with_engine(&tiny, &How::default(), |engine| {
        let error = embed(engine, &[&text]).unwrap_err();
        assert!(matches!(error, Error::TextTooLong { tokens: 65, micro_batch: 64 }), "{error}");
        let mut sequence = engine.sequence();
        let mut step = |role, output| {
            let (sequence, tokens, wanted) = (&mut sequence, &text[..9], 0..usize::MAX);
            engine.step(&mut [Feed { sequence, tokens, role, wanted, output }], &mut |_, _, _| {})
        };
        for (role, output) in [(Role::Prompt, Output::Logits), (Role::Answer, Output::Embedding)] {
            let error = step(role, output).unwrap_err();
            assert!(error.to_string().contains("gemma-embedding models are encoders"), "{error}");
        }
        step(Role::Prompt, Output::Embedding).unwrap();
        let error = step(Role::Prompt, Output::Embedding).unwrap_err();
        assert!(matches!(error, Error::TextContinued { feed: 0 }), "{error}");
    });
}

/// Tokens after the first separator are in the second segment.
#[test]
fn the_document_of_a_pair_has_a_type_of_its_own() {
    let bert = Tiny::named("bert");
    let text = tokens(&bert, 60);
    let separator = text[20];
    assert!(!text[..20].contains(&separator));
    let tiny = Tiny { separator: Some(separator), ..bert.clone() };
    let found = found(&tiny, &whole(), 60);
    assert!(difference(&expected(&tiny, 60), &found) < DEFINITION_BOUND);
    assert!(difference(&expected(&bert, 60), &found) > 100.0 * DEFINITION_BOUND);
}

/// Computes the embeddings of some texts with a model file.
fn pooled(file: &Builder, pooling: Pooling, texts: &[Vec<u32>]) -> Vec<Vec<Vec<f32>>> {
    with_model(file, &[], &whole(), |model, rope, options| {
        Engine::new(model, rope, options).unwrap().embed(texts, pooling).unwrap()
    })
}

#[test]
fn each_pooling_takes_its_tokens() {
    for tiny in [Tiny::named("bert"), Tiny::llama()] {
        let all = tokens(&tiny, 60);
        // More texts than are computed together.
        let texts: Vec<_> = (1..=20).map(|length| all[..length * 3].to_vec()).collect();
        let rows = pooled(&tiny.builder(), Pooling::None, &texts);
        let mean = |rows: &Vec<Vec<f32>>| {
            let sum = |i: usize| rows.iter().map(|row| f64::from(row[i])).sum::<f64>();
            (0..rows[0].len()).map(|i| (sum(i) / rows.len() as f64) as f32).collect()
        };
        for (text, rows) in texts.iter().zip(&rows) {
            assert_eq!(rows.len(), text.len());
        }
        let expected = |of: &dyn Fn(&Vec<Vec<f32>>) -> Vec<f32>| -> Vec<_> {
            rows.iter().map(|rows| vec![of(rows)]).collect()
        };
        let of = |pooling| pooled(&tiny.builder(), pooling, &texts);
        assert!(of(Pooling::Cls) == expected(&|rows| rows[0].clone()));
        assert!(of(Pooling::Last) == expected(&|rows| rows[rows.len() - 1].clone()));
        assert!(of(Pooling::Mean) == expected(&mean));
    }
}

/// Returns numbers without a pattern, of order 1 / sqrt(columns).
fn matrix(rows: usize, columns: usize) -> Vec<f32> {
    let number = |i: usize| ((i * i * 37 + i * 11) % 101) as f32 / 50.0 - 1.0;
    (0..rows * columns).map(|i| number(i) / (columns as f32).sqrt()).collect()
}

fn product(w: &[f32], x: &[f64]) -> Vec<f64> {
    let row = |row: &[f32]| row.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum();
    w.chunks(x.len()).map(row).collect()
}

/// Asserts that numbers of order 1 are as near as sums of some 100 products are.
fn close(found: &[f32], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((f64::from(*found) - expected).abs() < f64::from(BOUND), "{found} {expected}");
    }
}

fn doubles(x: &[f32]) -> Vec<f64> {
    x.iter().map(|x| f64::from(*x)).collect()
}

#[test]
fn the_pooling_of_a_file_is_its_number_and_nothing_else() {
    let with = |kind: u32, value: Vec<u8>| {
        load(&Tiny::named("bert").builder().key("bert.pooling_type", kind, value), &[])
    };
    for (number, pooling) in (0u32..).zip(Pooling::ALL) {
        let model = with(U32, number.to_le_bytes().into()).unwrap();
        assert_eq!(Pooling::of(&model), pooling);
    }
    assert_eq!(Pooling::of(&load(&Tiny::named("bert").builder(), &[]).unwrap()), Pooling::Mean);
    for (kind, value, shown) in
        [(STRING, string("cls"), "\"cls\""), (U32, 7u32.to_le_bytes().into(), "7")]
    {
        assert_eq!(
            with(kind, value).unwrap_err().to_string(),
            format!(
                "model.gguf: metadata key bert.pooling_type is {shown}: must be 0 (none), 1 (mean), 2 (cls), \
                 3 (last) or 4 (rank)"
            )
        );
    }
}

/// EmbeddingGemma has two layers after pooling.
#[test]
fn dense_layers_follow_pooling() {
    let tiny = Tiny::named("gemma-embedding");
    let text = [tokens(&tiny, 60)];
    let [plain] = &pooled(&tiny.builder(), Pooling::Mean, &text)[..] else { panic!() };
    let e = tiny.embedding;
    let [first, second] = [matrix(100, e), matrix(e, 100)];
    let file = add_tensor(tiny.builder(), "dense_2.weight", &[e as u64, 100], &first);
    let file = add_tensor(file, "dense_3.weight", &[100, e as u64], &second);
    let found = pooled(&file, Pooling::Mean, &text);
    close(&found[0][0], &product(&second, &product(&first, &doubles(&plain[0]))));
}

/// BERT's rerankers have a layer with tanh, and one for the score.
#[test]
fn a_classifier_scores_the_first_token_of_an_encoder() {
    let tiny = Tiny::named("bert");
    let text = [tokens(&tiny, 60)];
    let cls = &pooled(&tiny.builder(), Pooling::Cls, &text)[0][0];
    let e = tiny.embedding;
    let [dense, dense_bias, output] = [matrix(e, e), matrix(1, e), matrix(1, e)];
    let file = add_tensor(tiny.builder(), "cls.weight", &[e as u64; 2], &dense);
    let file = add_tensor(file, "cls.bias", &[e as u64], &dense_bias);
    let file = add_tensor(file, "cls.output.weight", &[e as u64, 1], &output);
    let file = add_tensor(file, "cls.output.bias", &[1], &[0.25]);
    let file = file.key("bert.pooling_type", U32, 4u32.to_le_bytes());
    assert_eq!(Pooling::of(&load(&file, &[]).unwrap()), Pooling::Rank);
    let inner = product(&dense, &doubles(cls)).into_iter().zip(&dense_bias);
    let inner: Vec<_> = inner.map(|(x, bias)| (x + f64::from(*bias)).tanh()).collect();
    let expected = product(&output, &inner)[0] + 0.25;
    close(&pooled(&file, Pooling::Rank, &text)[0][0], &[expected]);
}

/// Returns the file of the model with a tokenizer that has yes and no, and the logits of both after the
/// text.
fn answering(tiny: &Tiny, text: &[u32]) -> (Builder, [f64; 2]) {
    let mut texts: Vec<_> = (0..tiny.vocabulary).map(|i| format!("t{i}")).collect();
    (texts[7], texts[9]) = ("yes".into(), "no".into());
    let file = tiny
        .builder()
        .key("tokenizer.ggml.model", STRING, string("gpt2"))
        .key("tokenizer.ggml.pre", STRING, string("gpt-2"))
        .key("tokenizer.ggml.tokens", ARRAY, strings(&texts))
        .key("tokenizer.ggml.merges", ARRAY, strings::<&str>(&[]));
    let logits = forward(tiny, &Frequencies::new(tiny, 1.0), text);
    (file, [7, 9].map(|token| f64::from(logits[text.len() - 1][token])))
}

/// The scale and the bias of the output head belong to these logits; an adapter of it is refused.
#[test]
fn yes_and_no_have_the_scale_and_the_bias_of_their_head() {
    let tiny = Tiny { tied: false, ..Tiny::named("qwen3") };
    let text = [tokens(&tiny, 60)];
    let (file, [yes, no]) = answering(&tiny, &text[0]);
    let bias: Vec<f32> = (0..tiny.vocabulary).map(|token| token as f32 / 8.0).collect();
    let scaled = add_tensor(file.clone(), "output.scale", &[1], &[0.5]);
    let scaled = add_tensor(scaled, "output.bias", &[bias.len() as u64], &bias);
    let expected = 1.0 / (1.0 + ((no - yes) / 2.0 + 0.25).exp());
    let found = pooled(&scaled, Pooling::Rank, &text)[0][0][0];
    assert!((f64::from(found) - expected).abs() < 1e-4, "{found} {expected}");
    let model = load(&file, &[(tiny.adapter(), 1.0)]).unwrap();
    let error = model.require_pooling(Pooling::Rank).unwrap_err().to_string();
    assert!(error.contains("the adapter changes tensor output.weight, which is read"), "{error}");
}

/// Qwen3's rerankers answer yes or no.
#[test]
fn a_model_without_a_classifier_scores_by_yes_and_no() {
    let tiny = Tiny::named("qwen3");
    let text = [tokens(&tiny, 60)];
    let (file, [yes, no]) = answering(&tiny, &text[0]);
    let expected = 1.0 / (1.0 + (no - yes).exp());
    let found = pooled(&file, Pooling::Rank, &text)[0][0][0];
    assert!((f64::from(found) - expected).abs() < 1e-4, "{found} {expected}");
    let error = load(&tiny.builder(), &[]).unwrap().require_pooling(Pooling::Rank).unwrap_err();
    assert!(error.to_string().contains("the model is no reranker"), "{error}");
}
