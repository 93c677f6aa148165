//! Frequencies that depend on the length, for each token on the sequence up to it.

use std::path::Path;

use rope_cpu::{
    kv_cache::CacheType,
    rope::{Flags, LOG_N, POLICY, SCALE, clex, dynamic},
};
use safetensors::{Dtype, tensor::TensorView};

use crate::model::{
    cache_types::step,
    session::{How, difference, logits, mean_difference, tokens, with_session},
};
use rope_cpu_testing::{
    reference::{Frequencies, Rules, forward_by},
    tiny::Tiny,
};

/// The bound of `consistency`.
const BOUND: f32 = 2e-4;

/// The trained length. Grid lines beyond it are at 128, 160, 192, ...
const TRAINED: usize = 100;
const STEP: usize = 32;

/// Defines a test for each of [`Case::all`] from `check: fn(&str)`, which gets the name of a case.
macro_rules! on_every_rule {
    ($check:ident) => {
        rope_cpu_testing::on_each_case!($check {
            dynamic(),
            dynamic_of_gemma3(),
            first_of_fu(),
            second_of_fu(),
            dynamic_yarn(),
            dynamic_yarn_of_gemma3(),
            long_rope(),
            clex(),
            dynamic_with_log_n(),
            dynamic_yarn_with_log_n(),
        });
    };
}
pub(crate) use on_every_rule;

/// A rule: the model, the flags, and the frequencies and attention scale by effective length.
pub struct Case {
    pub tiny: Tiny,
    pub flags: Flags,
    /// Frequencies are constant up to this length. Beyond it they change at multiples of `step`.
    constant: usize,
    step: usize,
    pub frequencies: Box<dyn Fn(usize) -> (Vec<f64>, f64)>,
}

/// C': the second formula of Fu et al. is constant up to it. It is between two grid lines.
const TARGET: usize = 130;

impl Case {
    fn with_names() -> Vec<(&'static str, Case)> {
        let tiny = Tiny { context: TRAINED, ..Tiny::llama() };
        let gemma = Tiny { context: TRAINED, ..Tiny::gemma3() };
        vec![
            ("dynamic", Case::dynamic(&tiny, None)),
            ("dynamic_of_gemma3", Case::dynamic(&gemma, None)),
            ("first_of_fu", Case::dynamic(&tiny, Some("fu1"))),
            ("second_of_fu", Case::dynamic(&tiny, Some("fu2"))),
            ("dynamic_yarn", Case::dynamic_yarn(&tiny)),
            ("dynamic_yarn_of_gemma3", Case::dynamic_yarn(&gemma)),
            ("long_rope", Case::long_rope()),
            ("clex", Case::clex(&tiny)),
            ("dynamic_with_log_n", Case::log_n(Case::dynamic(&tiny, None))),
            ("dynamic_yarn_with_log_n", Case::log_n(Case::dynamic_yarn(&gemma))),
        ]
    }

    /// Returns every rule that depends on the length.
    pub fn all() -> Vec<Case> {
        Case::with_names().into_iter().map(|(_, case)| case).collect()
    }

    /// Returns the rule of a test of [`on_every_rule`].
    pub fn named(name: &str) -> Case {
        let mut all = Case::with_names();
        assert_eq!(all.len(), 10, "on_every_rule lists them");
        let at = all.iter().position(|(one, _)| *one == name).unwrap();
        all.swap_remove(at).1
    }

    fn new(tiny: &Tiny, flags: Flags, of: impl Fn(usize) -> (Vec<f64>, f64) + 'static) -> Case {
        let on_grid = flags.scaling().is_some_and(|scaling| scaling.reads(&dynamic::STEP));
        let step = on_grid.then_some(STEP);
        // LongRoPE's default is policy run.
        let policy = flags.scaling().is_none().then_some("position");
        let flags = flags.with_some(&POLICY, policy).with_some(&dynamic::STEP, step);
        let constant = flags.values.whole(&dynamic::TARGET).unwrap_or(TRAINED);
        let (tiny, step) = (tiny.clone(), step.unwrap_or(TRAINED));
        Case { tiny, flags, constant, step, frequencies: Box::new(of) }
    }

    /// Adds queries that grow with the position to a case.
    fn log_n(case: Case) -> Case {
        Case { flags: case.flags.clone().with(&LOG_N, true), ..case }
    }

    /// Dynamic NTK: theta_i * alpha^(-2i/(d-2)), alpha = n/C for a factor of 1, and for the second
    /// formula of Fu et al. alpha = s * max(C', n)/C - (s - 1), here with s = C' / 2C.
    fn dynamic(tiny: &Tiny, variant: Option<&'static str>) -> Case {
        let target = (variant == Some("fu2")).then_some(TARGET);
        let flags = Flags::method("dynamic")
            .with_some(&dynamic::VARIANT, variant)
            .with_some(&dynamic::TARGET, target);
        let model = tiny.clone();
        Case::new(tiny, flags, move |length| {
            let alpha = match target {
                None => length as f64 / TRAINED as f64,
                Some(target) => {
                    let s = target as f64 / (2 * TRAINED) as f64;
                    s * length.max(target) as f64 / TRAINED as f64 - (s - 1.0)
                }
            };
            let d = model.n_rot as f64;
            let plain = Frequencies::new(&model, 1.0).global.into_iter().enumerate();
            (plain.map(|(i, f)| f * alpha.powf(-2.0 * i as f64 / (d - 2.0))).collect(), 1.0)
        })
    }

    /// Dynamic YaRN, with s = n/L. In such a short context the ramp is between pair 0 and the last
    /// one.
    fn dynamic_yarn(tiny: &Tiny) -> Case {
        let flags = Flags::method("dynamic-yarn");
        let model = tiny.clone();
        Case::new(tiny, flags, move |length| {
            let s = length as f64 / TRAINED as f64;
            let (d, base) = (model.n_rot as f64, f64::from(model.base));
            let pair = |turns: f64| {
                d * (TRAINED as f64 / (turns * std::f64::consts::TAU)).ln() / (2.0 * base.ln())
            };
            let (low, high) = (pair(32.0).floor().max(0.0), pair(1.0).ceil().min(d - 1.0));
            let plain = Frequencies::new(&model, 1.0).global.into_iter().enumerate();
            let mixed = plain.map(|(i, f)| {
                let ramp = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
                f / s * ramp + f * (1.0 - ramp)
            });
            (mixed.collect(), 0.1 * s.ln() + 1.0)
        })
    }

    fn long_rope() -> Case {
        let tiny = Tiny { long_rope: Some(TRAINED), ..Tiny::llama() };
        let model = tiny.clone();
        Case::new(&tiny, Flags::default(), move |length| {
            let divisors = &model.divisors()[usize::from(length > TRAINED)];
            let plain = Frequencies::new(&model, 1.0).global.into_iter();
            (plain.zip(divisors).map(|(f, d)| f / f64::from(*d)).collect(), 1.0)
        })
    }

    /// CLEX with weights of zero, which is NTK with alpha = 2t - 1, t = n/C rounded up, except for
    /// 1.5e-10.
    fn clex(tiny: &Tiny) -> Case {
        let shape = [("ode_up_proj", [tiny.n_rot / 2, 3]), ("ode_down_proj", [3, tiny.n_rot / 2])];
        let zeros = vec![0; 4 * 3 * tiny.n_rot / 2];
        let views = shape.map(|(name, shape)| {
            (name, TensorView::new(Dtype::F32, shape.to_vec(), &zeros).unwrap())
        });
        // The same bytes in every test, at a path that outlives the case.
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let file = tempfile::NamedTempFile::new_in(folder).unwrap();
        std::fs::write(file.path(), safetensors::serialize(views, None).unwrap()).unwrap();
        let weights = folder.join(format!("clex-{}.safetensors", tiny.n_rot));
        file.persist(&weights).unwrap();
        let flags = Flags::method("clex").with(&SCALE, 4.0).with(&clex::WEIGHTS, weights);
        let model = tiny.clone();
        Case::new(tiny, flags, move |length| {
            let alpha = 2.0 * (length / TRAINED) as f64 - 1.0;
            let d = model.n_rot as f64;
            let plain = Frequencies::new(&model, 1.0).global.into_iter().enumerate();
            (plain.map(|(i, f)| f * alpha.powf(-2.0 * i as f64 / (d - 2.0))).collect(), 1.0)
        })
    }

    /// Returns the effective length of a token at position `i`.
    pub fn effective(&self, i: usize) -> usize {
        if i < self.constant { self.constant } else { (i + 1).div_ceil(self.step) * self.step }
    }

    /// Returns the factor of the query at position `i`.
    pub fn query_scale(&self, i: usize) -> f64 {
        match self.flags.values.switch(&LOG_N) {
            Some(true) => ((i as f64 + 1.0).ln() / (TRAINED as f64).ln()).max(1.0),
            _ => 1.0,
        }
    }

    fn expected(&self, n: usize) -> Vec<Vec<f32>> {
        self.by(&|i| self.effective(i), n)
    }

    /// Computes the logits of `n` tokens, each with the effective length that `length` returns for
    /// it.
    pub fn by(&self, length: &dyn Fn(usize) -> usize, n: usize) -> Vec<Vec<f32>> {
        self.with_rules(length, |rules, window| {
            forward_by(&self.tiny, rules, window, &tokens(&self.tiny, n))
        })
    }

    /// Calls `test` with the rules for these effective lengths, and the frequencies of window layers.
    pub fn with_rules<T>(
        &self,
        length: &dyn Fn(usize) -> usize,
        test: impl FnOnce(&Rules<'_>, &[f64]) -> T,
    ) -> T {
        let rules = Rules {
            place: &|_, j| Some(j),
            frequencies: &|i| (self.frequencies)(length(i)),
            distance: &|i, j| Some((i - j) as f64),
            query_scale: &|i| self.query_scale(i),
        };
        test(&rules, &Frequencies::new(&self.tiny, 1.0).window)
    }

    pub fn how(&self) -> How {
        How { flags: self.flags.clone(), ..How::default() }
    }

    fn found(&self, how: &How, n: usize) -> Vec<Vec<f32>> {
        with_session(&self.tiny, how, |session| how.read(session, &tokens(&self.tiny, n)))
    }
}

#[test]
fn micro_batches_of_any_size_agree_across_grid_lines() {
    for case in Case::all() {
        let (expected, scaling) = (case.expected(300), case.flags.scaling());
        let of = |micro_batch| case.found(&How { micro_batch, ..case.how() }, 300);
        let whole = of(300);
        for found in [&whole, &of(1)] {
            let apart = difference(&expected, found);
            assert!(apart < BOUND, "{scaling:?}: {apart}");
        }
        for micro_batch in [7, 64] {
            assert!(whole == of(micro_batch), "{scaling:?}, {micro_batch}");
        }
    }
}

#[test]
fn nothing_is_computed_twice_and_what_was_truncated_leaves_no_trace() {
    for case in Case::all() {
        let tokens = tokens(&case.tiny, 200);
        let expected = case.expected(200);
        with_session(&case.tiny, &case.how(), |session| {
            session.retain_from(90);
            let mut found = logits(session, &tokens[..90]);
            logits(session, &[7; 150]);
            assert_eq!(session.truncate(90), 90);
            for turn in [90..101, 101..102, 102..170, 170..200] {
                found.extend(logits(session, &tokens[turn]));
            }
            assert!(difference(&expected, &found) < BOUND);
            assert_eq!(session.take_recomputed(), None);
        });
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    for case in Case::all() {
        for micro_batch in [1, 64] {
            let how = |threads| How { threads, micro_batch, ..case.how() };
            assert!(case.found(&how(1), 200) == case.found(&how(3), 200));
        }
    }
}

/// Within the trained length the frequencies are the model's own: raw keys, which are rotated when
/// they are read, give the same as keys that are rotated when they are stored. The cache types
/// round different numbers, but by as much.
#[test]
fn raw_keys_are_as_good_as_rotated_ones_in_every_cache_type() {
    let tiny = Tiny { context: TRAINED, ..Tiny::llama() };
    let case = Case::dynamic(&tiny, None);
    let rotated = with_session(&tiny, &How::default(), |s| logits(s, &tokens(&tiny, TRAINED)));
    for keys in CacheType::ALL {
        let step = step(keys);
        let raw = case.found(&How { keys, ..case.how() }, TRAINED);
        let mean = mean_difference(&rotated, &raw);
        // The bound of `consistency`.
        assert!(mean <= 8.0 * step + f64::from(BOUND), "{}: {mean}", keys.name());
        assert!(step == 0.0 || mean > 0.0, "{} has no effect", keys.name());
        // One by one, the same keys are read in another way.
        let one_by_one = case.found(&How { keys, micro_batch: 1, ..case.how() }, TRAINED);
        let apart = difference(&raw, &one_by_one);
        assert!(keys != CacheType::F32 || apart < BOUND, "{}: {apart}", keys.name());
    }
}

#[test]
fn the_policies_differ() {
    let case = Case::dynamic(&Tiny { context: TRAINED, ..Tiny::llama() }, None);
    let run = case.flags.clone().with(&POLICY, "run");
    let run = case.found(&How { flags: run, ..case.how() }, 200);
    let position = case.found(&case.how(), 200);
    assert!(difference(&run, &position) > 100.0 * BOUND);
}
