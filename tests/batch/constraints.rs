//! The time that grammars take, which answers without them wait for.

use std::time::{Duration, Instant};

use rope_cpu::{
    batch::Request,
    constraint::{self, Constraint, Grammar, Vocabulary},
    generate::Limits,
};

use crate::batch::harness::{
    Setup, alone, finish, request, scheduler, step_while, submit, tokens, with_model,
};

/// A grammar with exponentially many derivations of each text.
const HOSTILE: &str = "root ::= s\ns ::= s s s | s s | \"a\" | \"\"";

fn constrained(vocabulary: &Vocabulary, grammar: &str, request: Request) -> Request {
    let constraint = Constraint::new(vocabulary, &Grammar::Gbnf(grammar.into())).unwrap();
    let limits = Limits { constraint: Some(constraint), ignore_end: true, ..request.limits };
    Request { limits, ..request }
}

#[test]
fn hostile_grammars_share_the_time_of_a_step() {
    let step_max = Duration::from_millis(600);
    with_model(|model| {
        let vocabulary = constraint::vocabulary(model.tokenizer().unwrap()).unwrap();
        let mut setup = Setup::new(5);
        setup.options.step_max = step_max;
        let (mut scheduler, _) = scheduler(model, setup);
        let plain = submit(&mut scheduler, request(tokens(1, 20), 900));
        step_while(&mut scheduler, || plain.tokens().is_empty());
        let hostile = || constrained(&vocabulary, HOSTILE, request(tokens(2, 20), 500));
        let hostile = [hostile(), hostile(), hostile()];
        let hostile = hostile.map(|request| submit(&mut scheduler, request));
        let tame = || constrained(&vocabulary, "root ::= [a-e]*", request(tokens(3, 20), 30));
        let expected = alone(tame());
        let tame = submit(&mut scheduler, tame());
        let mut errors: Vec<String> = Vec::new();
        let mut longest = Duration::ZERO;
        while errors.len() < 3 {
            let (began, before) = (Instant::now(), plain.tokens().len());
            scheduler.step();
            longest = longest.max(began.elapsed());
            assert!(plain.tokens().len() > before);
            errors.extend(hostile.iter().filter_map(|inbox| Some(inbox.error()?.to_string())));
        }
        // Each of them alone takes the time, and they need it in the same step.
        assert!(longest < step_max * 2, "{longest:?}");
        assert!(errors.iter().all(|error| error.contains("too long to find")), "{errors:?}");
        // What shares the time with them is not harmed.
        plain.close();
        finish(&mut scheduler);
        assert_eq!(tame.tokens(), expected);
    });
}
