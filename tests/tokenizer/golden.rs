//! Compares real models with llama.cpp, on texts of many languages and on hostile ones. The
//! expected tokens were made by `scripts/make-tokenizer-golden`.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use rope_cpu::{
    Token,
    gguf::{File, Gguf},
    json,
    tokenizer::{Ends, Special, Tokenizer},
};
use serde::Deserialize;

use crate::tokenizer::files::with_tokenizer;
use rope_cpu_testing::{models::fetched, on_each_case, time::processor_time};

#[derive(Deserialize)]
struct Golden {
    bos: Token,
    eos: Token,
    /// The tokens of `Hello`, with BOS and EOS if the model requires them.
    with_ends: Vec<Token>,
    end_of_generation: Vec<Token>,
    cases: Vec<Case>,
    pieces: Vec<Piece>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Case {
    Same(String, Vec<Token>),
    /// The second list has the tokens with special tokens parsed, if they differ.
    Differs(String, Vec<Token>, Vec<Token>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Piece {
    Same(Token, String),
    /// Special tokens are hidden in the second.
    Differs(Token, String, String),
}

/// A model with the results of llama.cpp.
fn model(name: &str) -> Option<(PathBuf, Golden)> {
    let (file, golden) = match name {
        "smollm2" => {
            ("SmolLM2-135M-Instruct.Q4_1.gguf", include_str!("../data/tokenizer/smollm2.json"))
        }
        _ => ("gemma-3-270m-q4_k_m.gguf", include_str!("../data/tokenizer/gemma3.json")),
    };
    Some((fetched(file, "fetch-models --all")?, json::parse(golden).unwrap()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes that SmolLM2's vocabulary lacks: invalid in UTF-8, or absent from its training text.
fn lost(byte: &u8) -> bool {
    matches!(byte, 4 | 6 | 19 | 20 | 22 | 29 | 192 | 193 | 241 | 242 | 245..)
}

fn conforms(name: &str) {
    let Some((path, golden)) = model(name) else { return };
    with_tokenizer(&path, |tokenizer| {
        assert!(golden.cases.len() > 400);
        let mut special = 0;
        for case in &golden.cases {
            let (text, plain, parsed) = match case {
                Case::Same(text, tokens) => (text, tokens, tokens),
                Case::Differs(text, plain, parsed) => (text, plain, parsed),
            };
            special += usize::from(plain != parsed);
            assert_eq!(tokenizer.encode(text, Special::AsText, Ends::Omit), *plain, "{text:?}");
            assert_eq!(tokenizer.encode(text, Special::Parse, Ends::Omit), *parsed, "{text:?}");
        }
        assert!(special > 15);
        for piece in &golden.pieces {
            let (token, full, bare) = match piece {
                Piece::Same(token, piece) => (*token, piece, piece),
                Piece::Differs(token, full, bare) => (*token, full, bare),
            };
            assert_eq!(hex(&tokenizer.piece(token, true)), *full, "{token}");
            assert_eq!(hex(&tokenizer.piece(token, false)), *bare, "{token}");
        }
    });
}

#[test]
fn smollm2_conforms() {
    conforms("smollm2");
}

#[test]
fn gemma3_conforms() {
    conforms("gemma3");
}

on_each_case!(pre_tokenizer_conforms {
    gpt_2(), smollm(), llama_bpe(), dbrx(), glm4(), minicpm5(), qwen2(), qwen35(), laguna(),
    ufakzeka(), bailingmoe(), seed_coder(), exaone_moe(), tekken(), gpt_4o(), youtu(), falcon(),
    deepseek_llm(), deepseek_coder(), deepseek_v3(), spark2_5(), cohere2moe(), chameleon(),
    bloom(), viking(), gemma4(), bert(),
});

/// Every pre-tokenizer on the texts of a model above, with the vocabulary of Llama 3. The tokens of
/// BERT are from Hugging Face's tokenizers. In the names of tests, `-` is `_`.
fn pre_tokenizer_conforms(test: &str) {
    let sums: HashMap<String, Vec<u32>> =
        json::parse(include_str!("../data/tokenizer/pre.json")).unwrap();
    assert_eq!(sums.len(), 27);
    let (name, sums) = sums.into_iter().find(|(name, _)| name.replace('-', "_") == test).unwrap();
    let texts: Golden = json::parse(include_str!("../data/tokenizer/smollm2.json")).unwrap();
    let texts: Vec<String> = texts
        .cases
        .into_iter()
        .map(|(Case::Same(text, _) | Case::Differs(text, ..))| text)
        .collect();
    let (vocabulary, overrides) = match &*name {
        "gemma4" => ("gemma-4", vec![]),
        "bert" => ("bert-bge", vec![]),
        _ => ("llama-bpe", vec![format!("tokenizer.ggml.pre=str:{name}").parse().unwrap()]),
    };
    let file = format!("vocab/ggml-vocab-{vocabulary}.gguf");
    let Some(path) = fetched(&file, "fetch-vocabularies") else { return };
    let file = File::open(&path).unwrap();
    let gguf = Gguf::parse(file.bytes(), &overrides).unwrap();
    let tokenizer = Tokenizer::from_metadata(gguf.metadata()).unwrap();
    assert_eq!(texts.chunks(8).len(), sums.len());
    for (texts, sum) in texts.chunks(8).zip(sums) {
        assert_eq!(checksum(&tokenizer, texts), sum, "{name}: {texts:?}");
    }
}

/// FNV-1a of the numbers of the tokens, with -1 after each text.
fn checksum(tokenizer: &Tokenizer, texts: &[String]) -> u32 {
    let tokens = texts.iter().flat_map(|text| {
        let tokens = tokenizer.encode(text, Special::AsText, Ends::Omit);
        tokens.into_iter().chain([Token::MAX])
    });
    tokens.fold(0x811c_9dc5, |state: u32, token| (state ^ token).wrapping_mul(0x0100_0193))
}

#[test]
fn tokens_with_a_role_are_those_of_llama_cpp() {
    for name in ["smollm2", "gemma3"] {
        let Some((path, golden)) = model(name) else { return };
        with_tokenizer(&path, |tokenizer| {
            assert_eq!((tokenizer.bos(), tokenizer.eos()), (Some(golden.bos), Some(golden.eos)));
            assert_eq!(tokenizer.encode("Hello", Special::AsText, Ends::Add), golden.with_ends);
            assert!(tokenizer.end_of_generation().eq(golden.end_of_generation.iter().copied()));
            assert!(golden.end_of_generation.iter().all(|&t| tokenizer.is_end_of_generation(t)));
        });
    }
}

#[test]
fn texts_come_back_from_their_tokens() {
    for name in ["smollm2", "gemma3"] {
        let Some((path, golden)) = model(name) else { return };
        with_tokenizer(&path, |tokenizer| {
            for case in &golden.cases {
                let (Case::Same(text, _) | Case::Differs(text, ..)) = case;
                for special in [Special::AsText, Special::Parse] {
                    comes_back(tokenizer, text, special, name == "smollm2");
                }
            }
        });
    }
}

fn comes_back(tokenizer: &Tokenizer, text: &str, special: Special, loses: bool) {
    let tokens = tokenizer.encode(text, special, Ends::Omit);
    let expected: Vec<u8> = text.bytes().filter(|byte| !(loses && lost(byte))).collect();
    let pieces: Vec<u8> =
        tokens.iter().flat_map(|&t| tokenizer.piece(t, true).into_owned()).collect();
    // SentencePiece uses this character for spaces, so it decodes to a space.
    let spelled = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace('▁', " ");
    assert_eq!(spelled(&pieces), spelled(&expected), "{text:?}");
    assert_eq!(tokenizer.decode(&tokens, true), pieces, "{text:?}");
}

#[test]
fn a_vocabulary_of_a_quarter_million_tokens_loads_quickly() {
    let Some((path, _)) = model("gemma3") else { return };
    let started = processor_time();
    with_tokenizer(&path, |tokenizer| assert_eq!(tokenizer.len(), 262_144));
    // Loading takes about 50 ms; the limit allows for a slow machine but not for a slow algorithm.
    let took = processor_time() - started;
    assert!(took.as_millis() < 2000, "{took:?}");
}

/// SentencePiece takes as many bytes for a character as its first byte says. BPE replaces each byte that
/// is not part of a character.
#[test]
fn texts_need_not_be_utf8() {
    let text = b"the r\xe4in \xff\xe2\x82 \xf0\x9f! \xc3\xa9\x80";
    let gemma3 = [
        1437, 637, 466, 343, 348, 236743, 493, 464, 368, 464, 388, 367, 478, 397, 271, 464, 388,
        367, 236859, 366,
    ];
    let smollm2 =
        [1195, 412, 24211, 254, 216, 24211, 24211, 24211, 216, 24211, 24211, 17, 26411, 24211];
    for (name, expected) in [("gemma3", &gemma3[..]), ("smollm2", &smollm2)] {
        let Some((path, _)) = model(name) else { return };
        assert_eq!(tokens(&path, text), expected, "{name}");
    }
}

/// Characters of more bytes than they need, and surrogates, are characters to BPE.
#[test]
fn texts_may_have_what_utf8_excludes() {
    let longer = b"a\xc0\x80b\xc1\x81 \xe0\x83\xa9";
    let surrogates = b"x\xed\xa0\xbd\xed\xb8\x80";
    let Some((smollm2, _)) = model("smollm2") else { return };
    let Some(gemma4) = fetched("vocab/ggml-vocab-gemma-4.gguf", "fetch-vocabularies") else {
        return;
    };
    assert_eq!(tokens(&smollm2, longer), [81, 190, 82, 49, 26411]);
    assert_eq!(tokens(&smollm2, surrogates), [104, 184, 250, 138, 184, 133, 218]);
    assert_eq!(tokens(&gemma4, longer), [236746, 238, 236763, 236776, 1559]);
    assert_eq!(tokens(&gemma4, surrogates), [236781, 475, 398, 427, 475, 422, 366]);
}

fn tokens(path: &Path, text: &[u8]) -> Vec<Token> {
    let mut tokens = Vec::new();
    with_tokenizer(path, |tokenizer| {
        tokens = tokenizer.encode(text, Special::AsText, Ends::Omit);
    });
    tokens
}
