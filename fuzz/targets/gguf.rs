//! A model of any family with changes in its metadata and tensors is opened and computes tokens, or
//! is refused.
#![no_main]

use std::ops::ControlFlow::Continue;

use libfuzzer_sys::{arbitrary::Arbitrary, fuzz_target};
use rope_cpu::{
    model::Session,
    rope::{Flags, Rope},
    tokenizer::{Ends, Special},
};
use rope_cpu_fuzz::{
    damage::{Edit, damaged},
    models,
};

#[derive(Arbitrary, Debug)]
struct Input {
    family: u8,
    edits: Vec<Edit>,
}

fuzz_target!(|input: Input| {
    let bytes = damaged(models::file(input.family).clone(), &input.edits);
    let Some(model) = models::open(&bytes) else { return };
    if let Ok(tokenizer) = model.tokenizer() {
        let tokens = tokenizer.encode("the é 12\n\n<|im_end|>", Special::Parse, Ends::Add);
        tokenizer.decode(&tokens, true);
    }
    let Ok(plan) = model.rope_plan(&Flags::default(), 48) else { return };
    let session = Session::new(&model, Rope::new(plan), models::options(48));
    let Ok(mut session) = session else { return };
    let vocabulary = session.vocabulary() as u32;
    let tokens = [1, 0, 7, 3, 4].map(|token| token % vocabulary.max(1));
    let read = session.evaluate(&tokens, 0..5, &mut |_, logits| {
        assert_eq!(logits.len(), vocabulary as usize);
    });
    if read.is_ok() {
        let _ = session.answer(tokens[2], &mut |_| Continue(()));
    }
});
