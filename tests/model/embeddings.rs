//! Embeddings of tokens, from which their logits follow.

use rope_cpu::model::{Feed, Output, Role};

use crate::{
    engine::read,
    reference::logits_of_embedding,
    session::{How, difference, tokens, with_engine},
    tiny::Tiny,
};

/// The error of a product of about 100 terms in single precision, of order 1.
const BOUND: f32 = 1e-5;

#[test]
fn logits_follow_from_embeddings_whatever_shares_the_batch() {
    for tiny in [Tiny::llama(), Tiny::gemma3()] {
        let tokens = tokens(&tiny, 90);
        let (text, other) = tokens.split_at(40);
        with_engine(&tiny, &How { micro_batch: 24, ..How::default() }, |engine| {
            let (mut expected, mut expected_other) = (Vec::new(), Vec::new());
            let sequences = [(); 4].map(|()| engine.sequence());
            let [mut alone, mut other_alone, mut one, mut two] = sequences;
            read(engine, &mut alone, Role::Prompt, text, &mut expected);
            read(engine, &mut other_alone, Role::Prompt, other, &mut expected_other);
            let (mut embeddings, mut found_other) =
                (Vec::<Vec<f32>>::new(), Vec::<Vec<f32>>::new());
            let feed = |sequence, tokens, output| Feed {
                sequence,
                tokens,
                role: Role::Prompt,
                wanted: 0..usize::MAX,
                output,
            };
            let mut feeds =
                [feed(&mut one, text, Output::Embedding), feed(&mut two, other, Output::Logits)];
            while feeds.iter().any(|feed| !feed.tokens.is_empty()) {
                let each = &mut |feed, token, output: &[f32]| {
                    let found = if feed == 0 { &mut embeddings } else { &mut found_other };
                    assert_eq!(found.len(), token);
                    found.push(output.to_vec());
                };
                engine.step(&mut feeds, each).unwrap();
            }
            assert!(found_other == expected_other);
            let logits: Vec<_> =
                embeddings.iter().map(|embedding| logits_of_embedding(&tiny, embedding)).collect();
            let error = difference(&expected, &logits);
            assert!(error < BOUND, "{error}");
        });
    }
}
