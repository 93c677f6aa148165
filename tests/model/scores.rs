//! The scores of a prompt's tokens. Speculative prefill computes the tokens with the best scores.

use std::{
    collections::BTreeMap,
    ops::ControlFlow::{Break, Continue},
};

use rope_cpu::{
    Token,
    generate::speculation::{DraftModel, Drafter, Scores, prefill::LOOK_AHEAD},
    kv_cache::CacheType,
    model::{Options, Session},
    rope::{Flags, Rope},
};

use crate::model::{
    session::load,
    speculation::{END, file},
};
use rope_cpu_testing::{
    reference::{Frequencies, Rules, scores_by},
    tiny::Tiny,
};

/// Returns the scores of the definition, in double precision.
fn scores(tiny: &Tiny, tokens: &[Token], prompt: usize) -> Vec<f64> {
    let frequencies = Frequencies::new(tiny, 1.0);
    let rules = Rules {
        place: &|_, j| Some(j),
        frequencies: &|_| (frequencies.global.clone(), 1.0),
        distance: &|i, j| Some(i as f64 - j as f64),
        query_scale: &|_| 1.0,
    };
    let mut heads = BTreeMap::<[usize; 3], Vec<f64>>::new();
    scores_by(tiny, &rules, &frequencies.window, tokens, &mut |[layer, head, i, j], score| {
        if i + 1 >= prompt && j < prompt {
            let head = heads.entry([i, layer, head]).or_insert_with(|| vec![0.0; prompt]);
            head[j] = score.exp();
        }
    });
    let mut all = vec![0.0; prompt];
    for i in prompt - 1..tokens.len() {
        let mut maxima = vec![0.0f64; prompt];
        for (_, p) in heads.iter().filter(|([query, ..], _)| *query == i) {
            let sum: f64 = p.iter().sum();
            for (j, maximum) in maxima.iter_mut().enumerate() {
                let near = &p[j.saturating_sub(6)..(j + 7).min(prompt)];
                *maximum = maximum.max(near.iter().sum::<f64>() / sum / 13.0);
            }
        }
        let count = (tokens.len() + 1 - prompt) as f64;
        all.iter_mut().zip(maxima).for_each(|(all, maximum)| *all += maximum / count);
    }
    all
}

#[test]
fn a_draft_model_scores_tokens_by_the_attention_of_those_that_follow() {
    for tiny in [Tiny::llama(), Tiny::gemma3(), Tiny::capped(), Tiny::latent()] {
        let model = load(&file(&tiny), &[]).unwrap();
        let rope = Rope::new(model.rope_plan(&Flags::default(), 1024).unwrap());
        let (keys, values) = (CacheType::F32, CacheType::F32);
        let threads = 1.into();
        let options = Options { keys, values, micro_batch: 64, threads, ..Options::new(1024) };
        let session = Session::new(&model, rope, options).unwrap();
        let mut drafter = DraftModel::new(&model, session).unwrap();
        let prompt: Vec<Token> = (0..600).map(|i| (i * i * 31 + i * 7 + 3) % 251 % 48).collect();
        // Stopped after every two steps.
        let (mut calls, mut steps) = (0, 0);
        let found = loop {
            calls += 1;
            let scores = drafter.score(&prompt, &mut || {
                steps += 1;
                if steps % 2 == 1 { Continue(()) } else { Break(()) }
            });
            match scores.unwrap() {
                Scores::Of(scores) => break scores,
                Scores::Incomplete => {}
                Scores::None => panic!("no scores"),
            }
        };
        assert_eq!(calls, 5);
        // Now all but the last token are cached.
        let again = drafter.score(&prompt, &mut || Continue(())).unwrap();
        let Scores::Of(again) = again else { panic!("no scores") };

        let mut drafts = Vec::new();
        drafter.follow(&prompt);
        drafter.draft(&prompt, LOOK_AHEAD - 1, None, &mut drafts).unwrap();
        let answer = drafts.into_iter().take_while(|token| *token != END);
        let all: Vec<_> = prompt.iter().copied().chain(answer).collect();
        let expected = scores(&tiny, &all, 600);
        for found in [found, again] {
            for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let apart = (f64::from(*found) - expected).abs();
                assert!(apart < 1e-3 * expected + 1e-6, "{i}: {found} instead of {expected}");
            }
        }
    }
}
