//! Requests of ollama's interface in OpenAI's form.

use serde_json::{Map, Value, json};

use crate::server::{
    app::App,
    error::ApiError,
    fields::{COUNT_MAX, Fields},
    request_fields,
};

/// Options for the hardware, which have no effect: the command line has them.
const HARDWARE: [&str; 8] =
    ["num_batch", "num_gpu", "main_gpu", "use_mmap", "use_mlock", "num_thread", "low_vram", "numa"];

/// Converts the fields that `/api/chat` and `/api/generate` have in common.
///
/// # Errors
/// If one of them is of another form than ollama's, or requires a larger context.
pub fn convert(mut fields: Fields, app: &App) -> Result<Fields, ApiError> {
    request_fields::OLLAMA.check(&fields)?;
    if let Some(given) = fields.object("options")?.cloned() {
        fields.remove("options");
        for (name, value) in given {
            if !HARDWARE.contains(&name.as_str()) {
                fields.set_from(&name, value, format!("options.{name}"));
            }
        }
    }
    check_context(&fields, app.context)?;
    if let Some(max) = fields.whole("num_predict", -2, COUNT_MAX)? {
        // -1 and -2: no limit except the context.
        fields.set("n_predict", max.max(-1));
    }
    let format = match fields.get("format") {
        None => None,
        Some(Value::String(format)) if format.is_empty() => None,
        Some(Value::String(format)) if format == "json" => Some(json!({ "type": "json_object" })),
        Some(Value::Object(schema)) => {
            Some(json!({ "type": "json_schema", "json_schema": { "schema": schema } }))
        }
        Some(_) => return Err(fields.error("format", "\"json\" or a JSON schema")),
    };
    if let Some(format) = format {
        fields.set_from("response_format", format, "format");
    }
    match fields.get("think").cloned() {
        None => {}
        Some(Value::Bool(think)) => fields.set_template_argument("enable_thinking", think)?,
        Some(Value::String(effort)) => fields.set_from("reasoning_effort", effort, "think"),
        Some(_) => {
            return Err(fields.error("think", "true, false, \"low\", \"medium\" or \"high\""));
        }
    }
    Ok(fields)
}

fn check_context(fields: &Fields, context: usize) -> Result<(), ApiError> {
    match fields.whole("num_ctx", 1, COUNT_MAX)?.and_then(|wanted| usize::try_from(wanted).ok()) {
        Some(wanted) if wanted > context => Err(ApiError::field(
            &fields.place("num_ctx"),
            format_args!(
                "at most {context}, the context of the server, not {wanted}: restart the server with \
                 a larger --ctx"
            ),
        )),
        _ => Ok(()),
    }
}

/// Returns a message of `/api/chat` in OpenAI's form.
///
/// # Errors
/// If it is of another form than ollama's, or has images.
pub fn message(mut message: Fields) -> Result<Value, ApiError> {
    refuse_images(&message)?;
    message.rename("thinking", "reasoning_content");
    message.rename("tool_name", "name");
    if let Some(mut calls) = message.objects("tool_calls")? {
        calls.iter_mut().for_each(|call| call.set("type", "function"));
        message.set("tool_calls", json!(calls));
    }
    Ok(json!(message))
}

/// Refuses a message with images.
fn refuse_images(fields: &Fields) -> Result<(), ApiError> {
    match fields.list("images")?.unwrap_or_default() {
        [] => Ok(()),
        _ => Err(ApiError::no_media("image")),
    }
}

/// Returns the messages of a prompt of `/api/generate`.
///
/// # Errors
/// If a field is of another form than ollama's, or is not supported.
pub fn prompt_messages(fields: &Fields) -> Result<Vec<Value>, ApiError> {
    let mut messages = Vec::new();
    if let Some(system) = fields.text("system")? {
        messages.push(json!({ "role": "system", "content": system }));
    }
    let prompt = fields.text("prompt")?.unwrap_or_default();
    messages.push(json!({ "role": "user", "content": prompt }));
    Ok(messages)
}

/// Returns the arguments of a call as an object; an empty one if the call was cut.
pub fn arguments(text: &str) -> Map<String, Value> {
    rope_cpu::json::parse(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_get_the_names_of_openai() {
        let given = json!({
            "role": "assistant", "content": "", "thinking": "t",
            "tool_calls": [{ "function": { "name": "f", "arguments": { "n": 1 } } }],
        });
        let expected = json!({
            "role": "assistant", "content": "", "reasoning_content": "t",
            "tool_calls": [
                { "function": { "name": "f", "arguments": { "n": 1 } }, "type": "function" },
            ],
        });
        assert_eq!(message(Fields::of_value("", &given).unwrap()).unwrap(), expected);
        let error =
            message(Fields::of_value("", &json!({ "images": ["x"] })).unwrap()).unwrap_err();
        assert!(error.message.contains("image input is not supported"), "{}", error.message);
    }

    #[test]
    fn a_larger_context_is_an_error_with_both_sizes() {
        let fields = |size| Fields::of_value("", &json!({ "num_ctx": size })).unwrap();
        assert!(check_context(&fields(64), 64).is_ok());
        let error = check_context(&fields(65), 64).unwrap_err().message;
        assert!(error.contains("64") && error.contains("65"), "{error}");
    }

    #[test]
    fn fields_that_require_a_stored_state_are_refused() {
        for (given, refused) in [
            (json!({ "template": "", "context": [] }), false),
            (json!({ "template": "x" }), true),
            (json!({ "context": [1] }), true),
        ] {
            let fields = Fields::of_value("", &given).unwrap();
            assert_eq!(request_fields::OLLAMA.check(&fields).is_err(), refused, "{given}");
        }
    }
}
