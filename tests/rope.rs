//! Tests of RoPE against an independent reference, `tests/data/rope/golden.json`, which was computed
//! by `rope_ref.py` (numpy, f64) in the same folder.

mod auto;
mod baked;
mod clex;
mod distances;
mod dprope;
mod effect;
mod errors;
mod golden;
mod line;
mod precedence;
mod properties;
mod proportional;
mod rows;
mod tensors;
mod unlike_llama_cpp;
mod warnings;

use rope_cpu::{
    gguf::{Metadata, Value},
    model::Architecture,
    rope::{Error, Factors, Family, Flags, LogMultiplier, ModelInfo, Plan, Sourced},
};

/// The model and the flags that a plan is resolved from.
struct Case {
    architecture: &'static str,
    n_rot: usize,
    context_train: usize,
    context: Option<usize>,
    window_n_rot: Option<usize>,
    rotates: bool,
    metadata: Metadata<'static>,
    factors: Factors,
    flags: Flags,
}

impl Default for Case {
    fn default() -> Self {
        Case {
            architecture: "llama",
            n_rot: 64,
            context_train: 8192,
            context: None,
            window_n_rot: None,
            rotates: true,
            metadata: Metadata::default(),
            factors: Factors::default(),
            flags: Flags::default(),
        }
    }
}

impl Case {
    /// Adds the metadata key `{architecture}.rope.{name}`.
    fn key(mut self, name: &str, value: Value<'static>) -> Self {
        self.metadata.insert(format!("{}.rope.{name}", self.architecture).leak(), value);
        self
    }

    fn float(self, name: &str, value: f32) -> Self {
        self.key(name, Value::F32(value))
    }

    fn scaling(self, name: &'static str) -> Self {
        self.key("scaling.type", Value::String(name.as_bytes()))
    }

    fn flags(self, flags: Flags) -> Self {
        Case { flags, ..self }
    }

    /// Resolves the plan for `context`, or by default for the trained length.
    fn plan(self) -> Result<Plan, Error> {
        let Case { architecture, n_rot, context_train, window_n_rot, rotates, .. } = self;
        let context = match self.context {
            Some(context) => Sourced::given(context, "--ctx"),
            None => Sourced::default(context_train),
        };
        let family = family(architecture);
        let info = ModelInfo {
            architecture,
            family,
            causal: true,
            n_rot,
            window_n_rot,
            context_train,
            rotates,
        };
        Plan::resolve(&info, &self.metadata, self.factors, &self.flags, context)
    }

    /// Returns the message of the error that resolving this case must return.
    fn error(self) -> String {
        match self.plan() {
            Ok(plan) => panic!("no error, but {plan}"),
            Err(error) => error.to_string(),
        }
    }
}

/// Returns the properties of a supported architecture, or of DeepSeek 2.
fn family(architecture: &str) -> Family {
    match architecture {
        "deepseek2" => Family { log_multiplier: LogMultiplier::Both, ..Family::PLAIN },
        name => Architecture::named(name).unwrap().rope,
    }
}

/// Returns the reference.
fn golden() -> serde_json::Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/rope/golden.json");
    serde_json::from_reader(std::fs::File::open(path).unwrap()).unwrap()
}

fn floats(value: &serde_json::Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

/// Panics unless `found` equals `expected` up to the relative error `relative`.
fn close(what: &str, found: f64, expected: f64, relative: f64) {
    let error = (found - expected).abs();
    assert!(error <= relative * expected.abs(), "{what}: {found} instead of {expected}");
}
