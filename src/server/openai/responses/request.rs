//! Requests of OpenAI's responses in the form of its chat completions.

use serde_json::{Map, Value, json};

use tracing::warn;

use crate::server::{
    chat::{ROLES, content, role},
    error::ApiError,
    fields::{Fields, objects},
    openai::tools::{Declared, LOCAL_SHELL, custom_arguments, flat},
    request_fields,
};

/// Items of tools that run on OpenAI's servers, which a client may send back from another model's
/// answer. The model cannot read them.
const SERVER_ITEMS: [&str; 12] = [
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "computer_call",
    "computer_call_output",
    "image_generation_call",
    "mcp_list_tools",
    "mcp_call",
    "mcp_approval_request",
    "mcp_approval_response",
    "tool_search_call",
    "tool_search_output",
];

/// Returns a request in the form of chat completions, with its tools as the client declared them. Fields
/// that both have stay.
///
/// # Errors
/// If a field that differs is of another form, or requires that responses are stored.
pub fn convert(mut fields: Fields) -> Result<(Fields, Declared), ApiError> {
    request_fields::RESPONSES.check(&fields)?;
    let (mut messages, mut declared) = (Vec::new(), Declared::default());
    for tool in fields.objects("tools")?.unwrap_or_default() {
        declared.add(&tool)?;
    }
    if let Some(instructions) = fields.text("instructions")? {
        messages.push(json!({ "role": "system", "content": instructions }));
    }
    match fields.get("input") {
        Some(Value::String(text)) => messages.push(json!({ "role": "user", "content": text })),
        // A probe of a client may have nothing but instructions.
        Some(Value::Array(items)) if !items.is_empty() || !messages.is_empty() => {
            for item in objects("input", items)? {
                match item.text("type")? {
                    Some("additional_tools") => {
                        for tool in item.objects("tools")?.unwrap_or_default() {
                            declared.add(&tool)?;
                        }
                    }
                    _ => add(&mut messages, &item)?,
                }
            }
        }
        _ => return Err(fields.error("input", "a string or a list of at least one item")),
    }
    fields.set("messages", messages);
    fields.set("tools", declared.functions.clone());
    if fields.get("tool_choice").is_some_and(Value::is_object)
        && let Some(choice) = fields.within("tool_choice")?
    {
        fields.set("tool_choice", tool_choice(&choice)?);
    }
    fields.rename("max_output_tokens", "max_tokens");
    if let Some(reasoning) = fields.within("reasoning")?
        && let Some(effort) = reasoning.text("effort")?
    {
        fields.set("reasoning_effort", effort);
    }
    if let Some(text) = fields.within("text")?
        && let Some(format) = text.within("format")?
    {
        fields.set_from("response_format", response_format(&format)?, text.place("format"));
    }
    Ok((fields, declared))
}

/// Adds an item to the messages. What the model wrote in one turn is one message.
fn add(messages: &mut Vec<Value>, item: &Fields) -> Result<(), ApiError> {
    match item.text("type")?.unwrap_or("message") {
        "message" => {
            let role = role(item, &ROLES)?;
            content(item, "content", "")?;
            let parts = item.get("content").cloned().unwrap_or_default();
            match turn(messages).filter(|_| role == "assistant") {
                Some(turn) if !turn.contains_key("content") => {
                    turn.insert("content".into(), parts);
                }
                _ => messages.push(json!({ "role": role, "content": parts })),
            }
        }
        "reasoning" => {
            let parts = [item.list("content")?, item.list("summary")?];
            let parts = parts.into_iter().flatten().find(|parts| !parts.is_empty());
            let texts = parts.unwrap_or_default().iter().map(|part| part["text"].as_str());
            let text: Option<String> = texts.collect();
            let expected = "reasoning with a list of parts that have a \"text\"";
            let text = text.ok_or_else(|| item.error("content", expected))?;
            messages.push(json!({ "role": "assistant", "reasoning_content": text }));
        }
        "function_call" => {
            let name = flat(item.text("namespace")?, item.required_text("name")?);
            add_call(messages, item, &name, item.required_text("arguments")?)?;
        }
        "custom_tool_call" => {
            let name = flat(item.text("namespace")?, item.required_text("name")?);
            add_call(messages, item, &name, &custom_arguments(item.required_text("input")?))?;
        }
        "local_shell_call" => {
            let action = item.within("action")?;
            let mut action = action.ok_or_else(|| item.error("action", "an object"))?;
            for name in ["type", "env", "user"] {
                action.remove(name);
            }
            add_call(messages, item, LOCAL_SHELL, &json!(action).to_string())?;
        }
        "function_call_output" | "custom_tool_call_output" | "local_shell_call_output" => {
            content(item, "output", "")?;
            messages.push(json!({
                "role": "tool",
                "tool_call_id": call_id(item)?,
                "content": item.get("output"),
            }));
        }
        kind if SERVER_ITEMS.contains(&kind) => {
            warn!(target: "tools", kind, "skipped: an item of a tool that does not run on the client");
        }
        _ => {
            let expected = "message, reasoning, function_call, custom_tool_call, local_shell_call or one \
                            of their outputs";
            return Err(item.error("type", expected));
        }
    }
    Ok(())
}

/// Adds a call to the message of the model's turn.
fn add_call(
    messages: &mut Vec<Value>,
    item: &Fields,
    name: &str,
    arguments: &str,
) -> Result<(), ApiError> {
    let call = json!({
        "id": call_id(item)?,
        "type": "function",
        "function": { "name": name, "arguments": arguments },
    });
    match turn(messages).map(|turn| turn.entry("tool_calls").or_insert_with(|| json!([]))) {
        Some(Value::Array(calls)) => calls.push(call),
        _ => messages.push(json!({ "role": "assistant", "tool_calls": [call] })),
    }
    Ok(())
}

/// Returns the identifier of a call. Items of shells may have only their own.
fn call_id(item: &Fields) -> Result<&str, ApiError> {
    match (item.text("call_id")?, item.text("id")?) {
        (Some(id), _) => Ok(id),
        (None, Some(id))
            if item.text("type")?.is_some_and(|kind| kind.starts_with(LOCAL_SHELL)) =>
        {
            Ok(id)
        }
        _ => item.required_text("call_id"),
    }
}

/// Returns the last message if it is the model's.
fn turn(messages: &mut [Value]) -> Option<&mut Map<String, Value>> {
    let last = messages.last_mut()?.as_object_mut()?;
    last.get("role").is_some_and(|role| role == "assistant").then_some(last)
}

fn tool_choice(choice: &Fields) -> Result<Value, ApiError> {
    if choice.text("type")? != Some("allowed_tools") {
        return chosen(choice);
    }
    let tools = choice.objects("tools")?;
    let tools = tools.ok_or_else(|| choice.error("tools", "a list of tools"))?;
    // A tool that does not run on the client cannot be called, whether it is allowed or not.
    let tools: Vec<_> = tools.iter().filter_map(|tool| chosen(tool).ok()).collect();
    let allowed = json!({ "mode": choice.text("mode")?.unwrap_or("auto"), "tools": tools });
    Ok(json!({ "type": "allowed_tools", "allowed_tools": allowed }))
}

/// Returns a choice of one tool.
fn chosen(choice: &Fields) -> Result<Value, ApiError> {
    let name = match choice.text("type")?.unwrap_or_default() {
        "function" | "custom" => flat(choice.text("namespace")?, choice.required_text("name")?),
        LOCAL_SHELL => LOCAL_SHELL.into(),
        _ => {
            let expected = "function, custom, local_shell or allowed_tools: other tools do not run on the \
                            client";
            return Err(choice.error("type", expected));
        }
    };
    Ok(json!({ "type": "function", "function": { "name": name } }))
}

/// Returns the format of a text: a JSON schema has a field of its own in chat completions.
fn response_format(format: &Fields) -> Result<Value, ApiError> {
    match format.text("type")? {
        Some("json_schema") if format.get("schema").is_none() => {
            Err(format.error("schema", "a JSON schema"))
        }
        Some("json_schema") => Ok(json!({ "type": "json_schema", "json_schema": format })),
        _ => Ok(json!(format)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(request: Value) -> Result<Value, String> {
        let fields = Fields::of_value("", &request).unwrap();
        convert(fields).map(|(fields, _)| json!(fields)).map_err(|e| e.message)
    }

    #[test]
    fn items_of_one_turn_become_one_message() {
        let call = |id: &str| json!({ "type": "function_call", "call_id": id, "name": "f", "arguments": "{}" });
        let chat_call = |id: &str| json!({ "id": id, "type": "function", "function": { "name": "f", "arguments": "{}" } });
        let request = json!({
            "instructions": "s",
            "input": [
                { "role": "user", "content": "q" },
                { "type": "reasoning", "summary": [], "content": [{ "text": "t" }] },
                { "type": "message", "role": "assistant", "content": "x" },
                call("1"),
                call("2"),
                { "type": "function_call_output", "call_id": "1", "output": "r" },
                { "role": "assistant", "content": "y" },
                { "role": "assistant", "content": "z" },
            ],
        });
        let messages = json!([
            { "role": "system", "content": "s" },
            { "role": "user", "content": "q" },
            {
                "role": "assistant", "reasoning_content": "t", "content": "x",
                "tool_calls": [chat_call("1"), chat_call("2")],
            },
            { "role": "tool", "tool_call_id": "1", "content": "r" },
            { "role": "assistant", "content": "y" },
            { "role": "assistant", "content": "z" },
        ]);
        assert_eq!(converted(request).unwrap()["messages"], messages);
    }

    #[test]
    fn calls_of_every_kind_of_tool_are_calls_of_functions() {
        let request = json!({
            "input": [
                { "type": "function_call", "call_id": "1", "namespace": "n", "name": "f", "arguments": "{}" },
                { "type": "custom_tool_call", "call_id": "2", "name": "patch", "input": "a\nb" },
                { "type": "local_shell_call", "id": "3", "action": { "type": "exec", "command": ["ls"], "env": {} } },
                { "type": "web_search_call", "id": "4", "status": "completed" },
                { "type": "custom_tool_call_output", "call_id": "2", "output": "done" },
                { "type": "local_shell_call_output", "id": "3", "output": "src" },
            ],
            "tools": [{ "type": "custom", "name": "patch" }, { "type": "web_search" }],
            "tool_choice": {
                "type": "allowed_tools", "mode": "required",
                "tools": [{ "type": "custom", "name": "patch" }, { "type": "web_search" }],
            },
        });
        let converted = converted(request).unwrap();
        let calls = &converted["messages"][0]["tool_calls"];
        let call = |index: usize| {
            let function = &calls[index]["function"];
            (calls[index]["id"].clone(), function["name"].clone(), function["arguments"].clone())
        };
        assert_eq!(call(0), (json!("1"), json!("n__f"), json!("{}")));
        assert_eq!(call(1), (json!("2"), json!("patch"), json!("{\"input\":\"a\\nb\"}")));
        assert_eq!(call(2), (json!("3"), json!("local_shell"), json!("{\"command\":[\"ls\"]}")));
        assert_eq!(calls.as_array().unwrap().len(), 3);
        assert_eq!(converted["messages"][2]["tool_call_id"], "3");
        assert_eq!(converted["tools"].as_array().unwrap().len(), 1);
        assert_eq!(
            converted["tool_choice"]["allowed_tools"],
            json!({ "mode": "required", "tools": [{ "type": "function", "function": { "name": "patch" } }] })
        );
    }

    #[test]
    fn parameters_get_the_names_of_chat_completions() {
        let converted = converted(json!({
            "input": "q",
            "max_output_tokens": 5,
            "reasoning": { "effort": "low" },
            "tools": [{ "type": "function", "name": "f", "parameters": {} }],
            "tool_choice": { "type": "function", "name": "f" },
            "text": { "format": { "type": "json_schema", "name": "n", "schema": {} } },
        }));
        let converted = converted.unwrap();
        for (name, expected) in [
            ("messages", json!([{ "role": "user", "content": "q" }])),
            ("max_tokens", json!(5)),
            ("reasoning_effort", json!("low")),
            (
                "tools",
                json!([{ "type": "function", "function": { "name": "f", "parameters": {} } }]),
            ),
            ("tool_choice", json!({ "type": "function", "function": { "name": "f" } })),
            (
                "response_format",
                json!({
                    "type": "json_schema",
                    "json_schema": { "type": "json_schema", "name": "n", "schema": {} },
                }),
            ),
        ] {
            assert_eq!(converted[name], expected, "{name}");
        }
    }

    #[test]
    fn what_is_not_supported_is_an_error() {
        for (request, expected) in [
            (json!({}), "\"input\": must be"),
            (json!({ "input": [] }), "at least one item"),
            (json!({ "input": "", "previous_response_id": "r" }), "send the whole conversation"),
            (json!({ "input": "", "background": true }), "\"background\": not supported"),
            (json!({ "input": [{ "type": "item_reference" }] }), "not \"item_reference\""),
            (
                json!({ "input": [{ "type": "reasoning", "content": [1] }] }),
                "\"input[0].content\": must be",
            ),
            (json!({ "input": "", "tools": [{}] }), "\"tools[0].type\": must be given"),
            (json!({ "input": "", "tool_choice": { "type": "mcp" } }), "not \"mcp\""),
        ] {
            let error = converted(request).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
