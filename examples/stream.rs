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
    batch::{Request, Update},
    chat::{Message, Role},
    generate::{Limits, Stops},
    model::Model,
    runtime::{Runtime, Settings},
};

const TIME_LIMIT: Duration = Duration::from_secs(20);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [path, text] = &arguments[..] else { return Err("usage: stream MODEL QUESTION".into()) };
    let model = Model::open(path)?;
    let context = Some(2048.min(model.config().context_train).into());
    let runtime = Runtime::new(model.clone(), &Settings { context, ..Settings::default() })?;
    let template = model.chat_template()?.ok_or("the model has no chat template")?;
    let prompt = template.render(&[Message::new(Role::User, text)], &[], true)?;
    let prompt = model.tokenizer()?.encode_chat(&prompt);
    // The answer stops before its second paragraph.
    let limits = Limits { stops: Stops::new(["\n\n"]), ..Limits::default() };
    let started = Instant::now();
    let request = Request { limits, ..Request::new(prompt) };
    let answer = runtime.answer(request, &mut |update| {
        if let Update::Generated(piece) = update {
            print!("{}", piece.text);
            let _ = io::stdout().flush();
        }
        // Called after each part of the prompt and each token. Breaking stops the answer.
        match started.elapsed() < TIME_LIMIT {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    println!();
    eprintln!("{} tokens, ended by {:?}", answer.tokens.len(), answer.outcome.end);
    Ok(())
}
