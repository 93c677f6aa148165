//! Context shifts: a full context evicts its oldest tokens, and the later ones move down.

use rope_cpu::{
    kv_cache::CacheType,
    rope::{
        Flags, LOG_N, Layers, POLICY, Policy, SCALE, SCALING, Table, dca, lm_infinite, rerope,
        self_extend, string, yarn,
    },
};

use crate::model::{
    cache_types::step,
    distances::chunked,
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

/// Half of the tokens that are not kept, rounded to pages, is one page: each shift evicts 256
/// tokens.
const CONTEXT: usize = 300;
const EVICTED: usize = 256;
/// The number of kept tokens, which are within the window of Gemma's layers after a shift.
const KEPT: usize = 10;
/// The number of tokens for ten shifts, and some more after the last one.
const ALL: usize = CONTEXT + 9 * EVICTED + 40;

/// Returns the position of the `j`th token when the `i`th is read; `None` if it is evicted.
fn place(i: usize, j: usize) -> Option<usize> {
    let evicted = EVICTED * (i + EVICTED).saturating_sub(CONTEXT).div_euclid(EVICTED);
    if j < KEPT { Some(j) } else { j.checked_sub(evicted).filter(|place| *place >= KEPT) }
}

/// A method: the frequencies and attention scale for a token, distances, and whether queries grow.
struct Case {
    tiny: Tiny,
    flags: Flags,
    frequencies: Box<dyn Fn(usize) -> (Vec<f64>, f64)>,
    distance: fn(usize, usize) -> Option<f64>,
    log_n: bool,
}

fn plainly(i: usize, j: usize) -> Option<f64> {
    Some((i - j) as f64)
}

impl Case {
    /// Returns the case of a rule that does not depend on the length.
    fn fixed(tiny: Tiny, flags: Flags, distance: fn(usize, usize) -> Option<f64>) -> Case {
        // An attention scale that would show if keys were scaled again.
        let global = Frequencies::new(&tiny, 2.0).global;
        let flags = flags.with(&SCALE, 2.0).with(&yarn::ATTN_FACTOR, 1.25);
        let frequencies = Box::new(move |_| (global.clone(), 1.25));
        Case {
            log_n: flags.values.switch(&LOG_N) == Some(true),
            tiny,
            flags,
            frequencies,
            distance,
        }
    }

    /// Returns the case of Self-Extend in groups of 6 beyond a window of 42.
    fn self_extend(tiny: Tiny) -> Case {
        let flags = Flags::method("self-extend")
            .with(&self_extend::GROUP, 6)
            .with(&self_extend::WINDOW, 42);
        Case::fixed(tiny, flags, |i, j| {
            Some(if i - j < 42 { i - j } else { i / 6 + 42 - 7 - j / 6 } as f64)
        })
    }

    /// Returns the case of STRING, whose distance 42 becomes 5.
    fn string() -> Case {
        let flags = Flags::method("string").with(&string::SHIFT, 42).with(&string::WINDOW, 5);
        Case::fixed(Tiny::llama(), flags, |i, j| {
            Some(if i - j < 42 { i - j } else { i - j - 37 } as f64)
        })
    }

    /// Returns the case of DCA with chunks of 37 tokens.
    fn dca(tiny: Tiny) -> Case {
        let flags = Flags::method("dca").with(&dca::CHUNK_SIZE, 42).with(&dca::LOCAL_SIZE, 5);
        Case::fixed(tiny, flags, |i, j| Some(chunked(42, 5, i, j)))
    }

    /// Returns the case of a rule. The tests of `rope` check its frequencies.
    fn named(scaling: &'static str) -> Case {
        let (tiny, flags) = (Tiny::llama(), Flags::method(scaling));
        let case = Case::fixed(tiny, flags, plainly);
        let plan = with_session(&case.tiny, &case.how(), |s| s.rope().plan().clone());
        let Table { inv_freq, scale } = Table::new(&plan, Layers::Global, CONTEXT);
        Case { frequencies: Box::new(move |_| (inv_freq.clone(), scale)), ..case }
    }

    /// Returns the case of a rule that depends on the length. After a shift the effective length
    /// stays the length of a full context.
    fn by_length(case: position::Case, policy: Policy) -> Case {
        let (tiny, flags) = (case.tiny.clone(), case.flags.clone());
        let flags = flags.with(&POLICY, policy.name());
        let frequencies = Box::new(move |i: usize| {
            let full = CONTEXT - 1;
            let last = if policy == Policy::Run { full } else { i.min(full) };
            (case.frequencies)(case.effective(last))
        });
        Case {
            log_n: flags.values.switch(&LOG_N) == Some(true),
            tiny,
            flags,
            frequencies,
            distance: plainly,
        }
    }

    /// Returns the case of ReRoPE beyond a window of 40. By default its queries grow.
    fn rerope(log_n: Option<bool>) -> Case {
        let flags = Flags::method("rerope").with(&rerope::WINDOW, 40).with_some(&LOG_N, log_n);
        let case = Case::fixed(Tiny::llama(), flags, |i, j| Some((i - j).min(40) as f64));
        Case { log_n: log_n != Some(false), ..case }
    }

    fn leaky_rerope() -> Case {
        let flags = Flags::method("leaky-rerope")
            .with(&rerope::WINDOW, 30)
            .with(&rerope::K, 7)
            .with(&LOG_N, false);
        Case::fixed(Tiny::llama(), flags, |i, j| {
            let d = (i - j) as f64;
            Some(if d < 30.0 { d } else { 30.0 + (d - 30.0) / 7.0 })
        })
    }

    fn lm_infinite() -> Case {
        let flags = Flags::method("lm-infinite")
            .with(&lm_infinite::GLOBAL, 5)
            .with(&lm_infinite::LOCAL, 50);
        Case::fixed(Tiny::gemma3(), flags, |i, j| match i - j {
            d if d < 50 => Some(d as f64),
            _ if j < 5 => Some(50.0),
            _ => None,
        })
    }

    fn expected(&self) -> Vec<Vec<f32>> {
        let trained = self.tiny.context as f64;
        let rules = Rules {
            place: &place,
            frequencies: &self.frequencies,
            distance: &self.distance,
            query_scale: &|i| match self.log_n {
                true => ((i as f64 + 1.0).ln() / trained.ln()).max(1.0),
                false => 1.0,
            },
        };
        let window = Frequencies::new(&self.tiny, 1.0).window;
        forward_by(&self.tiny, &rules, &window, &tokens(&self.tiny, ALL))
    }

    fn how(&self) -> How {
        let flags = Flags { context_shift: true, ..self.flags.clone() };
        How { context: CONTEXT, flags, ..How::default() }
    }

    /// Computes the logits of all tokens, with the first `KEPT` kept.
    fn found(&self, how: &How) -> Vec<Vec<f32>> {
        with_session(&self.tiny, how, |session| {
            session.keep(KEPT).unwrap();
            let found = how.read(session, &tokens(&self.tiny, ALL));
            assert_eq!(session.take_evicted(), Some(10 * EVICTED));
            assert_eq!(session.take_recomputed(), None);
            found
        })
    }
}

/// Cases that also read one token at a time, which takes long.
const ONE_BY_ONE: [&str; 10] = [
    "llama",
    "log_n",
    "leaky_rerope",
    "lm_infinite",
    "dca",
    "yarn",
    "dynamic",
    "second_of_fu",
    "long_rope",
    "dynamic_yarn_with_log_n",
];

on_each_case!(ten_shifts_are_what_their_definition_says {
    llama(Case::fixed(Tiny::llama(), Flags::default(), plainly)),
    gemma3(Case::fixed(Tiny::gemma3(), Flags::default(), plainly)),
    gemma4({
        let tiny = Tiny { window: Some((40, 3)), ..Tiny::named("gemma4") };
        Case::fixed(tiny, Flags::default(), plainly)
    }),
    log_n(Case::fixed(Tiny::llama(), Flags::default().with(&LOG_N, true), plainly)),
    rerope(Case::rerope(None)),
    rerope_without_log_n(Case::rerope(Some(false))),
    leaky_rerope(Case::leaky_rerope()),
    self_extend(Case::self_extend(Tiny::llama())),
    self_extend_of_gemma3(Case::self_extend(Tiny::gemma3())),
    lm_infinite(Case::lm_infinite()),
    string(Case::string()),
    dca(Case::dca(Tiny::llama())),
    dca_of_gemma3(Case::dca(Tiny::gemma3())),
    ntk(Case::named("ntk")),
    ntk_mixed(Case::named("ntk-mixed")),
    yarn(Case::named("yarn")),
    llama3(Case::named("llama3")),
    dprope(Case::named("dprope")),
    cope(Case::named("cope")),
});

/// Kept keys do not change, later keys only move, and no key is scaled twice.
fn ten_shifts_are_what_their_definition_says(name: &str, case: Case) {
    let expected = case.expected();
    let of = |micro_batch| case.found(&How { micro_batch, ..case.how() });
    let close = |found: &[Vec<f32>]| {
        let apart = difference(&expected, found);
        assert!(apart < BOUND, "{name}: {apart}");
    };
    let found = of(64);
    close(&found);
    assert!(found == of(7), "{name}");
    // With policy run all tokens would be recomputed.
    if ONE_BY_ONE.contains(&name) && case.flags.values.word(&POLICY) != Some("run") {
        close(&of(1));
    }
}

on_every_rule!(ten_shifts_with_frequencies_that_follow_the_length);

fn ten_shifts_with_frequencies_that_follow_the_length(name: &str) {
    for policy in Policy::ALL {
        let case = Case::by_length(position::Case::named(name), policy);
        ten_shifts_are_what_their_definition_says(name, case);
    }
}

/// The bounds are from `consistency`. The error after ten shifts is no larger than before the first
/// one, except for chance. Keys are at their distances, at others, and with frequencies that depend
/// on the position.
#[test]
fn every_cache_type_is_as_near_as_its_steps_after_ten_shifts() {
    let dynamic = |case: &position::Case| case.flags.values.word(&SCALING) == Some("dynamic");
    let dynamic = position::Case::all().into_iter().find(dynamic).unwrap();
    let cases = [
        Case::fixed(Tiny::llama(), Flags::default(), plainly),
        Case::self_extend(Tiny::llama()),
        Case::by_length(dynamic, Policy::Position),
    ];
    for case in cases {
        let exact = case.expected();
        for keys in CacheType::ALL {
            let step = step(keys);
            let found = case.found(&How { keys, values: keys, ..case.how() });
            let mean = |range: std::ops::Range<usize>| {
                mean_difference(&exact[range.clone()], &found[range])
            };
            let (before, after) = (mean(0..CONTEXT), mean(ALL - CONTEXT..ALL));
            let what = format!("{:?} {}", case.flags.scaling(), keys.name());
            assert!(after <= 8.0 * step + f64::from(BOUND), "{what}: {after}");
            assert!(after <= 1.5 * before + f64::from(BOUND), "{what}: {before} {after}");
        }
    }
}

#[test]
fn evicted_tokens_are_read_again_if_needed() {
    let tiny = Tiny::llama();
    let case = Case::fixed(tiny.clone(), Flags::default(), plainly);
    let tokens = tokens(&tiny, 340);
    with_session(&tiny, &case.how(), |session| {
        session.keep(KEPT).unwrap();
        let first = logits(session, &tokens);
        assert_eq!(session.take_evicted(), Some(EVICTED));
        assert_eq!(session.tokens(), tokens);
        // After the gap all tokens remain; within it only the kept ones do.
        assert_eq!(session.truncate(320), 320);
        assert!(difference(&first[320..], &logits(session, &tokens[320..])) < BOUND);
        assert_eq!(session.truncate(100), KEPT);
        assert!(difference(&first[KEPT..], &logits(session, &tokens[KEPT..])) < BOUND);
        assert_eq!(session.truncate(5), 5);
        assert!(difference(&first[5..280], &logits(session, &tokens[5..280])) < BOUND);
    });
}

#[test]
fn a_context_without_room_to_shift_is_refused() {
    let case = Case::fixed(Tiny::llama(), Flags::default(), plainly);
    with_session(&case.tiny, &case.how(), |session| {
        assert!(session.keep(CONTEXT - 257).is_ok());
        let error = session.keep(CONTEXT - 256).unwrap_err().to_string();
        assert_eq!(
            error,
            "the context of 300 tokens is too small to shift and keep 44 tokens: it must be at least \
             301"
        );
    });
}
