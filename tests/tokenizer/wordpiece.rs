//! WordPiece: normalization, words and their tokens, with a small vocabulary.

use rope_cpu::tokenizer::{Ends, Special, Tokenizer};

use crate::tokenizer::faults::Keys;

const VOCABULARY: [&str; 16] = [
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "▁a",
    "▁ab",
    "b",
    "c",
    "▁e",
    "▁!",
    "▁中",
    "▁文",
    "▁É",
    "▁é",
    "▁\u{1112}",
    "\u{1161}",
    "▁x",
];

fn bert() -> Keys {
    let mut types = [1; VOCABULARY.len()];
    types[..3].fill(3);
    Keys::default()
        .string("tokenizer.ggml.model", "bert")
        .tokens(&VOCABULARY)
        .types(&types)
        .number("tokenizer.ggml.unknown_token_id", 0)
        .number("tokenizer.ggml.cls_token_id", 1)
        .number("tokenizer.ggml.seperator_token_id", 2)
}

fn tokens(keys: Keys, text: impl AsRef<[u8]>) -> Vec<u32> {
    let metadata = keys.metadata();
    let tokenizer = Tokenizer::from_metadata(&metadata).unwrap();
    tokenizer.encode(text, Special::AsText, Ends::Omit)
}

#[test]
fn words_are_cut_into_the_longest_tokens() {
    for (text, expected) in [
        ("", &[][..]),
        ("ab", &[4]),
        ("abbc", &[4, 5, 6]),
        ("acb ab", &[3, 6, 5, 4]),
        // A word without tokens for all of it is unknown as a whole.
        ("abx", &[0]),
        ("b", &[0]),
        ("ab abx a", &[4, 0, 3]),
    ] {
        assert_eq!(tokens(bert(), text), expected, "{text:?}");
    }
}

#[test]
fn texts_are_normalized() {
    for (text, expected) in [
        ("AB", &[4][..]),
        ("É e\u{301}", &[7, 7]),
        ("a\tb\na", &[3, 0, 3]),
        // Control characters, and bytes that are not text, are removed.
        ("a\u{7}b\u{200b}\u{fffd}", &[4]),
        ("a!ab!!", &[3, 8, 4, 8, 8]),
        ("a中文ab", &[3, 9, 10, 4]),
        // A syllable of Hangul becomes its letters.
        ("하", &[13, 14]),
    ] {
        assert_eq!(tokens(bert(), text), expected, "{text:?}");
    }
    assert_eq!(tokens(bert(), b"a\xff\xfeb"), [4]);
}

#[test]
fn a_file_may_keep_capitals_and_accents() {
    let flag = |key, value| bert().flag(key, value);
    let lowercase = "tokenizer.ggml.normalizer.lowercase";
    assert_eq!(tokens(flag(lowercase, false), "É AB"), [11, 0]);
    let accents = "tokenizer.ggml.normalizer.strip_accents";
    assert_eq!(tokens(flag(accents, false), "É AB"), [12, 4]);
    assert_eq!(tokens(flag(lowercase, false).flag(accents, true), "É ab"), [0, 4]);
}

#[test]
fn a_word_of_more_than_a_hundred_characters_is_unknown() {
    let word = |len: usize| format!("a{}", "b".repeat(len - 1));
    assert_eq!(tokens(bert(), word(100)).len(), 99);
    assert_eq!(tokens(bert(), word(101)), [0]);
}

#[test]
fn a_text_is_between_cls_and_sep() {
    let keys = bert().flag("tokenizer.ggml.add_eos_token", false);
    let metadata = keys.metadata();
    let tokenizer = Tokenizer::from_metadata(&metadata).unwrap();
    let all = tokenizer.encode("ab!", Special::AsText, Ends::Add);
    assert_eq!(all, [1, 4, 8, 2]);
    assert_eq!(tokenizer.decode(&all, false), b"ab !");
    let parsed = tokenizer.encode("a[SEP]b", Special::Parse, Ends::Omit);
    assert_eq!(parsed, [3, 2, 0]);
}
