//! The time that grammars take, which answers without them wait for.

use std::time::Duration;

use rope_cpu::{
    batch::Request,
    constraint::{self, Constraint, Grammar, Vocabulary},
    generate::Limits,
};

use crate::batch::harness::{
    Setup, alone, finish, request, scheduler, step_while, submit, tokens, with_model,
};
use rope_cpu_testing::time::processor_time;

/// A grammar with exponentially many derivations of each text.
const HOSTILE: &str = "root ::= s\ns ::= s s s s s s s s | s s s s s s s | s s s s s s | s s s s s \
                       | s s s s | s s s | s s | \"a\" | \"\"";

fn constrained(vocabulary: &Vocabulary, grammar: &str, request: Request) -> Request {
    let constraint = Constraint::new(vocabulary, &Grammar::Gbnf(grammar.into())).unwrap();
    let limits = Limits { constraint: Some(constraint), ignore_end: true, ..request.limits };
    Request { limits, ..request }
}

#[test]
fn hostile_grammars_share_the_time_of_a_step() {
    let step_max = Duration::from_millis(250);
    with_model(|model| {
        let vocabulary = constraint::vocabulary(model.tokenizer().unwrap()).unwrap();
        let mut setup = Setup::new(5);
        setup.options.step_max = step_max;
        let (mut scheduler, _) = scheduler(model, setup);
        let plain = submit(&mut scheduler, request(tokens(1, 20), 900));
        step_while(&mut scheduler, || plain.tokens().is_empty());
        let hostile = || constrained(&vocabulary, HOSTILE, request(tokens(2, 20), 500));
        let hostile = [hostile(), hostile(), hostile()];
        let mut hostile = hostile.map(|request| submit(&mut scheduler, request)).to_vec();
        let tame = || constrained(&vocabulary, "root ::= [a-e]*", request(tokens(3, 20), 30));
        let expected = alone(tame());
        let tame = submit(&mut scheduler, tame());
        let mut errors: Vec<String> = Vec::new();
        let (mut longest, mut waits) = (Duration::ZERO, 0);
        while !hostile.is_empty() {
            let (began, before) = (processor_time(), plain.tokens().len());
            let mut lengths: Vec<_> = hostile.iter().map(|inbox| inbox.tokens().len()).collect();
            scheduler.step();
            longest = longest.max(processor_time() - began);
            assert!(plain.tokens().len() > before);
            hostile.retain(|inbox| {
                let length = lengths.remove(0);
                if let Some(error) = inbox.error() {
                    errors.push(error.to_string());
                    return false;
                }
                waits += usize::from(length > 0 && inbox.tokens().len() == length);
                true
            });
        }
        // Together they take no more time than one, so that some wait for the next step.
        assert!(longest < step_max * 2, "{longest:?}");
        assert!(waits > 0);
        assert_eq!(errors.len(), 3);
        assert!(errors.iter().all(|error| error.contains("too long to find")), "{errors:?}");
        // What shares the time with them is not harmed.
        plain.close();
        finish(&mut scheduler);
        assert_eq!(tame.tokens(), expected);
    });
}
