//! llama.cpp's own test vocabularies, with the tokens that each text must give.

use std::fs;

use rope_cpu::{
    Token,
    gguf::{File, Gguf},
    tokenizer::{Ends, Error, Special, Tokenizer},
};

use crate::files::{fetched, with_tokenizer};

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
    // llama.cpp's reader takes a separator at the very end for one between texts, as we do not.
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
    command_r: "command-r",
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
        ("bert-bge", ["\"bert\"", "llama"]),
        ("nomic-bert-moe", ["\"t5\"", "gpt2"]),
        ("gemma-4", ["\"gemma4\"", "llama"]),
        ("falcon", ["\"falcon\"", "--override-kv tokenizer.ggml.pre=str:NAME"]),
        ("deepseek-llm", ["\"deepseek-llm\"", "smollm"]),
        ("deepseek-coder", ["\"deepseek-coder\"", "llama-bpe"]),
        ("aquila", ["tokenizer.ggml.pre is missing", "qwen2"]),
        ("gpt-neox", ["tokenizer.ggml.pre is missing", "--override-kv"]),
    ] {
        let Some(message) = refusal(vocabulary) else { return };
        assert!(words.iter().all(|word| message.contains(word)), "{vocabulary}: {message}");
    }
}
