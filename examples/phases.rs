//! Computes a model on one thread, and prints what its phases permit on more: how long the largest
//! share of each phase takes, if memory is no limit.
//!
//! usage: cargo run --release --example phases -- MODEL.gguf

use std::{error::Error, ops::ControlFlow, time::Duration};

use rope_cpu::{
    model::{Model, Options, Session},
    platform::processors::Workers,
    rope::{Flags, Rope},
    threads::RecordedPhase,
};

const PROMPT: usize = 512;
const GENERATED: usize = 16;
/// From the end of a phase to the start of the next one.
const BARRIER: Duration = Duration::from_micros(2);
/// The speed of an efficiency core.
const SLOW: f64 = 0.5;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: phases MODEL")?;
    let model = Model::open(path)?;
    let context = PROMPT + GENERATED;
    let rope = Rope::new(model.rope_plan(&Flags::default(), context)?);
    let options = Options { threads: Workers::from(1), ..Options::new(context) };
    let mut session = Session::new(&model, rope, options)?;
    let prompt: Vec<_> = (0..PROMPT as u32).map(|i| 1 + i % 250).collect();
    let progress = &mut |_| ControlFlow::Continue(());

    session.parts().0.threads().record();
    session.extend(&prompt, progress)?;
    let of_prompt = session.parts().0.threads().record();
    for _ in 0..GENERATED {
        session.answer(1, progress)?;
    }
    let of_answers = session.parts().0.threads().record();

    println!("| | phases | tasks, median | 4 | 8 | 12 | 16 | 4 and 8 slow ones |");
    println!("|---|--:|--:|--:|--:|--:|--:|--:|");
    row("prompt of 512 tokens", &of_prompt, 1);
    row("generated token", &of_answers, GENERATED);
    Ok(())
}

/// Prints the share of each team's speed that the phases reach.
fn row(title: &str, phases: &[RecordedPhase], steps: usize) {
    let alone: Duration = phases.iter().map(|phase| phase.time).sum();
    let mut tasks: Vec<_> = phases.iter().map(|phase| phase.tasks).collect();
    tasks.sort_unstable();
    print!("| {title} | {} | {} |", phases.len() / steps, tasks[tasks.len() / 2]);
    for (fast, slow) in [(4, 0), (8, 0), (12, 0), (16, 0), (4, 8)] {
        let speeds = [vec![1.0; fast], vec![SLOW; slow]].concat();
        let time: Duration = phases.iter().map(|phase| phase.time_on(&speeds) + BARRIER).sum();
        let reached = alone.as_secs_f64() / time.as_secs_f64() / speeds.iter().sum::<f64>();
        print!(" {:.0} % |", 100.0 * reached);
    }
    println!();
}
