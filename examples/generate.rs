//! Continues a text with a model, at twice the context that the model was trained for.
//!
//! usage: cargo run --release --example generate -- MODEL.gguf TEXT

use std::{error::Error, io::Write, ops::ControlFlow};

use rope_cpu::{
    generate::{Event, Limits, generate},
    model::{Model, Options, Session},
    rope::{Flags, Rope, Scaling},
    sample::{Sampler, Settings},
    tokenizer::{Ends, Special},
};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [path, text] = &arguments[..] else { return Err("usage: generate MODEL TEXT".into()) };
    let model = Model::open(path)?;
    let tokenizer = model.tokenizer()?;

    let context = 2 * model.config().context_train;
    let flags = Flags { scaling: Some(Scaling::Yarn), scale: Some(2.0), ..Flags::default() };
    let plan = model.rope_plan(&flags, context)?;
    eprintln!("{plan}");

    let mut session = Session::new(&model, Rope::new(plan), Options::new(context))?;
    let mut sampler = Sampler::new(Settings::default())?;
    let limits = Limits { tokens_max: Some(64), ..Limits::default() };
    let tokens = tokenizer.encode(text, Special::AsText, Ends::Add);
    generate(&mut session, tokenizer, &mut sampler, &tokens, &limits, &mut |event| {
        if let Event::Text(text) = event {
            print!("{text}");
            let _ = std::io::stdout().flush();
        }
        ControlFlow::Continue(())
    })?;
    println!();
    Ok(())
}
