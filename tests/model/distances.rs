//! RoPE methods that change attention, compared with a forward pass that takes the distance of each
//! pair from the method's definition.

use rope_cpu::{
    kv_cache::CacheType,
    rope::{
        ATTENTION_SINKS, Flags, LOG_N, SCALE, dca, lm_infinite, rerope, self_extend, string, yarn,
    },
};

use crate::model::{
    cache_types::step,
    position::{self, on_every_rule},
    session::{How, difference, logits, mean_difference, tokens, with_session},
};
use rope_cpu_testing::{
    on_each_case,
    reference::{Frequencies, Rules, forward_by},
    tiny::Tiny,
};

/// The bound of `consistency`.
const BOUND: f32 = 2e-4;

type Distance = fn(usize, usize) -> Option<f64>;

pub struct Case {
    flags: Flags,
    distance: Distance,
    /// The scale of the query at a position of a model with this trained length.
    query_scale: fn(f64, f64) -> f64,
}

fn constant(_: f64, _: f64) -> f64 {
    1.0
}

fn log_n(position: f64, trained: f64) -> f64 {
    ((position + 1.0).ln() / trained.ln()).max(1.0)
}

/// The square of YaRN's attention scale for the present length.
fn yarn_scale(position: f64, trained: f64) -> f64 {
    (0.1 * ((position + 1.0) / trained).ln() + 1.0).max(1.0).powi(2)
}

/// Returns the distance of DCA with chunk size `c` and local size `w`.
pub fn chunked(c: usize, w: usize, i: usize, j: usize) -> f64 {
    let s = c - w;
    let query = match i / s - j / s {
        0 => i % s,
        1 => (i % s + s).min(c),
        _ => (2 * s - 1).min(c),
    };
    query as f64 - (j % s) as f64
}

impl Case {
    /// Returns cases with windows shorter and longer than a page, and with groups that divide a
    /// page and that do not.
    pub fn all() -> Vec<Case> {
        let scaling = |scaling| Flags::method(scaling);
        let rerope = |window| scaling("rerope").with(&rerope::WINDOW, window);
        let leaky =
            |window, k| scaling("leaky-rerope").with(&rerope::WINDOW, window).with(&rerope::K, k);
        let extend = |group, window| {
            scaling("self-extend")
                .with(&self_extend::GROUP, group)
                .with(&self_extend::WINDOW, window)
        };
        let infinite = |global, local| {
            scaling("lm-infinite")
                .with(&lm_infinite::GLOBAL, global)
                .with(&lm_infinite::LOCAL, local)
        };
        let shifted =
            |from, to| scaling("string").with(&string::SHIFT, from).with(&string::WINDOW, to);
        let chunks = |c, w| scaling("dca").with(&dca::CHUNK_SIZE, c).with(&dca::LOCAL_SIZE, w);
        let by_log_n = |on: bool, flags: Flags| flags.with(&LOG_N, on);
        let case = |flags, grows, distance| {
            let query_scale = if grows { log_n } else { constant };
            Case { flags, distance, query_scale }
        };
        vec![
            case(rerope(40), true, |i, j| Some((i - j).min(40) as f64)),
            case(by_log_n(false, rerope(290)), false, |i, j| Some((i - j).min(290) as f64)),
            case(leaky(30, 7), true, |i, j| {
                let d = (i - j) as f64;
                Some(if d < 30.0 { d } else { 30.0 + (d - 30.0) / 7.0 })
            }),
            case(extend(4, 32), false, |i, j| {
                Some(if i - j < 32 { i - j } else { i / 4 + 32 - 8 - j / 4 } as f64)
            }),
            case(by_log_n(true, extend(6, 42)), true, |i, j| {
                Some(if i - j < 42 { i - j } else { i / 6 + 42 - 7 - j / 6 } as f64)
            }),
            case(infinite(5, 50), false, |i, j| match i - j {
                d if d < 50 => Some(d as f64),
                _ if j < 5 => Some(50.0),
                _ => None,
            }),
            case(infinite(1, 256), false, |i, j| match i - j {
                d if d < 256 => Some(d as f64),
                _ if j < 1 => Some(256.0),
                _ => None,
            }),
            case(infinite(270, 20), false, |i, j| match i - j {
                d if d < 20 => Some(d as f64),
                _ if j < 270 => Some(20.0),
                _ => None,
            }),
            case(shifted(40, 9), false, |i, j| {
                Some(if i - j < 40 { i - j } else { i - j - 31 } as f64)
            }),
            case(shifted(290, 0), false, |i, j| {
                Some(if i - j < 290 { i - j } else { i - j - 290 } as f64)
            }),
            case(chunks(48, 9), false, |i, j| Some(chunked(48, 9, i, j))),
            case(chunks(300, 200), false, |i, j| Some(chunked(300, 200, i, j))),
            case(chunks(7, 0), false, |i, j| Some(chunked(7, 0, i, j))),
            Case {
                query_scale: yarn_scale,
                ..case(chunks(290, 20).with(&dca::ATTENTION_SCALE, true), false, |i, j| {
                    Some(chunked(290, 20, i, j))
                })
            },
            case(by_log_n(true, Flags::default()), true, |i, j| Some((i - j) as f64)),
        ]
    }

    /// Calls `test` with the rules of the definition, and the frequencies of window layers.
    pub fn with_rules<T>(&self, tiny: &Tiny, test: impl FnOnce(&Rules<'_>, &[f64]) -> T) -> T {
        // Frequencies and scale come from the other flags: see `Case::how`.
        let frequencies = Frequencies::new(tiny, 2.0);
        let trained = tiny.context as f64;
        let rules = Rules {
            place: &|_, j| Some(j),
            frequencies: &|_| (frequencies.global.clone(), 1.25),
            distance: &self.distance,
            query_scale: &|i| (self.query_scale)(i as f64, trained),
        };
        test(&rules, &frequencies.window)
    }

    fn expected(&self, tiny: &Tiny, n: usize) -> Vec<Vec<f32>> {
        self.with_rules(tiny, |rules, window| forward_by(tiny, rules, window, &tokens(tiny, n)))
    }

    pub fn how(&self) -> How {
        let flags = self.flags.clone().with(&SCALE, 2.0).with(&yarn::ATTN_FACTOR, 1.25);
        How { flags, ..How::default() }
    }

    fn found(&self, tiny: &Tiny, how: &How, n: usize) -> Vec<Vec<f32>> {
        with_session(tiny, how, |session| how.read(session, &tokens(tiny, n)))
    }
}

on_each_case!(each_method_is_what_its_definition_says {
    llama(Tiny::llama()),
    gemma3(Tiny::gemma3()),
    capped(Tiny::capped()),
    latent(Tiny::latent()),
    // Layers that do not rotate attend to the keys that a method permits.
    smollm3(Tiny { layers: 4, ..Tiny::named("smollm3") }),
    gemma4(Tiny { window: Some((40, 3)), ..Tiny::named("gemma4") }),
});

fn each_method_is_what_its_definition_says(name: &str, tiny: Tiny) {
    for case in Case::all() {
        let expected = case.expected(&tiny, 560);
        let name = format!("{name}, {:?}", case.flags.scaling());
        let of = |micro_batch| case.found(&tiny, &How { micro_batch, ..case.how() }, 560);
        let whole = of(560);
        // Each layer with peaked attention multiplies the rounding errors of those before it; a model
        // of four layers that all rotate has the same.
        let bound = if tiny.layers > 3 { 10.0 * BOUND } else { BOUND };
        for found in [&whole, &of(1)] {
            let apart = difference(&expected, found);
            assert!(apart < bound, "{name}: {apart}");
        }
        for micro_batch in [7, 64] {
            assert!(whole == of(micro_batch), "{name}, {micro_batch}");
        }
    }
}

/// The number of first tokens that stay when the context rolls.
const SINKS: usize = 3;

/// Returns the position of the `j`th token when the `i`th is read: tokens are numbered by their
/// place in a cache that holds the first and the last ones.
fn number(context: usize, i: usize, j: usize) -> Option<usize> {
    let last = (i + 1).saturating_sub(context - SINKS).max(SINKS);
    if j < SINKS { Some(j) } else { Some(SINKS + j.checked_sub(last)?) }
}

#[test]
fn attention_sinks_number_what_is_left() {
    let context = 60;
    for tiny in [Tiny::llama(), Tiny::gemma3()] {
        let frequencies = Frequencies::new(&tiny, 2.0);
        let rules = Rules {
            place: &|i, j| number(context, i, j),
            frequencies: &|_| (frequencies.global.clone(), 1.25),
            distance: &|i, j| Some((i - j) as f64),
            query_scale: &|_| 1.0,
        };
        let tokens = tokens(&tiny, 900);
        let expected = forward_by(&tiny, &rules, &frequencies.window, &tokens);
        for micro_batch in [1, 7, 64] {
            let flags = Flags::default()
                .with(&ATTENTION_SINKS, SINKS)
                .with(&SCALE, 2.0)
                .with(&yarn::ATTN_FACTOR, 1.25);
            let how = How { micro_batch, context, flags, ..How::default() };
            with_session(&tiny, &how, |session| {
                let apart = difference(&expected, &how.read(session, &tokens));
                assert!(apart < BOUND, "{micro_batch}: {apart}");
                assert_eq!(session.tokens().len(), 900);
                // Each layer holds its first page, and the pages of the window and of a
                // micro-batch.
                let page = 256 * 2 * tiny.kv_heads * tiny.head_dim.next_multiple_of(32) * 4;
                assert!(session.cache_bytes() <= tiny.layers * 4 * page);
            });
        }
    }
}

on_every_rule!(attention_sinks_end_what_follows_the_length);

/// Frequencies that depend on the length, and queries that grow with it, use the same positions: if
/// the context rolls they stay the positions of a full context.
fn attention_sinks_end_what_follows_the_length(name: &str) {
    let case = position::Case::named(name);
    // Three grid lines beyond the trained length of these cases.
    let context = 200;
    let rules = Rules {
        place: &|i, j| number(context, i, j),
        frequencies: &|i| (case.frequencies)(case.effective(i.min(context - 1))),
        distance: &|i, j| Some((i - j) as f64),
        query_scale: &|place| case.query_scale(place),
    };
    let window = Frequencies::new(&case.tiny, 1.0).window;
    let tokens = tokens(&case.tiny, 560);
    let expected = forward_by(&case.tiny, &rules, &window, &tokens);
    for micro_batch in [1, 7, 64] {
        let flags = case.flags.clone().with(&ATTENTION_SINKS, SINKS);
        let how = How { micro_batch, context, flags, ..How::default() };
        let found = with_session(&case.tiny, &how, |session| how.read(session, &tokens));
        let apart = difference(&expected, &found);
        assert!(apart < BOUND, "{:?}, {micro_batch}: {apart}", case.flags);
    }
}

/// If every layer has a window, a method changes nothing, with any window of its own.
#[test]
fn methods_do_not_change_windows_without_a_rope_of_their_own() {
    let tiny =
        Tiny { window: Some((600, 1 << 20)), long_rope: None, ..Tiny::named("phi3").clone() };
    let of = |flags| {
        let how = How { flags, context: 1024, micro_batch: 64, ..How::default() };
        with_session(&tiny, &how, |session| logits(session, &tokens(&tiny, 1000)))
    };
    let expected = of(Flags::default());
    let methods = Case::all().into_iter().filter(|case| case.flags.scaling().is_some());
    let sinks = Flags::default().with(&ATTENTION_SINKS, 4);
    for flags in methods.map(|case| case.flags).chain([sinks]) {
        let grows = flags.values.has(&dca::ATTENTION_SCALE);
        let flags = flags.with_some(&dca::ATTENTION_SCALE, grows.then_some(false));
        let flags = flags.with(&LOG_N, false);
        let apart = difference(&expected, &of(flags.clone()));
        assert!(apart < BOUND, "{:?}: {apart}", flags.scaling());
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let tiny = Tiny::llama();
    for case in Case::all() {
        for micro_batch in [1, 64] {
            let how = |threads| How { threads, micro_batch, ..case.how() };
            let [one, three] = [1, 3].map(|threads| case.found(&tiny, &how(threads), 300));
            assert!(one == three);
        }
    }
}

/// The bound of `consistency`: keys are of order 3, and 20 elements make a score.
#[test]
fn every_cache_type_is_as_near_as_its_steps() {
    let tiny = Tiny::llama();
    for case in Case::all() {
        let exact = case.expected(&tiny, 150);
        for keys in CacheType::ALL {
            let step = step(keys);
            let found = case.found(&tiny, &How { keys, ..case.how() }, 150);
            let mean = mean_difference(&exact, &found);
            assert!(mean <= 8.0 * step + f64::from(BOUND), "{}: {mean}", keys.name());
        }
    }
}

#[test]
fn each_method_matters() {
    let tiny = Tiny::llama();
    let how = |flags: Flags| How { flags: flags.with(&SCALE, 2.0), ..How::default() };
    let plain =
        with_session(&tiny, &how(Flags::default()), |session| logits(session, &tokens(&tiny, 300)));
    for case in Case::all() {
        let without = case.flags.clone().with(&rerope::WINDOW, 1000);
        let flags = if case.flags.values.whole(&rerope::WINDOW) == Some(290) {
            without
        } else {
            case.flags.clone()
        };
        let found = case.found(&tiny, &how(flags.clone()), 300);
        let apart = difference(&plain, &found);
        // A window longer than the sequence changes nothing.
        let idle = flags.values.whole(&rerope::WINDOW) == Some(1000);
        assert!(if idle { apart < BOUND } else { apart > 100.0 * BOUND }, "{flags:?}: {apart}");
    }
}

/// Keys rotate to their place in a chunk, which in the first one is their position.
#[test]
fn the_first_chunk_has_the_bits_of_plain_rope() {
    let flags = Flags::method("dca").with(&dca::CHUNK_SIZE, 400).with(&dca::LOCAL_SIZE, 100);
    for tiny in [Tiny::llama(), Tiny::gemma3(), Tiny::named("qwen2")] {
        let types = [CacheType::F32, CacheType::F16, CacheType::Q4_0];
        for (keys, micro_batch) in types.into_iter().flat_map(|keys| [(keys, 64), (keys, 1)]) {
            let of = |flags| {
                let how = How { flags, keys, micro_batch, ..How::default() };
                with_session(&tiny, &how, |session| how.read(session, &tokens(&tiny, 420)))
            };
            let (plain, found) = (of(Flags::default()), of(flags.clone()));
            assert!(plain[..300] == found[..300], "{} {micro_batch}", keys.name());
            assert!(plain[300..] != found[300..], "{} {micro_batch}", keys.name());
            if keys == CacheType::F32 {
                // All distances are true up to the chunk size, but sums have another order.
                let apart = |range: std::ops::Range<usize>| {
                    difference(&plain[range.clone()], &found[range])
                };
                let (within, beyond) = (apart(300..401), apart(401..420));
                assert!(within < BOUND && beyond > 10.0 * BOUND, "{within} {beyond}");
            }
        }
    }
}
