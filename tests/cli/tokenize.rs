//! `tokenize` and `detokenize`, with llama-tokenize's output.

use rope_cpu_testing::models::fetched;

use crate::cli::{Run, run};

/// Runs a command with a model in models/. Without the model the test is skipped.
fn printed(model: &str, line: &[&str]) -> Option<Run> {
    let path = fetched(model, "check downloads")?;
    let (command, rest) = line.split_first().unwrap();
    Some(run(&[&[command, "-m", path.to_str().unwrap()], rest].concat()))
}

const SMOLLM2: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
const LLAMA: &str = "vocab/ggml-vocab-llama-spm.gguf";

#[test]
fn each_token_has_a_line_with_its_text() {
    let line = ["tokenize", "-p", r"<|im_start|>user\nHi there", "--show-count"];
    let Some(found) = printed(SMOLLM2, &line) else { return };
    let expected = "     1 -> '<|im_start|>'\n  4093 -> 'user'\n   198 -> '\n'\n 26843 -> 'Hi'\n   665 \
                    -> ' there'\nTotal number of tokens: 5\n";
    assert_eq!(found.stdout, expected);
}

#[test]
fn ids_are_a_list_and_flags_do_as_they_say() {
    for (line, expected) in [
        (&["tokenize", "-p", "Hello", "--ids"][..], "[1, 15043]\n"),
        (&["tokenize", "-p", "Hello", "--ids", "--no-bos"], "[15043]\n"),
        (&["tokenize", "-p", "", "--ids", "--no-bos"], "[]\n"),
        (&["tokenize", "-p", "<s>", "--ids", "--log-disable"], "[1, 1]\n"),
        (&["tokenize", "-p", "<s>", "--ids", "--no-parse-special"], "[1, 529, 29879, 29958]\n"),
        (&["tokenize", "-p", r"a\n", "--ids", "--no-bos"], "[263, 13]\n"),
        (&["tokenize", "-p", r"a\n", "--ids", "--no-bos", "--no-escape"], "[263, 29905, 29876]\n"),
        (&["tokenize", "-p", "-x", "--ids", "--no-bos"], "[448, 29916]\n"),
        (&["tokenize", "-p", r"\xff", "--ids", "--no-bos"], "[29871, 258]\n"),
    ] {
        let Some(found) = printed(LLAMA, line) else { return };
        assert_eq!(found.stdout, expected, "{line:?}");
    }
}

#[test]
fn tokens_become_text_again() {
    for (line, expected) in [
        (&["detokenize", "15043", "3186"][..], "Hello world"),
        (&["detokenize", "[15043,", "3186]"], "Hello world"),
        (&["detokenize", "[1, 15043]"], "<s> Hello"),
        (&["detokenize", "263", "13"], "a\n"),
    ] {
        let Some(found) = printed(LLAMA, line) else { return };
        assert_eq!(found.stdout, expected, "{line:?}");
    }
}

#[test]
fn bad_usage_is_named() {
    for (line, message) in [
        (&["tokenize"][..], "--prompt, --file or --stdin"),
        (&["tokenize", "-f", "no/such/file"], "cannot read no/such/file"),
        (&["detokenize", "1", "x2"], "\"x2\" is not a token ID"),
        (&["detokenize", "32000"], "there is no token 32000: the vocabulary has 32000"),
    ] {
        let Some(found) = printed(LLAMA, line) else { return };
        found.refused(2, &[message]);
    }
    let overridden = ["tokenize", "-p", "a", "--override-kv", "tokenizer.ggml.pre=str:nonsense"];
    let Some(found) = printed(SMOLLM2, &overridden) else { return };
    found.refused(2, &[SMOLLM2, "\"nonsense\" is not supported"]);
}
