//! Small vocabularies of each kind.

use rope_cpu_testing::builder::{
    ARRAY, BOOL, Builder, F32, I32, STRING, U32, array, string, strings,
};

/// The names of all pre-tokenizers that differ, for vocabularies of bytes.
pub const PRE_TOKENIZERS: &[&str] = &[
    "gpt-2",
    "smollm",
    "llama-bpe",
    "dbrx",
    "glm4",
    "minicpm5",
    "qwen2",
    "qwen35",
    "laguna",
    "ufakzeka",
    "bailingmoe",
    "seed-coder",
    "exaone-moe",
    "tekken",
    "gpt-4o",
    "youtu",
    "falcon",
    "deepseek-llm",
    "deepseek-coder",
    "deepseek-v3",
    "spark2_5",
    "cohere2moe",
    "chameleon",
    "bloom",
    "viking",
];

/// Adds the byte-level BPE vocabulary with this pre-tokenizer: control tokens, all bytes, and some
/// merges, cut to `len` tokens.
pub fn bpe(b: Builder, pre: &str, len: usize) -> Builder {
    let mut tokens: Vec<String> =
        ["<s>", "</s>", "<|im_start|>", "<|im_end|>"].map(Into::into).into();
    let mut kinds = vec![3i32; tokens.len()];
    tokens.extend((0..=255).map(|byte| letter(byte).to_string()));
    let mut merges = Vec::new();
    for merge in ["Ġ t", "h e", "Ġt he", "i n", "Ċ Ċ", "1 2", "Ã ©", "e r", "Ġ Ġ", "ĠĠ ĠĠ", "l l"]
    {
        tokens.push(merge.replace(' ', ""));
        merges.push(merge);
    }
    tokens.truncate(len);
    merges.retain(|merge| tokens.contains(&merge.replace(' ', "")));
    while tokens.len() < len {
        tokens.push(format!("[unused{}]", tokens.len()));
    }
    kinds.resize(len, 1);
    ends(list(b, "gpt2", &tokens, &kinds)).key("tokenizer.ggml.pre", STRING, string(pre)).key(
        "tokenizer.ggml.merges",
        ARRAY,
        strings(&merges),
    )
}

/// Returns a SentencePiece vocabulary: control tokens, all bytes, and pieces with scores.
pub fn spm() -> Builder {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>", "<|im_end|>"].map(Into::into).into();
    let mut kinds = vec![2, 3, 3, 4];
    tokens.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    kinds.resize(tokens.len(), 6);
    tokens.extend(
        ["▁", "▁t", "he", "▁the", "in", "▁▁", "é", "語", "\n", "\n\n", "ab", "abc"].map(Into::into),
    );
    tokens.extend(('a'..='z').map(String::from));
    kinds.resize(tokens.len(), 1);
    let scores = (0..tokens.len()).map(|at| (-(at as f32)).to_le_bytes());
    let scores = array(F32, tokens.len() as u64, scores);
    ends(list(Builder::new(), "llama", &tokens, &kinds)).key("tokenizer.ggml.scores", ARRAY, scores)
}

/// Returns a WordPiece vocabulary.
pub fn wordpiece() -> Builder {
    let tokens = [
        "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "▁the", "▁a", "b", "c", "▁t", "he", "▁é",
        "▁,", "1",
    ];
    let mut kinds = [1; 14];
    kinds[..5].fill(3);
    let b = list(Builder::new(), "bert", &tokens.map(String::from), &kinds);
    let roles = [
        ("unknown", 1u32),
        ("cls", 2),
        ("seperator", 3),
        ("padding", 0),
        ("mask", 4),
        ("bos", 2),
        ("eos", 3),
    ];
    roles.iter().fold(b, |b, (role, token)| {
        b.key(format!("tokenizer.ggml.{role}_token_id"), U32, token.to_le_bytes())
    })
}

fn list(b: Builder, model: &str, tokens: &[String], kinds: &[i32]) -> Builder {
    let kinds = array(I32, kinds.len() as u64, kinds.iter().map(|kind| kind.to_le_bytes()));
    b.key("tokenizer.ggml.model", STRING, string(model))
        .key("tokenizer.ggml.tokens", ARRAY, strings(tokens))
        .key("tokenizer.ggml.token_type", ARRAY, kinds)
}

fn ends(b: Builder) -> Builder {
    b.key("tokenizer.ggml.bos_token_id", U32, 1u32.to_le_bytes())
        .key("tokenizer.ggml.eos_token_id", U32, 2u32.to_le_bytes())
        .key("tokenizer.ggml.add_bos_token", BOOL, [1])
}

/// Returns the character that stands for a byte in vocabularies of byte-level BPE.
fn letter(byte: u8) -> char {
    let shown = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let hidden_before = (0..byte).filter(|byte| !shown(byte)).count() as u32;
    match shown(&byte) {
        true => char::from(byte),
        false => char::from_u32(256 + hidden_before).expect("a character"),
    }
}
