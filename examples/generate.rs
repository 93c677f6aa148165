//! Continues a text with a model, at twice the context that the model was trained for.
//!
//! usage: cargo run --release --example generate -- MODEL.gguf TEXT

use std::{error::Error, ops::ControlFlow::Continue};

use rope_cpu::{
    batch::Request,
    generate::Limits,
    model::Model,
    rope::{Flags, SCALE},
    runtime::{Runtime, Settings},
    tokenizer::{Ends, Special},
};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [path, text] = &arguments[..] else { return Err("usage: generate MODEL TEXT".into()) };
    let model = Model::open(path)?;
    let context = Some((2 * model.config().context_train).into());
    let rope = Flags::method("yarn").with(&SCALE, 2.0);
    let runtime = Runtime::new(model, &Settings { context, rope, ..Settings::default() })?;
    let prompt = runtime.model().tokenizer()?.encode(text, Special::AsText, Ends::Add);
    let limits = Limits { tokens_max: Some(64), ..Limits::default() };
    let request = Request { limits, ..Request::new(prompt) };
    let answer = runtime.answer(request, &mut |_| Continue(()))?;
    println!("{text}{}", answer.text);
    Ok(())
}
