//! A model of a few thousand random weights: two layers of 4 heads, one head of keys and values.

use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::{
    builder::{ARRAY, BOOL, Builder, F32, I32, STRING, U32, array, string, strings},
    tiny::{Recurrent, Tiny, family},
};

const VOCABULARY: u64 = 40;
const EMBEDDING: u64 = 64;
const FEED_FORWARD: u64 = 96;
const HEADS: u64 = 4;
const HEAD_DIM: u64 = 16;

/// Kinds of tokens in a file.
const TEXT: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;

/// Weights of the matrices of a layer: queries and outputs, keys and values, feed-forward.
pub const LAYER_WEIGHTS: u64 = 2 * 64 * 64 + 2 * 64 * 16 + NETWORK_WEIGHTS;
/// Weights of the feed-forward network of a layer.
pub const NETWORK_WEIGHTS: u64 = 3 * 64 * 96;
/// Weights of the embeddings, which are the output matrix too.
pub const EMBEDDINGS: u64 = VOCABULARY * EMBEDDING;
/// All weights: two norms in a layer, and one at the end.
pub const WEIGHTS: u64 = 2 * (LAYER_WEIGHTS + 2 * EMBEDDING) + EMBEDDINGS + EMBEDDING;

/// The model as a file; it has no tokenizer.
pub fn tiny() -> NamedTempFile {
    builder(1, 1.0, |_| true).file()
}

/// The model of [`tiny`] with `rows` embeddings of zeros, in a sparse file.
#[cfg(unix)]
pub fn tiny_with_embeddings(rows: u64) -> NamedTempFile {
    let name = "token_embd.weight";
    let b = builder(1, 1.0, |kept| kept != name);
    let offset = b.data.len() as u64;
    let file = b.tensor(name, &[EMBEDDING, rows], 0, offset).file();
    let len = file.as_file().metadata().unwrap().len() + 4 * EMBEDDING * rows;
    file.as_file().set_len(len).unwrap();
    file
}

/// [`tiny_reader`] in two files in `folder`, the second with the second layer; returns their paths.
pub fn tiny_in_parts(seed: u32, folder: &Path) -> [PathBuf; 2] {
    in_parts(seed, folder, |name| name.starts_with("blk.1."))
}

/// The same model with all tensors in the second file, as by llama-gguf-split --no-tensor-first-split.
pub fn tiny_after_its_metadata(seed: u32, folder: &Path) -> [PathBuf; 2] {
    in_parts(seed, folder, |_| true)
}

fn in_parts(seed: u32, folder: &Path, second: impl Fn(&str) -> bool + Copy) -> [PathBuf; 2] {
    let first = reader(seed, true, |name| !second(name));
    let second = Builder { keys: Vec::new(), ..reader(seed, true, second) };
    let tensors = (first.tensors.len() + second.tensors.len()) as i32;
    [(1, first), (2, second)].map(|(number, part)| {
        let path = folder.join(format!("tiny-{number:05}-of-00002.gguf"));
        let part = part
            .key("split.no", 2, (number as u16 - 1).to_le_bytes())
            .key("split.count", 2, 2u16.to_le_bytes())
            .key("split.tensors.count", I32, tensors.to_le_bytes());
        std::fs::write(&path, part.bytes()).unwrap();
        path
    })
}

/// A model with random weights from `seed` and a tokenizer: token 0 is BOS, which is added if `bos`;
/// the letters follow, then merges of two letters.
pub fn tiny_reader(seed: u32, bos: bool) -> NamedTempFile {
    reader(seed, bos, |_| true).file()
}

/// The model of [`tiny_reader`] with a tensor of a vision part.
#[allow(dead_code, reason = "for the tests of the command line")]
pub fn tiny_with_vision(seed: u32) -> NamedTempFile {
    tiny_with_tensor(seed, "v.blk.0.ln1.weight")
}

/// The model of [`tiny_reader`] with a tensor of zeros that it does not need.
#[allow(dead_code, reason = "for the tests of the command line")]
pub fn tiny_with_tensor(seed: u32, name: &str) -> NamedTempFile {
    reader(seed, true, |_| true).append(name, &[512], 0, [0; 2048]).file()
}

/// The model of [`tiny_reader`] with suppressed tokens.
pub fn tiny_suppressing(seed: u32, tokens: &[i32]) -> NamedTempFile {
    let tokens = array(I32, tokens.len() as u64, tokens.iter().map(|token| token.to_le_bytes()));
    reader(seed, true, |_| true).key("tokenizer.ggml.suppress_tokens", ARRAY, tokens).file()
}

/// The model of [`tiny_reader`], with its tokens 1, 2 and 3 for a prefix, a suffix and a middle.
#[allow(dead_code, reason = "for the tests of the server, which include this file")]
pub fn tiny_infilling(seed: u32) -> NamedTempFile {
    let parts = [("pre", 1u32), ("suf", 2), ("mid", 3)];
    let model = parts.iter().fold(reader(seed, true, |_| true), |model, (part, token)| {
        model.key(format!("tokenizer.ggml.fim_{part}_token_id"), U32, token.to_le_bytes())
    });
    model.file()
}

/// The model of [`tiny_reader`] with the carriage return in place of the letter z.
#[allow(dead_code, reason = "for the tests of the command line")]
pub fn tiny_with_carriage_return(seed: u32) -> NamedTempFile {
    reader_with(seed, true, &[(26, "\u{10d}", TEXT)], |_| true).file()
}

/// The model of [`tiny_reader`] as a reranker: with a classifier of two classes and a template.
#[allow(dead_code, reason = "for the tests of the server, which include this file")]
pub fn tiny_ranking(seed: u32) -> NamedTempFile {
    let weights =
        (0..2 * EMBEDDING).map(|i| ((i * i * 37 % 101) as f32 / 50.0 - 1.0).to_le_bytes());
    let template = "the query {query}, the rest {document}";
    reader(seed, true, |_| true)
        .key("llama.pooling_type", U32, 4u32.to_le_bytes())
        .key("tokenizer.chat_template.rerank", STRING, string(template))
        .append("cls.output.weight", &[EMBEDDING, 2], 0, weights.flatten())
        .file()
}

/// The tokens of [`tiny_thinking`] around reasoning.
#[allow(dead_code, reason = "for the tests of the server, which include this file")]
pub const THINKING: [(usize, &str); 2] = [(31, "<think>"), (32, "</think>")];

/// The model of [`tiny_reader`] with the tokens [`THINKING`].
#[allow(dead_code, reason = "for the tests of the server, which include this file")]
pub fn tiny_thinking(seed: u32) -> NamedTempFile {
    let control = THINKING.map(|(token, text)| (token, text, CONTROL));
    reader_with(seed, true, &control, |_| true).file()
}

/// The model of [`tiny_reader`] with the punctuation of JSON in place of rare letters.
#[allow(dead_code, reason = "for the tests of the server, which include this file")]
pub fn tiny_calling(seed: u32) -> NamedTempFile {
    let json = [(17, "{"), (26, "}"), (30, "\""), (31, ":"), (32, "_")];
    reader_with(seed, true, &json.map(|(token, text)| (token, text, TEXT)), |_| true).file()
}

/// The model of [`tiny_calling`] with the markers of calls as tokens, and the signs that spell them.
#[allow(dead_code, reason = "for the tests of the server, which include this file")]
pub fn tiny_agent(seed: u32) -> NamedTempFile {
    let json = [(17, "{"), (26, "}"), (30, "\""), (31, ":"), (32, "_")];
    let signs = [(10, "<"), (11, ">"), (24, "/")];
    let text = json.iter().chain(&signs).map(|(token, text)| (*token, *text, TEXT));
    let markers = [(22, "<tool_call>", USER_DEFINED), (23, "</tool_call>", USER_DEFINED)];
    reader_with(seed, true, &text.chain(markers).collect::<Vec<_>>(), |_| true).file()
}

/// A Gemma 4 model with a layer with a window and one without, and its assistant.
#[allow(dead_code, reason = "for the tests of the command line")]
pub fn tiny_assisted() -> [NamedTempFile; 2] {
    let gemma4 = Tiny { window: Some((8, 2)), ..of_family("gemma4") };
    let assistant = Tiny { layers: 2, embedding: 32, feed_forward: 96, ..gemma4.assistant() };
    [gemma4, assistant].map(|tiny| file(&tiny))
}

/// A model of Qwen 3.5 with one layer that attends, and one that predicts further tokens.
#[allow(dead_code, reason = "for the tests of the command line")]
pub fn tiny_predicting() -> NamedTempFile {
    let delta = Recurrent::Delta { key_heads: 2, value_heads: 2, dim: 16, taps: 4 };
    let layers = Tiny { layers: 1, recurrent: Some(delta), predicts: true, ..of_family("qwen35") };
    file(&layers)
}

/// A BERT model, which has learned 256 positions.
#[allow(dead_code, reason = "for the tests of the server")]
pub fn tiny_bert() -> NamedTempFile {
    file(&Tiny { kv_heads: HEADS as usize, norm_biases: true, ..of_family("bert") })
}

/// Returns a model of a family with the sizes of [`tiny`].
fn of_family(name: &str) -> Tiny {
    Tiny {
        architecture: family(name),
        vocabulary: VOCABULARY as usize,
        context: 256,
        embedding: EMBEDDING as usize,
        feed_forward: FEED_FORWARD as usize,
        heads: HEADS as usize,
        kv_heads: 1,
        head_dim: HEAD_DIM as usize,
        n_rot: HEAD_DIM as usize,
        base: 10000.0,
        biases: &[],
        tied: true,
        ..Tiny::llama()
    }
}

/// Returns the file of a model with the tokenizer and the weights of [`tiny_reader`].
fn file(tiny: &Tiny) -> NamedTempFile {
    let tensors = tiny.tensors().into_iter().map(|(name, shape)| {
        let dims = shape.iter().rev().map(|&n| n as u64).collect();
        (name, dims)
    });
    let model = with_weights(tiny.metadata(), tensors.collect(), 1, 8.0, |_| true);
    with_tokenizer(model, true, &[]).file()
}

/// A LoRA adapter of rank 4 for the last matrix of either model.
pub fn tiny_adapter() -> NamedTempFile {
    let mut b = Builder::new()
        .key("general.type", STRING, string("adapter"))
        .key("general.architecture", STRING, string("llama"))
        .key("adapter.type", STRING, string("lora"))
        .key("adapter.lora.alpha", F32, 8f32.to_le_bytes());
    for (half, dims) in [("a", [FEED_FORWARD, 4]), ("b", [4, EMBEDDING])] {
        let offset = b.data.len() as u64;
        b = b.tensor(&format!("blk.1.ffn_down.weight.lora_{half}"), &dims, 0, offset);
        let values = 0..dims.iter().product();
        b.data.extend(values.flat_map(|i| ((i * 37 % 101) as f32 / 50.0 - 1.0).to_le_bytes()));
    }
    b.file()
}

fn reader(seed: u32, bos: bool, kept: impl Fn(&str) -> bool) -> Builder {
    reader_with(seed, bos, &[], kept)
}

/// Builds a model with `other` tokens, each with its kind, in place of its own.
fn reader_with(
    seed: u32,
    bos: bool,
    other: &[(usize, &str, i32)],
    kept: impl Fn(&str) -> bool,
) -> Builder {
    // Larger weights, so that no two tokens are equally likely.
    with_tokenizer(builder(seed, 8.0, kept), bos, other)
}

/// Adds a tokenizer with `other` tokens, each with its kind, in place of its own.
fn with_tokenizer(model: Builder, bos: bool, other: &[(usize, &str, i32)]) -> Builder {
    let mut tokens = vec!["<s>".to_string()];
    tokens.extend(('a'..='z').map(String::from));
    tokens.extend(["Ġ", "Ċ", ",", ".", "'", "-"].map(String::from));
    let merges = ["Ġ t", "h e", "i n", "e r", "a n", "r e", "o n"];
    tokens.extend(merges.map(|merge| merge.replace(' ', "")));
    assert_eq!(tokens.len() as u64, VOCABULARY);
    let mut kinds = [TEXT; VOCABULARY as usize];
    kinds[0] = CONTROL;
    for &(token, text, kind) in other {
        tokens[token] = text.into();
        kinds[token] = kind;
    }
    let kinds = kinds.into_iter();
    let kinds = array(I32, VOCABULARY, kinds.map(i32::to_le_bytes));
    model
        .key("tokenizer.ggml.model", STRING, string("gpt2"))
        .key("tokenizer.ggml.pre", STRING, string("gpt-2"))
        .key("tokenizer.ggml.tokens", ARRAY, strings(&tokens))
        .key("tokenizer.ggml.token_type", ARRAY, kinds)
        .key("tokenizer.ggml.merges", ARRAY, strings(&merges))
        .key("tokenizer.ggml.bos_token_id", U32, 0u32.to_le_bytes())
        .key("tokenizer.ggml.add_bos_token", BOOL, [u8::from(bos)])
}

/// Builds the model with the tensors that are `kept`.
fn builder(seed: u32, scale: f32, kept: impl Fn(&str) -> bool) -> Builder {
    let mut b = Builder::new().key("general.architecture", STRING, string("llama"));
    b = b.key("general.size_label", STRING, string("58K"));
    let numbers = [
        ("context_length", 256),
        ("embedding_length", EMBEDDING),
        ("block_count", 2),
        ("feed_forward_length", FEED_FORWARD),
        ("attention.head_count", HEADS),
        ("attention.head_count_kv", 1),
    ];
    for (key, number) in numbers {
        b = b.key(format!("llama.{key}"), U32, (number as u32).to_le_bytes());
    }
    b = b.key("llama.attention.layer_norm_rms_epsilon", F32, 1e-5f32.to_le_bytes());
    let mut tensors = vec![
        ("token_embd.weight".to_string(), vec![EMBEDDING, VOCABULARY]),
        ("output_norm.weight".to_string(), vec![EMBEDDING]),
    ];
    for layer in 0..2 {
        let (e, f, heads) = (EMBEDDING, FEED_FORWARD, HEADS * HEAD_DIM);
        for (name, dims) in [
            ("attn_q", vec![e, heads]),
            ("attn_k", vec![e, HEAD_DIM]),
            ("attn_v", vec![e, HEAD_DIM]),
            ("attn_output", vec![heads, e]),
            ("ffn_gate", vec![e, f]),
            ("ffn_up", vec![e, f]),
            ("ffn_down", vec![f, e]),
            ("attn_norm", vec![e]),
            ("ffn_norm", vec![e]),
        ] {
            tensors.push((format!("blk.{layer}.{name}.weight"), dims));
        }
    }
    with_weights(b, tensors, seed, scale, kept)
}

/// Adds tensors of random weights that are `kept`.
fn with_weights(
    mut b: Builder,
    tensors: Vec<(String, Vec<u64>)>,
    seed: u32,
    scale: f32,
    kept: impl Fn(&str) -> bool,
) -> Builder {
    let mut state = seed;
    for (name, dims) in tensors {
        let weights = (0..dims.iter().product::<u64>()).flat_map(|_| {
            state = state.wrapping_mul(1664525).wrapping_add(1013904223);
            let weight = (state >> 8) as f32 / (1 << 27) as f32 - 0.0625;
            (scale * weight).to_le_bytes()
        });
        let weights: Vec<u8> = weights.collect();
        if kept(&name) {
            b = b.append(&name, &dims, 0, weights);
        }
    }
    b
}
