//! The plan as JSON.

use serde_json::{Value, json};

use super::{Plan, Sourced};

impl<T: Clone + Into<Value>> Sourced<T> {
    /// Returns an object with the value and its origin.
    pub fn json(&self) -> Value {
        json!({"value": self.value.clone().into(), "origin": self.origin.to_string()})
    }
}

impl Plan {
    /// Returns the values that all rules have, each with its origin. The plan's line contains the
    /// values of its own rule.
    pub fn values(&self) -> Value {
        let (policy, window) = (self.policy.as_ref(), self.window.as_ref());
        json!({
            "factor": self.factor.json(),
            "base": self.base.json(),
            "base_trained": self.base_train.json(),
            "base_window": window.map(|window| window.base.json()),
            "n_rot": self.n_rot,
            "n_rot_window": window.map(|window| window.n_rot),
            "attention_scale": self.attention_scale.json(),
            "log_n": self.log_n.as_ref().map(Sourced::json),
            "policy": policy.map(|p| json!({"value": p.value.name(), "origin": p.origin.to_string()})),
            "context_original": self.original_context.json(),
            "context_trained": self.context_train.json(),
            "context": self.context.json(),
        })
    }
}
