//! Inconsistent vocabularies: each fault has its own error.

use rope_cpu::{
    gguf::{Array, Metadata, Value, ValueType},
    tokenizer::{Ends, Kind, Special, Tokenizer},
};

/// The bytes of arrays, which live as long as the metadata that borrows them.
#[derive(Default)]
pub struct Keys {
    strings: Vec<(&'static str, String)>,
    numbers: Vec<(&'static str, u32)>,
    flags: Vec<(&'static str, bool)>,
    arrays: Vec<(&'static str, ValueType, usize, Vec<u8>)>,
}

impl Keys {
    pub fn string(mut self, key: &'static str, value: &str) -> Self {
        self.strings.retain(|(k, _)| *k != key);
        self.strings.push((key, value.into()));
        self
    }

    pub fn number(mut self, key: &'static str, value: u32) -> Self {
        self.numbers.push((key, value));
        self
    }

    pub fn flag(mut self, key: &'static str, value: bool) -> Self {
        self.flags.push((key, value));
        self
    }

    pub fn array(
        mut self,
        key: &'static str,
        element: ValueType,
        len: usize,
        bytes: Vec<u8>,
    ) -> Self {
        self.arrays.retain(|(k, ..)| *k != key);
        self.arrays.push((key, element, len, bytes));
        self
    }

    pub fn texts(self, key: &'static str, texts: &[&[u8]]) -> Self {
        let bytes = texts
            .iter()
            .flat_map(|text| [&(text.len() as u64).to_le_bytes()[..], text].concat())
            .collect();
        self.array(key, ValueType::String, texts.len(), bytes)
    }

    pub fn tokens(self, texts: &[&str]) -> Self {
        let texts: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
        self.texts("tokenizer.ggml.tokens", &texts)
    }

    pub fn merges(self, texts: &[&str]) -> Self {
        let texts: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
        self.texts("tokenizer.ggml.merges", &texts)
    }

    pub fn types(self, types: &[i32]) -> Self {
        let bytes = types.iter().flat_map(|t| t.to_le_bytes()).collect();
        self.array("tokenizer.ggml.token_type", ValueType::I32, types.len(), bytes)
    }

    pub fn suppressed(self, tokens: &[i32]) -> Self {
        let bytes = tokens.iter().flat_map(|t| t.to_le_bytes()).collect();
        self.array("tokenizer.ggml.suppress_tokens", ValueType::I32, tokens.len(), bytes)
    }

    pub fn scores(self, scores: &[f32]) -> Self {
        let bytes = scores.iter().flat_map(|s| s.to_le_bytes()).collect();
        self.array("tokenizer.ggml.scores", ValueType::F32, scores.len(), bytes)
    }

    pub fn without(mut self, key: &str) -> Self {
        self.strings.retain(|(k, _)| *k != key);
        self.arrays.retain(|(k, ..)| *k != key);
        self
    }

    pub fn metadata(&self) -> Metadata<'_> {
        let mut metadata = Metadata::default();
        for (key, value) in &self.strings {
            metadata.insert(key, Value::String(value.as_bytes()));
        }
        for (key, value) in &self.numbers {
            metadata.insert(key, Value::U32(*value));
        }
        for (key, value) in &self.flags {
            metadata.insert(key, Value::Bool(*value));
        }
        for (key, element, len, bytes) in &self.arrays {
            metadata.insert(key, Value::Array(Array { element: *element, len: *len, bytes }));
        }
        metadata
    }

    pub fn refused(&self) -> String {
        Tokenizer::from_metadata(&self.metadata()).expect_err("a fault").to_string()
    }
}

const BPE: [&str; 6] = ["a", "b", "ab", "<|im_end|>", "<tag>", "Ġ"];

fn bpe() -> Keys {
    Keys::default()
        .string("tokenizer.ggml.model", "gpt2")
        .string("tokenizer.ggml.pre", "gpt-2")
        .tokens(&BPE)
        .types(&[1, 1, 1, 3, 4, 1])
        .merges(&["a b"])
}

/// The 256 bytes, and `<unk>`, `▁`, `a`, `▁a`.
fn spm() -> Keys {
    let bytes: Vec<String> = (0..256).map(|byte| format!("<0x{byte:02X}>")).collect();
    let mut tokens = vec!["<unk>"];
    tokens.extend(bytes.iter().map(String::as_str));
    tokens.extend(["▁", "a", "▁a"]);
    let mut types = vec![6; 260];
    types[0] = 2;
    types[257..].fill(1);
    Keys::default()
        .string("tokenizer.ggml.model", "llama")
        .tokens(&tokens)
        .types(&types)
        .scores(&[0.0; 260])
}

#[test]
fn the_vocabularies_are_sound_without_a_fault() {
    let bpe = bpe();
    let metadata = bpe.metadata();
    let tokenizer = Tokenizer::from_metadata(&metadata).unwrap();
    assert_eq!(tokenizer.encode("ab ab", Special::AsText, Ends::Add), [2, 5, 2]);
    assert_eq!((tokenizer.bos(), tokenizer.eos()), (None, None));

    let spm = spm();
    let metadata = spm.metadata();
    let tokenizer = Tokenizer::from_metadata(&metadata).unwrap();
    // BOS, `▁a`, and the two bytes of `é`.
    assert_eq!(tokenizer.encode("aé", Special::AsText, Ends::Add), [1, 259, 0xc3 + 1, 0xa9 + 1]);
    assert_eq!(tokenizer.decode(&[259, 0xc3 + 1, 0xa9 + 1], false), "aé".as_bytes());
}

#[test]
fn a_text_is_appended_without_the_space_of_a_first_word() {
    let spm = spm();
    let metadata = spm.metadata();
    let tokenizer = Tokenizer::from_metadata(&metadata).unwrap();
    let mut tokens = Vec::new();
    for expected in [&[259][..], &[259, 258], &[259, 258, 259]] {
        let text = if expected.len() == 3 { " a" } else { "a" };
        tokenizer.append(&mut tokens, text, Special::AsText);
        assert_eq!(tokens, expected);
    }
}

#[test]
fn control_and_user_defined_tokens_are_special() {
    let bpe = bpe();
    let metadata = bpe.metadata();
    let tokenizer = Tokenizer::from_metadata(&metadata).unwrap();
    let special = BPE.map(|text| tokenizer.special(text));
    assert_eq!(special, [None, None, None, Some(3), Some(4), None]);
    assert_eq!((tokenizer.control(BPE[3]), tokenizer.control(BPE[4])), (Some(3), None));
    for text in ["<|im_end|>", "<tag>"] {
        let tokens = tokenizer.encode(text, Special::Parse, Ends::Omit);
        assert_eq!(tokens, tokenizer.special(text).into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn each_fault_is_named() {
    let mut texts: Vec<&[u8]> = BPE.iter().map(|text| text.as_bytes()).collect();
    texts[1] = b"\xffb";
    let faults = [
        (bpe().without("tokenizer.ggml.model"), "tokenizer.ggml.model is missing"),
        (bpe().string("tokenizer.ggml.model", "rwkv"), "\"rwkv\" is not supported"),
        (bpe().without("tokenizer.ggml.pre"), "tokenizer.ggml.pre is missing"),
        (bpe().string("tokenizer.ggml.pre", ""), "tokenizer.ggml.pre is missing"),
        (bpe().string("tokenizer.ggml.pre", "default"), "\"default\" is not supported"),
        (bpe().without("tokenizer.ggml.tokens"), "tokenizer.ggml.tokens is missing"),
        (bpe().without("tokenizer.ggml.merges"), "tokenizer.ggml.merges is missing"),
        (bpe().tokens(&[]), "no tokens"),
        (bpe().texts("tokenizer.ggml.tokens", &texts), "token 1 is not valid UTF-8: \"\\xffb\""),
        (
            bpe().tokens(&["a", "b", "ab", "x", "a", "y"]),
            "tokens 0 and 4 have the same text: \"a\"",
        ),
        (bpe().types(&[1; 5]), "tokenizer.ggml.token_type has 5 elements"),
        (bpe().types(&[1, 1, 1, 7, 4, 1]), "token 3 has the type 7"),
        (bpe().scores(&[0.0; 7]), "tokenizer.ggml.scores has 7 elements"),
        (bpe().scores(&[0.0, 0.0, f32::NAN, 0.0, 0.0, 0.0]), "token 2 has the score NaN"),
        (bpe().merges(&["ab"]), "merge 0, \"ab\", is not two tokens"),
        (bpe().merges(&["a b", "a c"]), "merge 1, \"a c\", needs the token \"c\""),
        (bpe().merges(&["b a"]), "needs the token \"ba\""),
        (bpe().texts("tokenizer.ggml.merges", &[b"a \xff"]), "merge 0"),
        (bpe().number("tokenizer.ggml.bos_token_id", 6), "bos_token_id is token 6"),
        (bpe().number("tokenizer.ggml.eot_token_id", 99), "eot_token_id is token 99"),
        (bpe().suppressed(&[0, 6]), "tokenizer.ggml.suppress_tokens is token 6"),
        (bpe().suppressed(&[-1]), "tokenizer.ggml.suppress_tokens is token -1"),
        (bpe().number("tokenizer.ggml.suppress_tokens", 1), "where an array of whole numbers"),
        (
            bpe().flag("tokenizer.ggml.add_bos_token", true),
            ", which holds the token to add, is missing",
        ),
        (bpe().flag("tokenizer.ggml.add_eos_token", true), "tokenizer.ggml.eos_token_id"),
        (bpe().string("tokenizer.ggml.pre", "llama-bpe"), "tokenizer.ggml.add_bos_token"),
        (bpe().string("tokenizer.ggml.add_bos_token", "yes"), "where true or false is expected"),
        (spm().without("tokenizer.ggml.scores"), "tokenizer.ggml.scores is missing"),
        (spm().without("tokenizer.ggml.token_type"), "tokenizer.ggml.token_type is missing"),
        (
            Keys { arrays: bpe().scores(&[0.0; 6]).arrays, ..spm() },
            "no token for the byte 0x00: <0x00> is missing",
        ),
    ];
    for (keys, message) in faults {
        let found = keys.refused();
        assert!(found.contains(message), "{found:?} does not say {message:?}");
    }
}

#[test]
fn well_known_texts_become_control_tokens_that_end_an_answer() {
    let keys = bpe().types(&[1; 6]);
    let metadata = keys.metadata();
    let tokenizer = Tokenizer::from_metadata(&metadata).unwrap();
    assert_eq!(tokenizer.kind(3), Kind::Control);
    assert!(tokenizer.is_end_of_generation(3));
    assert_eq!(tokenizer.encode("<|im_end|>", Special::Parse, Ends::Omit), [3]);
    assert_eq!(tokenizer.piece(3, false), &b""[..]);
    assert_eq!(tokenizer.piece(3, true), &b"<|im_end|>"[..]);
}

#[test]
fn parts_of_an_answer_do_not_end_it() {
    let texts = ["<|end|>", "<|return|>", "<|call|>", "<|channel|>", "</s>", "<|tool_response>"];
    let keys = bpe().tokens(&texts).types(&[3; 6]).merges(&[]);
    let metadata = keys.metadata();
    let tokenizer = Tokenizer::from_metadata(&metadata).unwrap();
    assert_eq!(tokenizer.end_of_generation().collect::<Vec<_>>(), [1, 2, 5]);
    let kinds = [0, 3, 4].map(|token| tokenizer.kind(token));
    assert_eq!(kinds, [Kind::UserDefined, Kind::UserDefined, Kind::Normal]);
}

#[test]
fn the_longest_special_token_anywhere_comes_first() {
    let keys =
        bpe().tokens(&["<a", "a><b", "<", "b", ">", "a"]).types(&[4, 4, 1, 1, 1, 1]).merges(&[]);
    let metadata = keys.metadata();
    let tokenizer = Tokenizer::from_metadata(&metadata).unwrap();
    assert_eq!(tokenizer.encode("<a><b>", Special::AsText, Ends::Omit), [2, 1, 4]);
    assert_eq!(tokenizer.encode("<a>", Special::AsText, Ends::Omit), [0, 4]);
}

#[test]
fn chats_get_bos_once() {
    let keys =
        bpe().number("tokenizer.ggml.bos_token_id", 4).flag("tokenizer.ggml.add_bos_token", true);
    let metadata = keys.metadata();
    let tokenizer = Tokenizer::from_metadata(&metadata).unwrap();
    assert_eq!(tokenizer.encode_chat("<tag>ab<|im_end|>"), [4, 2, 3]);
    assert_eq!(tokenizer.encode_chat("ab<|im_end|>"), [4, 2, 3]);
    // Only the model's own BOS and EOS are removed; a text that begins with two keeps the second.
    assert_eq!(tokenizer.encode_chat("<tag><tag>a"), [4, 4, 0]);
}
