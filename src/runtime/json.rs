//! The plan as JSON.

use serde_json::{Value, json};

use super::Plan;
use crate::model::memory::{Need, Request};

impl Plan {
    /// Returns the plan as an object: the same values as its lines, in bytes and tokens, each with its
    /// origin where it has one.
    ///
    /// ```no_run
    /// use rope_cpu::{model::Model, runtime::{Plan, Settings}};
    ///
    /// let plan = Plan::new(&Model::open("model.gguf")?, &Settings::default())?.json();
    /// println!("{} bytes for {} tokens", plan["memory"]["total"], plan["context"]["value"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn json(&self) -> Value {
        let Need { weights, keys, values, states, buffers } = self.need();
        let Request { sequences, micro_batch, keys: key_type, values: value_type, .. } =
            self.request;
        let assistant = self.assistant.as_ref().map(|assistant| assistant.path().to_string_lossy());
        json!({
            "model": self.model,
            "context": self.context.json(),
            "sequences": sequences,
            "micro_batch": micro_batch,
            "cache_types": {"keys": key_type.name(), "values": value_type.name()},
            "memory": {
                "total": self.need().total(),
                "weights": weights,
                "keys": keys,
                "values": values,
                "states": states,
                "buffers": buffers,
                "available": self.available.map(|available| available.bytes),
                "fits": self.check().is_ok(),
            },
            "threads": {
                "answers": self.threads.workers.answers,
                "prompts": self.threads.workers.prompts,
                "reason": self.threads.reason,
            },
            "isa": self.cpu.name(),
            "rope": {
                "method": self.rope.effective_scaling().name,
                "line": self.rope.to_string(),
                "values": self.rope.values(),
                "warnings": self.rope.warnings,
            },
            "sparse": self.sparse.lines().collect::<Vec<_>>(),
            "drafts": {
                "predictor": self.predict,
                "assistant": assistant,
                "model": self.draft.as_ref().map(|draft| draft.plan.json()),
            },
            "warnings": self.warnings,
        })
    }
}
