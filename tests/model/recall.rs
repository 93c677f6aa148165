//! Needles that the end of a text asks for, and their perplexity.

use rope_cpu::{
    eval::{likelihood::Softmax, recall},
    model::{Engine, Model, Options},
    rope::{Flags, Rope},
    tokenizer::{Ends, Special},
};

use crate::model::session::logits;
use rope_cpu_testing::reader::tiny_reader;

#[test]
fn only_the_answers_count_and_each_is_hidden_at_the_start() {
    let file = tiny_reader(1, true);
    let model = Model::open(file.path()).unwrap();
    let tokenizer = model.tokenizer().unwrap();
    let text = "abcdefgh ijklmnop qrstuv wxyz ".repeat(200);
    let text = &tokenizer.encode(text, Special::AsText, Ends::Add)[..2000];
    let hidden = recall::Text::new(tokenizer, text, 3).unwrap();
    let recall::Text { tokens, answers } = &hidden;
    assert_eq!((tokens.len(), tokens[0]), (2000, text[0]));
    assert!((2..=16).contains(&answers.len()), "{}", answers.len());
    // The words are in another order than at the start.
    let places = answers.iter().map(|answer| {
        assert!(answer.start >= 1000 && answer.len() > 2);
        let word = &tokens[answer.clone()];
        let start = tokens[..1000].windows(word.len()).position(|hidden| hidden == word);
        start.unwrap_or_else(|| panic!("{answer:?} is not hidden"))
    });
    assert!(!places.collect::<Vec<_>>().is_sorted());
    let again = |seed| recall::Text::new(tokenizer, text, seed).unwrap().tokens;
    assert!(again(3) == *tokens && again(4) != *tokens);
    let least = recall::Text::new(tokenizer, &text[..40], 3).err().unwrap();
    assert!(recall::Text::new(tokenizer, &text[..least - 1], 3).is_err());
    assert_eq!(recall::Text::new(tokenizer, &text[..least], 3).unwrap().answers.len(), 2);

    let rope = Rope::new(model.rope_plan(&Flags::default(), 2000).unwrap());
    let mut engine = Engine::new(&model, rope, Options::new(2000)).unwrap();
    let read = &mut |_| std::ops::ControlFlow::Continue(());
    let scored = recall::score(&mut engine, tokens, answers, tokenizer.bos(), read).unwrap();
    let mut session = model.session(&Flags::default(), 2000).unwrap();
    let logits = logits(&mut session, tokens);
    assert_eq!(scored.buckets.len(), answers.len());
    for (bucket, answer) in scored.buckets.iter().zip(answers) {
        let nll = |i: usize| {
            let logits = &logits[i - 1];
            Softmax::of(logits).unwrap().nll(logits[tokens[i] as usize])
        };
        let expected: f64 = answer.clone().map(nll).sum();
        assert_eq!((&bucket.positions, bucket.nll.count), (answer, answer.len()));
        assert!((bucket.nll.sum - expected).abs() < 1e-3, "{} {expected}", bucket.nll.sum);
    }
    let sum: f64 = scored.buckets.iter().map(|bucket| bucket.nll.sum).sum();
    assert!((scored.all.sum - sum).abs() < 1e-9);
}
