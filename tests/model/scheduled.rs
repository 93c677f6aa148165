//! The answers of a scheduler with drafts.

use std::sync::{Arc, mpsc};

use rope_cpu::{
    Token,
    batch::{self, Request, Scheduler, Update},
    generate::{
        Limits, Timings,
        speculation::{Count, Drafter, Speculation},
    },
    model::Engine,
    sample::{Settings, temperature},
};

/// Answers all prompts twice, in three slots: the second time each prompt continues its first answer.
/// Each slot has three drafts of a `drafter`, if there is one. `ended` receives the timings of each
/// answer. Returns the texts.
pub fn scheduled(
    engine: Engine,
    mut prompts: Vec<Vec<Token>>,
    drafter: Option<impl Fn() -> Box<dyn Drafter>>,
    ended: impl Fn(&Timings),
) -> Vec<Vec<Token>> {
    let speculation = |_| match &drafter {
        Some(drafter) => Speculation::new(vec![drafter()], Count::Always(3)),
        None => Speculation::none(),
    };
    let speculations = (0..3).map(speculation).collect();
    let options = batch::Options { speculations, ..batch::Options::new(3) };
    let model = engine.model().clone();
    let tokenizer = model.tokenizer().unwrap();
    let mut scheduler = Scheduler::new(engine, tokenizer, options, Arc::default());
    let (sender, updates) = mpsc::channel();
    for _ in 0..2 {
        for (index, prompt) in prompts.iter().enumerate() {
            let limits = Limits { tokens_max: Some(40), ignore_end: true, ..Limits::default() };
            let sampling = Settings { seed: Some(3), ..Settings::default() };
            let sampling = sampling.with(&temperature::TEMPERATURE, 0.2);
            let request = Request { limits, sampling, ..Request::new(prompt.clone()) };
            let sender = sender.clone();
            let reply = move |update: Update| sender.send((index, update)).unwrap();
            scheduler.submit(request, reply);
        }
        while !scheduler.is_idle() {
            scheduler.step();
        }
        let mut count = 0;
        for (index, update) in updates.try_iter() {
            match update {
                Update::Generated(generated) => prompts[index].extend(generated.token),
                Update::Ended(outcome) => {
                    count += 1;
                    ended(&outcome.timings);
                }
                Update::Failed(error) => panic!("{error}"),
                _ => {}
            }
        }
        assert_eq!(count, prompts.len());
        prompts.iter_mut().for_each(|prompt| prompt.push(9));
    }
    prompts
}
