//! Renders conversations and parses answers, for `scripts/chat-conformance`: a list of cases in JSON
//! on the standard input, a list of results on the standard output.

use std::{
    collections::{HashMap, hash_map::Entry},
    io,
};

use rope_cpu_chat::{Error, Event, Format, Message, Template, Tool, ToolChoice, Tools};
use serde::Deserialize;
use serde_json::{Map, Value, json};

#[derive(Deserialize)]
struct Case {
    template: String,
    bos: String,
    eos: String,
    arguments: Map<String, Value>,
    messages: Vec<Message>,
    tools: Vec<Tool>,
    add_generation_prompt: bool,
    answer: Option<String>,
    /// Whether the answer stops early.
    is_partial: bool,
    /// Whether reasoning is a separate part.
    reasons: bool,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cases: Vec<Case> = rope_cpu_json::parse(&io::read_to_string(io::stdin())?)?;
    // A template finds its format once.
    let mut templates = HashMap::new();
    let results = cases.into_iter().map(|case| result(case, &mut templates));
    let results: Vec<_> = results.collect();
    println!("{}", Value::from(results));
    Ok(())
}

fn result(case: Case, templates: &mut HashMap<(String, String), Template>) -> Value {
    let thinks = case.arguments.get("enable_thinking") != Some(&Value::Bool(false));
    let arguments = Value::Object(case.arguments).to_string();
    let template = match templates.entry((case.template, arguments)) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(new) => {
            let (source, arguments) = new.key();
            let template = Template::new(source, &case.bos, &case.eos)
                .and_then(|template| template.arguments(arguments));
            match template {
                Ok(template) => new.insert(template),
                Err(error) => return json!({"fails": error.to_string()}),
            }
        }
    };
    let format = template.format();
    let name = format.name();
    match template.render(&case.messages, &case.tools, case.add_generation_prompt) {
        Ok(text) => {
            let answer = case.answer.map(|answer| {
                let tools = Tools::new(case.tools, ToolChoice::Auto, true);
                // As the server does.
                let prompt = match thinks {
                    true => text.clone(),
                    false => format.skip_reasoning(text.clone()),
                };
                let format = if case.reasons { format } else { format.without_reasoning() };
                tools.map(|tools| parse(&format, &prompt, &tools, &answer, case.is_partial))
            });
            match answer {
                Some(Err(error)) => json!({"fails": error.to_string()}),
                Some(Ok(answer)) => json!({"format": name, "text": text, "answer": answer}),
                None => json!({"format": name, "text": text}),
            }
        }
        Err(Error::Refused { message }) => json!({"format": name, "refused": message}),
        Err(error) => json!({"format": name, "fails": error.to_string()}),
    }
}

/// Parses an answer, in one piece and by single characters.
fn parse(format: &Format, prompt: &str, tools: &Tools, answer: &str, is_partial: bool) -> Value {
    let whole = read(format, prompt, tools, &[answer], is_partial);
    let characters: Vec<_> = answer.split_inclusive(|_: char| true).collect();
    let pieces = read(format, prompt, tools, &characters, is_partial);
    if whole == pieces { whole } else { json!({"whole": whole, "pieces": pieces}) }
}

fn read(format: &Format, prompt: &str, tools: &Tools, pieces: &[&str], is_partial: bool) -> Value {
    let mut parser = format.parser(prompt, tools);
    let mut events: Vec<_> = pieces.iter().flat_map(|piece| parser.push(piece)).collect();
    if !is_partial {
        events.extend(parser.finish());
    }
    let (mut text, mut reasoning) = (String::new(), String::new());
    let mut calls: Vec<(String, Option<String>, String)> = Vec::new();
    for event in events {
        match event {
            Event::Text(piece) => text += &piece,
            Event::Reasoning(piece) => reasoning += &piece,
            Event::Call { name, id, .. } => calls.push((name, id, String::new())),
            Event::Arguments(piece) => {
                if let Some((.., arguments)) = calls.last_mut() {
                    *arguments += &piece;
                }
            }
            Event::CallEnd => {}
        }
    }
    json!({"text": text, "reasoning": reasoning, "calls": calls})
}
