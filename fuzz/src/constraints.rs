//! Answers under grammars.

use std::{
    panic::{self, PanicHookInfo},
    sync::LazyLock,
};

use rope_cpu_constraint::{Constraint, Grammar, Vocabulary, Word};

/// Maximum tokens of an answer.
const TOKENS_MAX: usize = 24;

static VOCABULARY: LazyLock<Vocabulary> = LazyLock::new(|| {
    let bytes = (0..=255u8).map(|byte| vec![byte]);
    let texts = ["true", "null", "{\"", "\": ", "the ", "12", "é", "\n\n"].map(|text| text.into());
    let words = bytes.chain(texts).map(|text| Word::Text(text.into()));
    let control = ["<end>", "<|tool|>"].map(Word::Control);
    Vocabulary::new(words.chain(control), &[264]).expect("a vocabulary")
});

/// llguidance catches its own panics, which are then errors. libFuzzer's hook would end the process.
pub fn tolerate_panics_of_llguidance() {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |info: &PanicHookInfo| {
        let theirs = ["llguidance", "derivre", "toktrie"];
        let file = info.location().map_or("", |location| location.file());
        if !(file.contains("registry") && theirs.iter().any(|name| file.contains(name))) {
            hook(info);
        }
    }));
}

/// Compiles a grammar, and writes an answer that it permits; `choices` chooses the tokens.
pub fn answer(grammar: &Grammar, choices: &[u8]) {
    let Ok(mut constraint) = Constraint::new(&VOCABULARY, grammar) else { return };
    for choice in choices.iter().take(TOKENS_MAX) {
        let mut logits = [0.0f32; 266];
        let Ok(()) = constraint.restrict(&mut logits) else { return };
        let permitted: Vec<u32> =
            (0..).zip(logits).filter(|(_, x)| *x == 0.0).map(|(i, _)| i).collect();
        assert!(!permitted.is_empty(), "no token may follow");
        let token = permitted[usize::from(*choice) % permitted.len()];
        let accepted = constraint.accept(token);
        accepted.unwrap_or_else(|e| panic!("{token} was permitted: {e}"));
        if constraint.is_complete() {
            return;
        }
        let _ = constraint.may_end();
    }
}

/// Splits an input into a text and the choices after its last zero byte.
pub fn parts(input: &[u8]) -> Option<(String, &[u8])> {
    let end = input.iter().rposition(|byte| *byte == 0);
    let (text, choices) = end.map_or((input, &[][..]), |end| (&input[..end], &input[end + 1..]));
    Some((std::str::from_utf8(text).ok()?.into(), choices))
}
