//! Metadata keys that would change results, and that the model's family does not read.
//!
//! A file with such a key is refused: its results would be wrong, as with a tensor that is not used.
//! Any other unread key is permitted, since converters write many keys that only describe a model.

use super::{Config, Rotation, keys::Keys, positions::ROTATES};
use crate::{gguf::Value, model::Error};

/// The values of a key that change nothing.
#[derive(Clone, Copy, Debug)]
enum Neutral {
    /// 0, which means none.
    Zero,
    /// 0, or in files that llama.cpp saved the value that it has for all families.
    Saved(f32),
    /// 1, or 0, which means none.
    One,
    /// True in all layers.
    True,
    /// The softmax of the scores of experts, scaled to sum to 1.
    Softmax,
    /// 0, or at least the trained length.
    Window,
}

const ATTENTION_CAP: &str = "attn_logit_softcapping";
const LOGIT_CAP: &str = "final_logit_softcapping";

/// Keys that change the computation of some family in llama.cpp, from `LLM_KV_NAMES` in
/// src/llama-arch.cpp of b11434. Keys that describe tensors are left out: the tensors are refused.
const CHANGING: [(&str, Neutral); 22] = [
    ("embedding_scale", Neutral::One),
    ("residual_scale", Neutral::One),
    ("logit_scale", Neutral::One),
    (ATTENTION_CAP, Neutral::Saved(50.0)),
    ("router_logit_softcapping", Neutral::Saved(30.0)),
    (LOGIT_CAP, Neutral::Saved(30.0)),
    ("swiglu_clamp_exp", Neutral::Zero),
    ("swiglu_clamp_shexp", Neutral::Zero),
    ("activation.situ_beta", Neutral::Saved(1.0)),
    ("activation.situ_linear_beta", Neutral::Zero),
    ("use_parallel_residual", Neutral::Zero),
    ("num_loops", Neutral::One),
    ("expert_group_count", Neutral::One),
    // Not `expert_weights_norm`: llama.cpp writes false into saved files of every family, and reads
    // it in few.
    ("expert_gating_func", Neutral::Softmax),
    ("attention.max_alibi_bias", Neutral::Zero),
    ("attention.clamp_kqv", Neutral::Zero),
    ("attention.scale", Neutral::Zero),
    ("attention.output_scale", Neutral::One),
    ("attention.value_scale", Neutral::One),
    ("attention.sliding_window", Neutral::Window),
    (ROTATES, Neutral::True),
    ("ssm.dt_b_c_rms", Neutral::Zero),
];

impl Neutral {
    /// Returns whether `value` changes nothing in a model with this trained length, in a file that
    /// llama.cpp `saved` or another. A value that is no number is taken for a description.
    fn holds(self, value: Value<'_>, context: usize, saved: bool) -> bool {
        let one = |x: f64| match self {
            Neutral::Zero => x == 0.0,
            Neutral::Saved(default) => x == 0.0 || saved && x == f64::from(default),
            Neutral::One => x == 0.0 || x == 1.0,
            Neutral::True => x != 0.0,
            // `LLAMA_EXPERT_GATING_FUNC_TYPE_*` in llama.cpp: none, of all experts, of the chosen ones.
            Neutral::Softmax => [0.0, 1.0, 3.0].contains(&x),
            Neutral::Window => x <= 0.0 || x >= context as f64,
        };
        numbers(value).into_iter().all(one)
    }

    /// Returns the value to set in place of another one to compute without the key.
    fn name(self) -> &'static str {
        match self {
            Neutral::Zero | Neutral::Saved(_) | Neutral::Window => "0",
            Neutral::One | Neutral::Softmax => "1",
            Neutral::True => "true in all layers",
        }
    }
}

/// Returns the numbers in a value. Booleans are 0 and 1.
fn numbers(value: Value<'_>) -> Vec<f64> {
    match value {
        Value::F32(x) => vec![x.into()],
        Value::F64(x) => vec![x],
        Value::Bool(x) => vec![f64::from(u8::from(x))],
        Value::Array(array) => match (array.f32s(), array.integers()) {
            (Some(floats), _) => floats.into_iter().map(f64::from).collect(),
            (None, integers) => integers.into_iter().flatten().map(|x| x as f64).collect(),
        },
        other => other.integer().into_iter().map(|x| x as f64).collect(),
    }
}

/// Checks that no key that would change results was left unread.
///
/// # Errors
/// If there is one. The error names it and its value.
pub fn check(keys: &Keys<'_, '_>, config: &Config) -> Result<(), Error> {
    let has_experts = config.mixture().is_some();
    // `llama_model_save_to_file` writes all keys that it knows for every family. Converters write one
    // cap or none, except for families that read both.
    let saved = [ATTENTION_CAP, LOGIT_CAP].iter().all(|cap| keys.has(cap));
    // It also writes here what `rope.scaling.finetuned` says.
    let rotates = config.attention().any(|layer| layer.rotation != Rotation::None);
    for (key, neutral) in CHANGING {
        let ignored = config.architecture.ignored_keys.contains(&key)
            || key.starts_with("expert_") && !has_experts
            || key == ROTATES && !rotates;
        let Some(value) = keys.unread(key).filter(|_| !ignored) else { continue };
        if !neutral.holds(value, config.context_train, saved) {
            let (family, neutral) = (keys.architecture, neutral.name());
            let reason = format!(
                "not supported in {family} models, and results without it would be wrong; override it \
                 with {neutral} to compute without it"
            );
            return Err(Error::Value { key: keys.name(key), value: value.to_string(), reason });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{gguf::Metadata, model::Architecture};

    /// Returns the metadata of a file with one key.
    fn one<'a>(key: &'a str, value: Value<'a>) -> Metadata<'a> {
        let mut metadata = Metadata::default();
        metadata.insert(key, value);
        metadata
    }

    #[test]
    fn a_key_is_unread_until_its_name_is_used() {
        let metadata = one("llama.logit_scale", Value::F32(2.0));
        let keys = Keys::new(&metadata, "llama");
        assert_eq!(keys.unread("logit_scale"), Some(Value::F32(2.0)));
        assert_eq!(keys.unread("residual_scale"), None);
        assert_eq!(keys.required("logit_scale").unwrap(), 2.0);
        assert_eq!(keys.unread("logit_scale"), None);
    }

    #[test]
    fn neutral_values_change_nothing() {
        let holds = |neutral: Neutral, value| neutral.holds(value, 100, false);
        for (neutral, value) in [
            (Neutral::Zero, Value::F32(0.0)),
            (Neutral::Zero, Value::Bool(false)),
            (Neutral::One, Value::F32(1.0)),
            (Neutral::One, Value::U32(0)),
            (Neutral::True, Value::Bool(true)),
            (Neutral::Softmax, Value::U32(1)),
            (Neutral::Softmax, Value::U32(3)),
            (Neutral::Window, Value::U32(0)),
            (Neutral::Window, Value::I32(-1)),
            (Neutral::Window, Value::U32(100)),
            (Neutral::Zero, Value::String(b"a description")),
        ] {
            assert!(holds(neutral, value), "{neutral:?} {value}");
        }
        for (neutral, value) in [
            (Neutral::Zero, Value::F32(30.0)),
            (Neutral::Zero, Value::F64(f64::NAN)),
            (Neutral::Zero, Value::Bool(true)),
            (Neutral::One, Value::F32(0.5)),
            (Neutral::One, Value::U32(8)),
            (Neutral::True, Value::Bool(false)),
            (Neutral::Softmax, Value::U32(2)),
            (Neutral::Window, Value::U32(99)),
        ] {
            assert!(!holds(neutral, value), "{neutral:?} {value}");
        }
        for (x, saved, neutral) in [(0.0, false, true), (30.0, false, false), (30.0, true, true)] {
            let cap = Neutral::Saved(30.0);
            assert_eq!(cap.holds(Value::F32(x), 100, saved), neutral, "{x}, {saved}");
            assert!(!cap.holds(Value::F32(25.0), 100, saved));
        }
    }

    #[test]
    fn ignored_keys_are_keys_of_the_list() {
        for family in Architecture::ALL {
            for key in family.ignored_keys {
                assert!(CHANGING.iter().any(|(name, _)| name == key), "{}.{key}", family.name);
            }
        }
    }
}
