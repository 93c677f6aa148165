//! Fields of a request that the response repeats unchanged.

use serde_json::{Map, Value, json};

crate::object! {
    /// Fields that the response repeats.
    pub struct Echoed {
        /// The system message.
        instructions: Option<Value>,
        /// Maximum tokens of the answer.
        max_output_tokens: Option<Value>,
        /// Data that the client attaches to the response.
        metadata: Option<Value>,
        /// Whether an answer may have more than one call of a tool.
        parallel_tool_calls: Option<Value>,
        /// The reasoning before the answer.
        reasoning: Option<Value>,
        /// The temperature.
        temperature: Option<Value>,
        /// The form of the answer.
        text: Option<Value>,
        /// The choice of tools.
        tool_choice: Option<Value>,
        /// The tools.
        tools: Option<Value>,
        /// The sum of the probabilities to keep.
        top_p: Option<Value>,
        /// The user.
        user: Option<Value>,
    }
}

impl Echoed {
    /// Returns the fields, with defaults for missing ones.
    pub fn fields(self) -> Map<String, Value> {
        let fields = [
            ("instructions", self.instructions, Value::Null),
            ("max_output_tokens", self.max_output_tokens, Value::Null),
            ("metadata", self.metadata, json!({})),
            ("parallel_tool_calls", self.parallel_tool_calls, false.into()),
            ("reasoning", self.reasoning, json!({ "effort": null, "summary": null })),
            ("temperature", self.temperature, Value::Null),
            ("text", self.text, json!({ "format": { "type": "text" } })),
            ("tool_choice", self.tool_choice, "auto".into()),
            ("tools", self.tools, json!([])),
            ("top_p", self.top_p, Value::Null),
            ("user", self.user, Value::Null),
        ];
        let given =
            fields.map(|(name, given, default)| (name.to_string(), given.unwrap_or(default)));
        given.into_iter().collect()
    }
}
