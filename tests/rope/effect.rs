//! The numbers of a plan that charts show.

use rope_cpu::rope::{Distance, Effect, Flags, SCALE, SCALING, rerope};

use crate::rope::{Case, close};

fn effect(flags: Flags, context: usize, tokens: usize) -> Effect {
    let plan = Case { context: Some(context), ..Case::default() }.flags(flags).plan().unwrap();
    plan.effect(tokens, 5)
}

fn distances(effect: &Effect) -> Vec<(usize, Option<f64>, Option<f64>)> {
    effect
        .distances
        .iter()
        .map(|Distance { tokens, least, most }| (*tokens, *least, *most))
        .collect()
}

#[test]
fn linear_scaling_divides_all_distances() {
    let flags = Flags::default().with(&SCALING, "linear").with(&SCALE, 2.0);
    let effect = effect(flags, 16384, 16385);
    for (now, trained) in effect.wavelengths.iter().zip(&effect.trained_wavelengths) {
        close("wavelength", *now, 2.0 * trained, 1e-12);
    }
    let half = |tokens: usize| (tokens, Some(tokens as f64 / 2.0), Some(tokens as f64 / 2.0));
    assert_eq!(distances(&effect), [0, 4096, 8192, 12288, 16384].map(half));
    assert_eq!(effect.attention_scale, 1.0);
}

#[test]
fn yarn_divides_the_distances_of_slow_pairs() {
    let effect = effect(Flags::method("yarn"), 16384, 8193);
    let [.., Distance { tokens, least, most }] = effect.distances[..] else {
        panic!("no distances")
    };
    assert_eq!(tokens, 8192);
    close("slow pairs", least.unwrap(), 4096.0, 1e-9);
    close("fast pairs", most.unwrap(), 8192.0, 1e-9);
    assert!(effect.attention_scale > 1.0);
}

#[test]
fn methods_of_attention_change_far_distances() {
    let flags = Flags::method("rerope").with_some(&rerope::WINDOW, Some(100));
    let same = |distance: f64| (Some(distance), Some(distance));
    for (tokens, (least, most)) in distances(&effect(flags, 16384, 401))
        .into_iter()
        .map(|(tokens, least, most)| (tokens, (least, most)))
    {
        assert_eq!((least, most), same((tokens as f64).min(100.0)), "{tokens}");
    }
    let distances = distances(&effect(Flags::method("lm-infinite"), 16384, 16384));
    assert!(distances.iter().any(|(_, least, _)| least.is_none()), "{distances:?}");
}

#[test]
fn short_sequences_have_few_distances() {
    for (tokens, expected) in [(0, vec![0]), (1, vec![0]), (2, vec![0, 1]), (3, vec![0, 1, 2])] {
        let effect = effect(Flags::default(), 8192, tokens);
        let found: Vec<_> = effect.distances.iter().map(|distance| distance.tokens).collect();
        assert_eq!(found, expected, "{tokens}");
    }
}
