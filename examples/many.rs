//! Answers 50 questions at a time, which share the first part of their prompt, and prints the answers and
//! the tokens per second of all together.
//!
//! usage: cargo run --release --example many -- MODEL.gguf

use std::{error::Error, sync::mpsc, time::Instant};

use rope_cpu::{
    batch::{Options, Request, Scheduler, Update},
    chat::{Message, Role},
    generate::Limits,
    model::{self, Engine, Model},
    rope::{Flags, Rope},
    sample::{Settings, temperature},
};

const QUESTIONS: usize = 50;
const SLOTS: usize = 8;
const CONTEXT: usize = 1024;
const INSTRUCTIONS: &str =
    "You are a patient teacher of arithmetic. Answer with one short sentence.";

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: many MODEL")?;
    let model = Model::open(path)?;
    let rope = Rope::new(model.rope_plan(&Flags::default(), CONTEXT)?);
    let engine = Engine::new(&model, rope, model::Options::new(CONTEXT))?;
    let tokenizer = model.tokenizer()?;
    let template = model.chat_template()?.ok_or("the model has no chat template")?;
    let mut scheduler = Scheduler::new(engine, tokenizer, Options::new(SLOTS), Default::default());

    let (sender, updates) = mpsc::channel();
    for number in 0..QUESTIONS {
        let question = format!("What is {number} plus {}?", 2 * number);
        let messages =
            [Message::new(Role::System, INSTRUCTIONS), Message::new(Role::User, &question)];
        let prompt = tokenizer.encode_chat(&template.render(&messages, &[], true)?);
        let request = Request {
            limits: Limits { tokens_max: Some(32), ..Limits::default() },
            sampling: Settings::default().with(&temperature::TEMPERATURE, 0.0),
            ..Request::new(prompt)
        };
        let sender = sender.clone();
        // The main thread receives the updates after each step. If it has stopped, nobody needs them.
        scheduler.submit(request, move |update| drop(sender.send((number, update))));
    }

    let started = Instant::now();
    let mut answers = vec![String::new(); QUESTIONS];
    let (mut generated, mut read, mut reused) = (0, 0, 0);
    while !scheduler.is_idle() {
        scheduler.step();
        for (number, update) in updates.try_iter() {
            match update {
                Update::Generated(piece) => answers[number] += &piece.text,
                Update::Ended(outcome) => {
                    println!("{number:2}: {}", answers[number].trim());
                    generated += outcome.timings.generated;
                    read += outcome.timings.read;
                    reused += outcome.timings.reused;
                }
                Update::Failed(error) => return Err(error.into()),
                _ => {}
            }
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{generated} tokens in {seconds:.1} s: {:.1} per second; {read} tokens of prompts were \
         processed, {reused} reused",
        generated as f64 / seconds
    );
    Ok(())
}
