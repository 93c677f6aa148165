//! Any RoPE settings for any model give a plan or an explanation.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::{arbitrary::Arbitrary, fuzz_target};
use rope_cpu::{
    model::Model,
    rope::{Flags, Layers, METHODS, Rope, parameters},
};
use rope_cpu_fuzz::{
    damage::{Edit, damaged},
    models,
    number::Number,
};

static MODELS: LazyLock<Vec<Model>> =
    LazyLock::new(|| models::FILES.iter().filter_map(|file| models::open(&file.bytes())).collect());

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    family: u8,
    context: Number,
    text: &'a str,
    settings: Vec<(u8, Text<'a>)>,
    for_context: bool,
    context_shift: bool,
    edits: Vec<Edit>,
}

/// The text of a setting.
#[derive(Arbitrary, Debug)]
enum Text<'a> {
    Integer(Number),
    Float(f64),
    Method(u8),
    Word(u8),
    Any(&'a str),
}

const WORDS: &[&str] = &[
    "auto", "on", "off", "run", "full", "turns", "exact", "whole", "true", "1k", "0.5", "-1",
    "grow",
];

impl Text<'_> {
    fn get(&self) -> String {
        match self {
            Text::Integer(number) => number.get().to_string(),
            Text::Float(number) => number.to_string(),
            Text::Method(at) => METHODS[usize::from(*at) % METHODS.len()].name.into(),
            Text::Word(at) => WORDS[usize::from(*at) % WORDS.len()].into(),
            Text::Any(text) => (*text).into(),
        }
    }
}

fuzz_target!(|input: Input| {
    let Some(flags) = flags(&input) else { return };
    let context = input.context.get() as usize;
    if input.edits.is_empty() {
        return plan(&MODELS[usize::from(input.family) % MODELS.len()], &flags, context);
    }
    let bytes = damaged(models::file(input.family).clone(), &input.edits);
    models::open(&bytes).iter().for_each(|model| plan(model, &flags, context));
});

fn flags(input: &Input) -> Option<Flags> {
    // A name of a file could be any device.
    let no_file = |text: &str| !text.contains('/');
    let first = if no_file(input.text) { input.text } else { "" };
    let mut flags: Flags = if first.is_empty() { Flags::default() } else { first.parse().ok()? };
    let parameters: Vec<_> = parameters().collect();
    for (which, text) in input.settings.iter().take(6) {
        let (parameter, text) = (parameters[usize::from(*which) % parameters.len()], text.get());
        if no_file(&text) {
            flags = flags.parsed(parameter.setting.0, &text).ok()?;
        }
    }
    Some(Flags { for_context: input.for_context, context_shift: input.context_shift, ..flags })
}

fn plan(model: &Model, flags: &Flags, context: usize) {
    let plan = match model.rope_plan(flags, context) {
        Ok(plan) => plan,
        Err(e) => return assert!(!e.to_string().is_empty()),
    };
    let _ = (plan.formulas(), plan.to_string(), plan.baked(), plan.effect(100, 4));
    let mut rope = Rope::new(plan);
    for tokens in [1, 100] {
        let length = rope.effective_length(tokens);
        assert!(rope.scale(Layers::Global, length).is_finite());
        if rope.prepare(Layers::Global, length, 0..4).is_ok() {
            let row = rope.row(Layers::Global, length, 3);
            assert!(row.iter().all(|x| x.is_finite()), "{}", rope.plan());
        }
    }
}
