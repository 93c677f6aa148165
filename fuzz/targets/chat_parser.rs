//! An answer is parsed into text, reasoning and calls, which do not depend on where it is cut.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::{arbitrary::Arbitrary, fuzz_target};
use rope_cpu_chat::{Format, Template, ToolChoice};
use rope_cpu_fuzz::answers::{read, tools};

include!("../../crates/chat/tests/chat/templates.rs");

static FORMATS: LazyLock<Vec<Format>> = LazyLock::new(|| {
    let of = |source: &str| Template::new(source, "<bos>", "</s>").expect("a template").format();
    TEMPLATES.iter().map(|(.., source)| of(source)).collect()
});

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    format: u8,
    choice: u8,
    reasons: bool,
    prompt: &'a str,
    cuts: [u16; 4],
    text: &'a str,
}

fuzz_target!(|input: Input| {
    let format = FORMATS[usize::from(input.format) % FORMATS.len()].clone();
    let format = if input.reasons { format } else { format.without_reasoning() };
    let choices =
        [ToolChoice::Auto, ToolChoice::None, ToolChoice::Required, ToolChoice::Named("add".into())];
    let tools = tools(choices[usize::from(input.choice) % 4].clone());
    let text = input.text;
    let whole = read(format.parser(input.prompt, &tools), [text]);
    let letters = read(format.parser(input.prompt, &tools), text.split_inclusive(|_: char| true));
    assert_eq!(whole, letters);
    let mut cuts =
        input.cuts.map(|cut| text.floor_char_boundary(usize::from(cut) % (text.len() + 1)));
    cuts.sort_unstable();
    let starts = [0].into_iter().chain(cuts);
    let pieces =
        starts.zip(cuts.into_iter().chain([text.len()])).map(|(start, end)| &text[start..end]);
    assert_eq!(whole, read(format.parser(input.prompt, &tools), pieces));
});
