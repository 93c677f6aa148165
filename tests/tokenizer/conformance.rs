//! llama.cpp's own test vocabularies, with the tokens that each text must give.

use std::fs;

use rope_cpu::{
    Token,
    gguf::{File, Gguf},
    tokenizer::{Ends, Error, Special, Tokenizer},
};

use crate::tokenizer::files::with_tokenizer;
use rope_cpu_testing::models::fetched;

const SCRIPT: &str = "fetch-vocabularies";
const SEPARATOR: &str = "\n__ggml_vocab_test__\n";

fn conforms(vocabulary: &str) {
    let name = format!("vocab/ggml-vocab-{vocabulary}.gguf");
    let Some(path) = fetched(&name, SCRIPT) else { return };
    let read = |suffix: &str| fs::read_to_string(format!("{}{suffix}", path.display())).unwrap();
    let texts = read(".inp");
    let tokens = read(".out");
    let (mut texts, tokens): (Vec<_>, Vec<_>) =
        (texts.split(SEPARATOR).collect(), tokens.lines().collect());
    // A separator follows the last text too.
    texts.truncate(tokens.len());
    assert_eq!(texts.len(), tokens.len());
    assert!(texts.len() > 40);
    with_tokenizer(&path, |tokenizer| {
        for (text, tokens) in texts.iter().zip(&tokens) {
            let expected: Vec<Token> =
                tokens.split_whitespace().map(|token| token.parse().unwrap()).collect();
            let found = tokenizer.encode(text, Special::AsText, Ends::Omit);
            assert_eq!(found, expected, "{text:?}");
        }
    });
}

macro_rules! vocabularies {
    ($($test:ident: $name:literal),* $(,)?) => {
        $(#[test] fn $test() { conforms($name); })*
    };
}

vocabularies! {
    bert_bge: "bert-bge",
    command_r: "command-r",
    deepseek_coder: "deepseek-coder",
    deepseek_llm: "deepseek-llm",
    falcon: "falcon",
    gemma_4: "gemma-4",
    gpt_2: "gpt-2",
    llama_bpe: "llama-bpe",
    llama_spm: "llama-spm",
    mpt: "mpt",
    phi_3: "phi-3",
    qwen2: "qwen2",
    qwen35: "qwen35",
    refact: "refact",
    starcoder: "starcoder",
}

/// A text and its tokens.
type Parsed = (&'static str, &'static [Token]);

/// Tokens from llama.cpp for special tokens that are written out. The tokens of Phi 3 remove the
/// white space after them.
#[test]
fn special_tokens_are_found_as_by_llama_cpp() {
    let cases: [(&str, &[Token], &[Parsed]); 4] = [
        (
            "phi-3",
            &[2, 32000, 32007],
            &[
                ("<|user|>\n Hi  <|end|> \t\n<|assistant|>", &[32010, 6324, 259, 32007, 32001]),
                (
                    "<s>  a</s>  b<|endoftext|> c<unk> d",
                    &[1, 259, 263, 2, 289, 32000, 29871, 274, 0, 29871, 270],
                ),
                ("<|user|> \n <|end|>", &[32010, 32007]),
                (" x <|user|>", &[29871, 921, 29871, 32010]),
                ("<|system|>\u{a0}y", &[32006, 20246, 29891]),
            ],
        ),
        (
            "llama-spm",
            &[2],
            &[
                ("<s> a</s>b", &[1, 29871, 263, 2, 289]),
                (" <s>", &[259, 1]),
                ("a<unk>b<0x0A>", &[263, 0, 289, 29966, 29900, 29916, 29900, 29909, 29958]),
            ],
        ),
        (
            "llama-bpe",
            &[128001, 128009],
            &[
                (
                    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>",
                    &[128000, 128006, 882, 128007, 271, 13347, 128009],
                ),
                ("<|eot_id|>\n<|eom_id|>", &[128009, 198, 27, 91, 68, 316, 851, 91, 29]),
            ],
        ),
        (
            "qwen2",
            // The first is `</s>`, a normal token that ends an answer in llama.cpp.
            &[128247, 151643, 151645],
            &[(
                "<|im_start|>user\nHi<|im_end|>\n<|endoftext|>",
                &[151644, 872, 198, 13048, 151645, 198, 151643],
            )],
        ),
    ];
    for (vocabulary, ends, texts) in cases {
        let name = format!("vocab/ggml-vocab-{vocabulary}.gguf");
        let Some(path) = fetched(&name, SCRIPT) else { return };
        with_tokenizer(&path, |tokenizer| {
            assert!(tokenizer.end_of_generation().eq(ends.iter().copied()), "{vocabulary}");
            for (text, expected) in texts {
                let found = tokenizer.encode(text, Special::Parse, Ends::Omit);
                assert_eq!(found, *expected, "{vocabulary} {text:?}");
            }
        });
    }
}

fn refusal(vocabulary: &str) -> Option<String> {
    let path = fetched(&format!("vocab/ggml-vocab-{vocabulary}.gguf"), SCRIPT)?;
    let file = File::open(&path).unwrap();
    let gguf = Gguf::parse(file.bytes(), &[]).unwrap();
    let error: Error = Tokenizer::from_metadata(gguf.metadata()).unwrap_err();
    Some(error.to_string())
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    for (vocabulary, words) in [
        ("nomic-bert-moe", ["\"t5\"", "gpt2"]),
        ("aquila", ["tokenizer.ggml.pre is missing", "qwen2"]),
        ("gpt-neox", ["tokenizer.ggml.pre is missing", "`override_kv`"]),
    ] {
        let Some(message) = refusal(vocabulary) else { return };
        assert!(words.iter().all(|word| message.contains(word)), "{vocabulary}: {message}");
    }
}
