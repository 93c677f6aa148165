//! `generate` of the library, on a real model.

use std::ops::ControlFlow;

use rope_cpu::{
    Token,
    generate::{
        Answer, End, Error, Event, Generated, Limits, generate, speculate,
        speculation::{Count, Lookup, Speculation},
    },
    kv_cache::CacheType,
    model::{Model, Options, Session},
    rope::{Flags, Rope},
    sample::{Sampler, Settings, temperature},
    tokenizer::{Ends, Special, Tokenizer},
};
use rope_cpu_testing::models::fetched;

const PROMPT: &str = "The capital of France is";

/// A session of SmolLM2 with greedy sampling.
struct Generator {
    session: Session,
    sampler: Sampler,
}

impl Generator {
    fn run(
        &mut self,
        prompt: &[Token],
        limits: &Limits,
        on_event: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<Generated, Error> {
        generate(&mut self.session, &mut self.sampler, prompt, limits, on_event)
    }

    fn answer(&mut self, prompt: &[Token], tokens_max: usize) -> Generated {
        let limits = Limits { tokens_max: Some(tokens_max), ..Limits::default() };
        self.run(prompt, &limits, &mut |_| ControlFlow::Continue(())).unwrap()
    }
}

/// Runs `test` with a function that creates generators of a given context, and the tokenizer. Without
/// the model file the test is skipped.
fn with_model(test: impl Fn(&dyn Fn(usize) -> Generator, &Tokenizer)) {
    let Some(path) = fetched("SmolLM2-135M-Instruct.Q4_1.gguf", "fetch-models") else { return };
    let model = Model::open(&path).unwrap();
    let tokenizer = model.tokenizer().unwrap();
    let make = |context| {
        let plan = model.rope_plan(&Flags::default(), context).unwrap();
        let options = Options {
            micro_batch: 8,
            keys: CacheType::F32,
            values: CacheType::F32,
            threads: 2.into(),
            ..Options::new(context)
        };
        let settings = Settings::default().with(&temperature::TEMPERATURE, 0.0);
        Generator {
            session: Session::new(&model, Rope::new(plan), options).unwrap(),
            sampler: Sampler::new(settings).unwrap(),
        }
    };
    test(&make, tokenizer);
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
        assert_eq!((first.timings.reused, first.timings.read), (0, text.len()));
        assert_eq!((first.timings.generated, first.timings.steps), (12, 11));
        text.extend(&first.tokens);
        text.extend(tokens(tokenizer, " And the capital of Italy is"));
        let second = turns.answer(&text, 12);
        // The last token of an answer is not read.
        assert_eq!(second.timings.reused, tokens(tokenizer, PROMPT).len() + 11);
        assert_eq!(make(512).answer(&text, 12).tokens, second.tokens);

        // The same beginning with another end: the tokens that differ are removed. The continuation
        // is unambiguous. Sums in another order round some activations to another 8-bit step, which
        // changes logits of this model by up to 0.7 (of the F32 model by 4e-5).
        let mut other = text[..10].to_vec();
        other.extend(tokens(tokenizer, " 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13,"));
        let third = turns.answer(&other, 12);
        assert_eq!(third.timings.reused, 10);
        assert_eq!(make(512).answer(&other, 12).tokens, third.tokens);
        // The same prompt again: only its last token is read.
        let again = turns.answer(&other, 12);
        assert_eq!((again.timings.reused, again.tokens), (other.len() - 1, third.tokens));
    });
}

#[test]
fn stopping_while_reading_retains_the_tokens_read() {
    with_model(|make, tokenizer| {
        let prompt = tokens(tokenizer, &"one two three ".repeat(20));
        let mut stopped = make(512);
        let answer = stopped.run(&prompt, &Limits::default(), &mut |event| match event {
            Event::Reading { done, .. } if done >= 16 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        let answer = answer.unwrap();
        assert_eq!((answer.end, answer.tokens.len(), answer.text.as_str()), (End::Caller, 0, ""));
        assert_eq!(stopped.session.tokens(), &prompt[..16]);
        assert_eq!((answer.timings.read, answer.timings.generated), (16, 0));
        let after = stopped.answer(&prompt, 4);
        assert_eq!(after.timings.reused, 16);
        assert_eq!(after.tokens, make(512).answer(&prompt, 4).tokens);
    });
}

#[test]
fn stopping_while_generating_returns_the_text_so_far() {
    with_model(|make, tokenizer| {
        let prompt = tokens(tokenizer, PROMPT);
        let mut seen = String::new();
        let mut count = 0;
        let answer = make(512).run(&prompt, &Limits::default(), &mut |event| {
            if let Event::Text(text) = event {
                seen += text;
                count += 1;
            }
            if count == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let answer = answer.unwrap();
        assert_eq!((answer.end, answer.tokens.len()), (End::Caller, 3));
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
            assert_eq!((answer.end, answer.tokens.len()), (End::ContextFull, unused + 1));
        }
        let mut read = 0;
        let refused = make(prompt.len() - 1).run(&prompt, &Limits::default(), &mut |_| {
            read += 1;
            ControlFlow::Continue(())
        });
        assert!(matches!(refused, Err(Error::PromptTooLong { tokens: 5, context: 4 })));
        assert_eq!(read, 0);
        assert!(matches!(
            make(8).run(&[], &Limits::default(), &mut |_| ControlFlow::Continue(())),
            Err(Error::PromptEmpty)
        ));
    });
}

#[test]
fn with_a_limit_of_zero_no_tokens_are_generated() {
    with_model(|make, tokenizer| {
        let prompt = tokens(tokenizer, PROMPT);
        let mut session = make(512);
        let answer = session.answer(&prompt, 0);
        assert_eq!((answer.end, answer.tokens.len()), (End::TokensMax, 0));
        assert_eq!(session.session.tokens(), prompt);
    });
}

#[test]
fn drafts_from_the_text_save_passes_and_change_nothing() {
    with_model(|make, tokenizer| {
        let prompt = "red, green, blue, yellow, orange, purple, ".repeat(8);
        // Without the last space, so that the model continues the list.
        let prompt = tokens(tokenizer, prompt.trim_end());
        let plain = make(512).answer(&prompt, 60);
        for count in [Count::Always(7), Count::UpTo(7)] {
            let lookup = Box::new(Lookup::default());
            let mut speculation = Speculation::new(vec![lookup], count);
            let Generator { mut session, mut sampler } = make(512);
            let limits = Limits { tokens_max: Some(60), ..Limits::default() };
            let found = speculate(
                &mut session,
                &mut sampler,
                &mut speculation,
                &prompt,
                &limits,
                &mut |_| ControlFlow::Continue(()),
            )
            .unwrap();
            assert_eq!((found.tokens, found.text), (plain.tokens.clone(), plain.text.clone()));
            if count == Count::Always(7) {
                let steps = (found.timings.steps, plain.timings.steps);
                assert!(3 * steps.0 < steps.1, "{steps:?}: {}", plain.text);
            }
        }
    });
}

#[test]
fn names_of_preserved_control_tokens_are_part_of_the_text() {
    with_model(|make, tokenizer| {
        let marker = tokenizer.control("<|im_start|>").unwrap();
        assert_eq!(tokenizer.control("The"), None);
        for (preserved, text) in [(vec![marker], "<|im_start|>"), (Vec::new(), "")] {
            let mut answer = Answer::new(Limits { preserved, ..Limits::default() });
            let step = answer.take(tokenizer, &mut make(16).sampler, marker).unwrap();
            assert_eq!(step.text, text);
            assert_eq!(step.next, ControlFlow::Continue(marker));
            assert_eq!(answer.text(), text);
        }
    });
}
