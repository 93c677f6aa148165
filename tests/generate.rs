//! Answers of a scheduler with one slot, by a real model.

use std::{ops::ControlFlow, sync::Arc};

use rope_cpu::{
    Token,
    batch::{self, Answered, Request, Scheduler, Update},
    generate::{
        Answer, End, Error, Limits,
        speculation::{Count, Lookup, Speculation},
    },
    kv_cache::CacheType,
    model::{Engine, Model, Options},
    rope::{Flags, Rope},
    sample::{Sampler, Settings, temperature},
    tokenizer::{Ends, Special, Tokenizer},
};
use rope_cpu_testing::models::fetched;

const PROMPT: &str = "The capital of France is";

/// A scheduler of SmolLM2 with greedy sampling.
struct Generator<'t>(Scheduler<'t>);

fn greedy() -> Settings {
    Settings::default().with(&temperature::TEMPERATURE, 0.0)
}

impl Generator<'_> {
    fn run(
        &mut self,
        prompt: &[Token],
        limits: &Limits,
        on_update: &mut dyn FnMut(&Update) -> ControlFlow<()>,
    ) -> Result<Answered, batch::Error> {
        let limits = limits.clone();
        let request = Request { sampling: greedy(), limits, ..Request::new(prompt.to_vec()) };
        self.0.answer(request, on_update)
    }

    fn answer(&mut self, prompt: &[Token], tokens_max: usize) -> Answered {
        let limits = Limits { tokens_max: Some(tokens_max), ..Limits::default() };
        self.run(prompt, &limits, &mut |_| ControlFlow::Continue(())).unwrap()
    }

    fn tokens(&self) -> &[Token] {
        self.0.sequence(0).unwrap().tokens()
    }
}

/// Runs `test` with a function that creates generators of a given context, which draft if they have a
/// speculation, and the tokenizer. Without the model file the test is skipped.
fn with_drafts(
    test: impl for<'t> Fn(&dyn Fn(usize, Option<Speculation>) -> Generator<'t>, &'t Tokenizer<'t>),
) {
    let Some(path) = fetched("SmolLM2-135M-Instruct.Q4_1.gguf", "fetch-models") else { return };
    let model = Model::open(&path).unwrap();
    let tokenizer = model.tokenizer().unwrap();
    let make = |context, speculation: Option<Speculation>| {
        let plan = model.rope_plan(&Flags::default(), context).unwrap();
        let options = Options {
            micro_batch: 8,
            keys: CacheType::F32,
            values: CacheType::F32,
            threads: 2.into(),
            ..Options::new(context)
        };
        let engine = Engine::new(&model, Rope::new(plan), options).unwrap();
        let speculations = speculation.into_iter().collect();
        let options = batch::Options { speculations, ..batch::Options::new(1) };
        Generator(Scheduler::new(engine, tokenizer, options, Arc::default()))
    };
    test(&make, tokenizer);
}

/// Runs `test` like [`with_drafts`], with generators that do not draft.
fn with_model(test: impl for<'t> Fn(&dyn Fn(usize) -> Generator<'t>, &'t Tokenizer<'t>)) {
    with_drafts(|make, tokenizer| test(&|context| make(context, None), tokenizer));
}

fn tokens(tokenizer: &Tokenizer, text: &str) -> Vec<Token> {
    tokenizer.encode(text, Special::Parse, Ends::Add)
}

#[test]
fn turns_that_reuse_the_cache_equal_one_long_prompt() {
    with_model(|make, tokenizer| {
        let mut turns = make(512);
        let mut text = tokens(tokenizer, PROMPT);
        let first = turns.answer(&text, 12);
        let timings = first.outcome.timings;
        assert_eq!((timings.reused, timings.read), (0, text.len()));
        assert_eq!((timings.generated, timings.steps), (12, 11));
        text.extend(&first.tokens);
        text.extend(tokens(tokenizer, " And the capital of Italy is"));
        let second = turns.answer(&text, 12);
        // The last token of an answer is not read.
        assert_eq!(second.outcome.timings.reused, tokens(tokenizer, PROMPT).len() + 11);
        assert_eq!(make(512).answer(&text, 12).tokens, second.tokens);

        // The same beginning with another end: the tokens that differ are removed. The continuation
        // is unambiguous. Sums in another order round some activations to another 8-bit step, which
        // changes logits of this model by up to 0.7 (of the F32 model by 4e-5).
        let mut other = text[..10].to_vec();
        other.extend(tokens(tokenizer, " 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13,"));
        let third = turns.answer(&other, 12);
        assert_eq!(third.outcome.timings.reused, 10);
        assert_eq!(make(512).answer(&other, 12).tokens, third.tokens);
        // The same prompt again: only its last token is read.
        let again = turns.answer(&other, 12);
        assert_eq!((again.outcome.timings.reused, again.tokens), (other.len() - 1, third.tokens));
    });
}

#[test]
fn stopping_while_reading_retains_the_tokens_read() {
    with_model(|make, tokenizer| {
        let prompt = tokens(tokenizer, &"one two three ".repeat(20));
        let mut stopped = make(512);
        let answer = stopped.run(&prompt, &Limits::default(), &mut |update| match update {
            Update::Read(reading) if reading.processed >= 16 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        let answer = answer.unwrap();
        assert_eq!(
            (&answer.outcome.end, answer.tokens.len(), &*answer.text),
            (&End::Caller, 0, "")
        );
        assert_eq!(stopped.tokens(), &prompt[..16]);
        assert_eq!((answer.outcome.timings.read, answer.outcome.timings.generated), (16, 0));
        let after = stopped.answer(&prompt, 4);
        assert_eq!(after.outcome.timings.reused, 16);
        assert_eq!(after.tokens, make(512).answer(&prompt, 4).tokens);
    });
}

#[test]
fn stopping_while_generating_returns_the_text_so_far() {
    with_model(|make, tokenizer| {
        let prompt = tokens(tokenizer, PROMPT);
        let mut seen = String::new();
        let mut count = 0;
        let answer = make(512).run(&prompt, &Limits::default(), &mut |update| {
            if let Update::Generated(piece) = update {
                seen += &piece.text;
                count += 1;
            }
            if count == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let answer = answer.unwrap();
        assert_eq!((answer.outcome.end, answer.tokens.len()), (End::Caller, 3));
        assert_eq!(answer.text, seen);
    });
}

#[test]
fn a_full_context_ends_the_answer_and_a_longer_prompt_is_rejected() {
    with_model(|make, tokenizer| {
        let prompt = tokens(tokenizer, PROMPT);
        for unused in 0..3 {
            let mut full = make(prompt.len() + unused);
            let limits = Limits { ignore_end: true, ..Limits::default() };
            let answer = full.run(&prompt, &limits, &mut |_| ControlFlow::Continue(())).unwrap();
            // The last token follows from the last position, and needs no position itself.
            assert_eq!((answer.outcome.end, answer.tokens.len()), (End::ContextFull, unused + 1));
        }
        let mut read = 0;
        let refused = make(prompt.len() - 1).run(&prompt, &Limits::default(), &mut |update| {
            read += usize::from(matches!(update, Update::Read(_)));
            ControlFlow::Continue(())
        });
        assert!(matches!(
            refused,
            Err(batch::Error::Generate(Error::PromptTooLong { tokens: 5, context: 4 }))
        ));
        assert_eq!(read, 0);
        assert!(matches!(
            make(8).run(&[], &Limits::default(), &mut |_| ControlFlow::Continue(())),
            Err(batch::Error::Generate(Error::PromptEmpty))
        ));
    });
}

#[test]
fn with_a_limit_of_zero_no_tokens_are_generated() {
    with_model(|make, tokenizer| {
        let prompt = tokens(tokenizer, PROMPT);
        let mut session = make(512);
        let answer = session.answer(&prompt, 0);
        assert_eq!((answer.outcome.end, answer.tokens.len()), (End::TokensMax, 0));
        assert_eq!(session.tokens(), prompt);
    });
}

#[test]
fn drafts_from_the_text_save_passes_and_change_nothing() {
    with_drafts(|make, tokenizer| {
        let prompt = "red, green, blue, yellow, orange, purple, ".repeat(8);
        // Without the last space, so that the model continues the list.
        let prompt = tokens(tokenizer, prompt.trim_end());
        let plain = make(512, None).answer(&prompt, 60);
        for count in [Count::Always(7), Count::UpTo(7)] {
            let speculation = Speculation::new(vec![Box::new(Lookup::default())], count);
            let found = make(512, Some(speculation)).answer(&prompt, 60);
            assert_eq!((found.tokens, found.text), (plain.tokens.clone(), plain.text.clone()));
            if count == Count::Always(7) {
                let steps = (found.outcome.timings.steps, plain.outcome.timings.steps);
                assert!(3 * steps.0 < steps.1, "{steps:?}: {}", plain.text);
            }
        }
    });
}

#[test]
fn names_of_preserved_control_tokens_are_part_of_the_text() {
    with_model(|_, tokenizer| {
        let mut sampler = Sampler::new(greedy()).unwrap();
        let marker = tokenizer.control("<|im_start|>").unwrap();
        assert_eq!(tokenizer.control("The"), None);
        for (preserved, text) in [(vec![marker], "<|im_start|>"), (Vec::new(), "")] {
            let mut answer = Answer::new(Limits { preserved, ..Limits::default() });
            let step = answer.take(tokenizer, &mut sampler, marker).unwrap();
            assert_eq!(step.text, text);
            assert_eq!(step.next, ControlFlow::Continue(marker));
            assert_eq!(answer.text(), text);
        }
    });
}
