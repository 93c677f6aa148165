//! Continues a text with a model, at twice the context that the model was trained for.
//!
//! usage: cargo run --release --example generate -- MODEL.gguf TEXT

use std::{error::Error, ops::ControlFlow::Continue};

use rope_cpu::{
    generate::{Limits, generate},
    model::Model,
    rope::{Flags, SCALE},
    sample::{Sampler, Settings},
    tokenizer::{Ends, Special},
};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [path, text] = &arguments[..] else { return Err("usage: generate MODEL TEXT".into()) };
    let model = Model::open(path)?;
    let flags = Flags::method("yarn").with(&SCALE, 2.0);
    let mut session = model.session(&flags, 2 * model.config().context_train)?;
    let mut sampler = Sampler::new(Settings::default())?;
    let prompt = model.tokenizer()?.encode(text, Special::AsText, Ends::Add);
    let limits = Limits { tokens_max: Some(64), ..Limits::default() };
    let answer = generate(&mut session, &mut sampler, &prompt, &limits, &mut |_| Continue(()))?;
    println!("{text}{}", answer.text);
    Ok(())
}
