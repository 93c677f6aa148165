//! Sessions and engines over a small model, and comparisons of their logits.

use std::ops::ControlFlow;

use rope_cpu::{
    gguf::File,
    kv_cache::CacheType,
    model::{Engine, Error, Model, OpenOptions, Options, Session},
    rope::{Flags, Rope, Sourced},
    threads::Workers,
};

use rope_cpu_testing::{builder::Builder, tiny::Tiny};

/// The settings with which a test runs a model.
#[derive(Clone)]
pub struct How {
    /// The number of tokens computed in one pass; 1 to read tokens one by one as an answer.
    pub micro_batch: usize,
    pub threads: usize,
    /// The threads of prompts, if they differ.
    pub prompt_threads: Option<usize>,
    pub keys: CacheType,
    pub values: CacheType,
    pub context: usize,
    pub flags: Flags,
}

impl How {
    /// Returns the micro-batches to try. They do not include an answer if LongRoPE changes
    /// frequencies as the sequence grows, which is tested in `run`.
    pub fn micro_batches(tiny: &Tiny) -> &'static [usize] {
        if tiny.long_rope.is_some() { &[7, 64] } else { &[1, 7, 64] }
    }

    /// Reads tokens and returns the logits of each.
    pub fn read(&self, session: &mut Session, tokens: &[u32]) -> Vec<Vec<f32>> {
        if self.micro_batch > 1 {
            return logits(session, tokens);
        }
        let go_on = &mut |_| ControlFlow::Continue(());
        let after = |&token| session.answer(token, go_on).unwrap().unwrap().to_vec();
        tokens.iter().map(after).collect()
    }
}

impl Default for How {
    fn default() -> Self {
        How {
            micro_batch: 64,
            // Threads that wait for each other make tests slow that run beside others. `architectures`
            // and `consistency` have more.
            threads: 1,
            prompt_threads: None,
            keys: CacheType::F32,
            values: CacheType::F32,
            context: 4096,
            flags: Flags::default(),
        }
    }
}

/// Loads the model and calls `test` with a session over it.
pub fn with_session<T>(tiny: &Tiny, how: &How, test: impl FnOnce(&mut Session) -> T) -> T {
    with_adapters(tiny, &[], how, test)
}

/// Loads a model from memory, with adapters and their scales. Adapters are written to files.
pub fn load(file: &Builder, adapters: &[(Builder, f32)]) -> Result<Model, Error> {
    let files: Vec<_> = adapters.iter().map(|(b, scale)| (b.file(), *scale)).collect();
    let mut options = OpenOptions::new();
    for (file, scale) in &files {
        options = options.adapter(file.path(), *scale);
    }
    options.load(File::in_memory("model.gguf", &file.bytes())?)
}

/// Calls `test` like [`with_session`], with adapters and their scales.
pub fn with_adapters<T>(
    tiny: &Tiny,
    adapters: &[(Builder, f32)],
    how: &How,
    test: impl FnOnce(&mut Session) -> T,
) -> T {
    with_file(&tiny.builder(), adapters, how, test)
}

/// Calls `test` like [`with_adapters`], with another file for the model.
pub fn with_file<T>(
    file: &Builder,
    adapters: &[(Builder, f32)],
    how: &How,
    test: impl FnOnce(&mut Session) -> T,
) -> T {
    with_model(file, adapters, how, |model, rope, options| {
        test(&mut Session::new(model, rope, options).unwrap())
    })
}

/// Loads the model and calls `test` with an engine of it.
pub fn with_engine<T>(tiny: &Tiny, how: &How, test: impl FnOnce(&mut Engine) -> T) -> T {
    with_model(&tiny.builder(), &[], how, |model, rope, options| {
        test(&mut Engine::new(model, rope, options).unwrap())
    })
}

/// Loads a model with adapters and their scales, and calls `test` with it.
pub fn with_model<T>(
    file: &Builder,
    adapters: &[(Builder, f32)],
    how: &How,
    test: impl FnOnce(&Model, Rope, Options) -> T,
) -> T {
    let model = load(file, adapters).unwrap();
    let plan = model.rope_plan(&how.flags, Sourced::given(how.context, "--ctx")).unwrap();
    let options = Options {
        micro_batch: how.micro_batch,
        keys: how.keys,
        values: how.values,
        threads: Workers {
            answers: how.threads,
            prompts: how.prompt_threads.unwrap_or(how.threads),
        },
        ..Options::new(how.context)
    };
    test(&model, Rope::new(plan), options)
}

/// Returns `n` tokens without a pattern.
pub fn tokens(tiny: &Tiny, n: usize) -> Vec<u32> {
    (0..n as u64).map(|i| (i * i * 31 + i * 7 + 3) as u32 % 251 % tiny.vocabulary as u32).collect()
}

/// Reads a prompt and returns the logits of each token.
pub fn logits(session: &mut Session, tokens: &[u32]) -> Vec<Vec<f32>> {
    let mut all = Vec::new();
    session.evaluate(tokens, 0..tokens.len(), &mut |_, logits| all.push(logits.to_vec())).unwrap();
    all
}

/// Returns the largest difference of two sets of logits.
pub fn difference(a: &[Vec<f32>], b: &[Vec<f32>]) -> f32 {
    assert_eq!(a.len(), b.len());
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// Returns the mean difference of two sets of logits.
pub fn mean_difference(a: &[Vec<f32>], b: &[Vec<f32>]) -> f64 {
    assert_eq!(a.len(), b.len());
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    let differences: Vec<_> = pairs.map(|(a, b)| f64::from((a - b).abs())).collect();
    differences.iter().sum::<f64>() / differences.len() as f64
}
