//! Answers a question, printing each token as it is generated, and cancels an answer that takes too
//! long.
//!
//! usage: cargo run --release --example stream -- MODEL.gguf QUESTION

use std::{
    error::Error,
    io::{self, Write},
    ops::ControlFlow,
    time::{Duration, Instant},
};

use rope_cpu::{
    chat::{Message, Role},
    generate::{Event, Limits, Stops, generate},
    model::Model,
    rope::Flags,
    sample::{Sampler, Settings},
};

const TIME_LIMIT: Duration = Duration::from_secs(20);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [path, text] = &arguments[..] else { return Err("usage: stream MODEL QUESTION".into()) };
    let model = Model::open(path)?;
    let mut session = model.session(&Flags::default(), 2048.min(model.config().context_train))?;
    let mut sampler = Sampler::new(Settings::default())?;
    let template = model.chat_template()?.ok_or("the model has no chat template")?;
    let prompt = template.render(&[Message::new(Role::User, text)], &[], true)?;
    let prompt = model.tokenizer()?.encode_chat(&prompt);
    // The answer stops before its second paragraph.
    let limits = Limits { stops: Stops::new(["\n\n"]), ..Limits::default() };
    let started = Instant::now();
    let answer = generate(&mut session, &mut sampler, &prompt, &limits, &mut |event| {
        if let Event::Text(text) = event {
            print!("{text}");
            let _ = io::stdout().flush();
        }
        // Called after each micro-batch of the prompt and each token. Breaking stops the answer.
        match started.elapsed() < TIME_LIMIT {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    println!();
    eprintln!("{} tokens, ended by {:?}", answer.tokens.len(), answer.end);
    Ok(())
}
