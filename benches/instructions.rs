//! Runs one computation once, for a tool that counts the instructions of [`measured`] and of the
//! workers of a model: `scripts/instructions` does so, and compares them with those recorded.
//! `scripts/instructions-aarch64` compares two ISAs.
//!
//! usage: instructions list|NAME [MODEL.gguf [ISA]]

mod cases;

use std::{error::Error, hint::black_box, ops::ControlFlow::Continue};

use cases::{ATTENTIONS, PRODUCTS};
use rope_cpu::{
    model::{Model, Options, Session},
    rope::{Flags, Rope},
};
use rope_cpu_kernels::{Cpu, DType, cache::CacheType};

/// What a model reads: name, tokens of a prompt, tokens of an answer.
const PASSES: [(&str, usize, usize); 2] = [("model/prompt", 64, 0), ("model/answer", 0, 8)];

/// The computation. Its name is what a tool looks for.
#[inline(never)]
fn measured<T>(computation: impl FnOnce() -> T) -> T {
    black_box(computation())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let (name, model, isa) = match &arguments[..] {
        [name] => (name, None, None),
        [name, model] => (name, Some(model), None),
        [name, model, isa] => (name, Some(model), Some(isa)),
        _ => return Err("usage: instructions list|NAME [MODEL.gguf [ISA]]".into()),
    };
    let cpu = match isa {
        Some(isa) => Cpu::named(isa).ok_or("this CPU does not have the ISA")?,
        None => Cpu::named("avx2").or(Cpu::named("neon")).ok_or("neither AVX2 nor NEON")?,
    };
    for (kernel, regime, tokens) in PRODUCTS {
        for dtype in DType::ALL {
            found(name, &format!("{kernel}/{}", dtype.name()), || {
                let mut case = cases::product(dtype, regime, tokens);
                measured(|| case(cpu));
            });
        }
    }
    for (kernel, attention) in ATTENTIONS {
        for dtype in CacheType::ALL {
            found(name, &format!("{kernel}/{}", dtype.name()), || {
                let mut case = cases::attention(dtype, attention);
                measured(|| case(cpu));
            });
        }
    }
    for (pass, prompt, answer) in PASSES {
        if name == "list" {
            println!("{pass}");
        } else if name == pass {
            let model = Model::open(model.ok_or("a model is missing")?)?;
            let rope = Rope::new(model.rope_plan(&Flags::default(), 256)?);
            let options = Options { cpu, threads: 1.into(), ..Options::new(256) };
            let mut session = Session::new(&model, rope, options)?;
            let tokens: Vec<u32> = (100..100 + (prompt + answer) as u32).collect();
            session.extend(&tokens[..prompt], &mut |_| Continue(()))?;
            for &token in &tokens[prompt..] {
                session.answer(token, &mut |_| Continue(()))?;
            }
        }
    }
    Ok(())
}

/// Runs the computation if it is the one that is asked for, or prints its name if a list is.
fn found(asked: &str, name: &str, computation: impl FnOnce()) {
    if asked == "list" {
        println!("{name}");
    } else if asked == name {
        computation();
    }
}
