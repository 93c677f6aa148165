//! Decoding the tokens of any text returns the text.

use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use rope_cpu::tokenizer::{Ends, Special, Stream, Tokenizer};

use crate::tokenizer::files::with_tokenizer;
use rope_cpu_testing::models::fetched;

/// Generates text of any characters, of few characters that merge often, and of token texts.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "\\PC{0,40}",
        "[a-zA-Z' \\r\\n\\t0-9.é\u{301}語\u{3000}]{0,60}",
        prop::collection::vec(
            prop_oneof![
                Just("<|endoftext|>"),
                Just("<s>"),
                Just("</s>"),
                Just("<|im_end|>"),
                Just("<unk>"),
                Just("<0x0A>"),
                Just("▁"),
                Just("Ġ"),
                Just(" a"),
                Just("\n"),
            ],
            0..12
        )
        .prop_map(|parts| parts.concat()),
    ]
}

fn holds(vocabulary: &str, test: impl Fn(&Tokenizer, String)) {
    let name = format!("vocab/ggml-vocab-{vocabulary}.gguf");
    let Some(path) = fetched(&name, "fetch-vocabularies") else { return };
    with_tokenizer(&path, |tokenizer| {
        let config = Config { failure_persistence: None, ..Config::with_cases(400) };
        let mut runner = TestRunner::new(config);
        let run = |text| {
            test(tokenizer, text);
            Ok(())
        };
        runner.run(&text(), run).unwrap();
    });
}

fn bytes_come_back(tokenizer: &Tokenizer, text: String) {
    for special in [Special::AsText, Special::Parse] {
        let tokens = tokenizer.encode(&text, special, Ends::Omit);
        assert_eq!(tokenizer.decode(&tokens, true), text.as_bytes());
        let mut stream = Stream::default();
        let mut streamed = String::new();
        for token in tokens {
            streamed += &stream.push(&tokenizer.piece(token, true));
        }
        assert_eq!(streamed + &stream.finish(), text);
    }
}

#[test]
fn gpt_2_gives_back_every_text() {
    holds("gpt-2", bytes_come_back);
}

#[test]
fn llama_bpe_gives_back_every_text() {
    holds("llama-bpe", bytes_come_back);
}

#[test]
fn qwen2_gives_back_every_text() {
    holds("qwen2", bytes_come_back);
}

#[test]
fn llama_spm_gives_back_every_text_but_for_its_spelling_of_spaces() {
    holds("llama-spm", |tokenizer, text| {
        let tokens = tokenizer.encode(&text, Special::AsText, Ends::Omit);
        assert_eq!(tokenizer.decode(&tokens, true), text.replace('▁', " ").as_bytes());
    });
}
