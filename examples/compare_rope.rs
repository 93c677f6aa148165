//! Compares RoPE methods by the probability that they give to the end of a text.
//!
//! usage: cargo run --release --example compare_rope -- MODEL.gguf TEXT.txt

use std::{error::Error, fs};

use rope_cpu::{
    model::Model,
    rope::Flags,
    tokenizer::{Ends, Special},
};

/// The number of last tokens that are scored.
const SCORED: usize = 256;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [path, text] = &arguments[..] else { return Err("usage: compare_rope MODEL TEXT".into()) };
    let model = Model::open(path)?;
    let tokenizer = model.tokenizer()?;
    let tokens = tokenizer.encode(&fs::read_to_string(text)?, Special::AsText, Ends::Add);
    let (count, context) = (tokens.len(), tokens.len().max(1));
    let scored = count.saturating_sub(SCORED + 1)..count.saturating_sub(1);

    println!("{count} tokens, trained length {}", model.config().context_train);
    for scaling in ["none", "linear", "ntk", "yarn"] {
        // Without a factor, a method uses the one that reaches the context.
        let mut session = model.session(&Flags::method(scaling), context)?;
        let mut nll = 0.0;
        session.evaluate(&tokens, scored.clone(), &mut |i, logits| {
            let sum: f64 = logits.iter().map(|&logit| f64::from(logit).exp()).sum();
            nll += sum.ln() - f64::from(logits[tokens[i + 1] as usize]);
        })?;
        println!("{scaling:<8} perplexity {:.2}", (nll / scored.len() as f64).exp());
    }
    Ok(())
}
