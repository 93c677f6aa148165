//! The grammar that the answer to a request follows.

use rope_cpu::{
    Token,
    chat::{Format, Tools},
    constraint::{Constraint, Grammar},
};

use super::{app::App, error::ApiError, fields::Fields};

/// The fields that contain a grammar.
const NAMES: [&str; 3] = ["grammar", "json_schema", "response_format"];

/// Returns the constraint of `grammar` (GBNF, or Lark after `%llguidance`), `json_schema` or
/// OpenAI's `response_format`.
///
/// # Errors
/// If more than one is given, or it is invalid.
pub fn of_fields(fields: &Fields, app: &App) -> Result<Option<Constraint>, ApiError> {
    let mut given = Vec::new();
    if let Some(text) = fields.text("grammar")?.filter(|text| !text.is_empty()) {
        given.push((NAMES[0], Grammar::from_text(text)));
    }
    if let Some(schema) = fields.get("json_schema") {
        given.push((NAMES[1], Grammar::JsonSchema(schema.to_string())));
    }
    if let Some(format) = fields.object("response_format")?.cloned().map(Fields::of) {
        given.extend(response_format(&format)?.map(|grammar| (NAMES[2], grammar)));
    }
    match &given[..] {
        [] => Ok(None),
        [(name, grammar)] => compile(grammar, app)
            .map(Some)
            .map_err(|e| ApiError::invalid(format_args!("\"{name}\": {}", e.message))),
        _ => Err(ApiError::invalid(format_args!("give only one of {}", NAMES.join(", ")))),
    }
}

fn response_format(format: &Fields) -> Result<Option<Grammar>, ApiError> {
    let schema = |schema: &serde_json::Value| Grammar::JsonSchema(schema.to_string());
    match format.text("type")? {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(format.get("schema").map_or(Grammar::JsonObject, schema))),
        Some("json_schema") => {
            // OpenAI's form has it within an object of this name.
            let inner = format.object("json_schema")?.cloned().map(Fields::of);
            let found = inner.as_ref().and_then(|inner| inner.get("schema")).map(schema);
            let found = found.or_else(|| format.get("schema").map(schema));
            found.map(Some).ok_or_else(|| {
                ApiError::field("response_format", "an object with a schema in \"json_schema\"")
            })
        }
        _ => Err(ApiError::field(
            "response_format",
            "an object whose \"type\" is text, json_object or json_schema",
        )),
    }
}

/// Returns the constraint by which the calls of an answer to a prompt are valid; `None` if there are
/// no tools to call.
///
/// # Errors
/// If a schema of a tool is invalid.
pub fn of_tools(
    format: &Format,
    prompt: &str,
    tools: &Tools,
    app: &App,
) -> Result<Option<Constraint>, ApiError> {
    let tokenizer = app.tokenizer()?;
    let Some(grammar) = format.grammar(prompt, tools, &|name| tokenizer.control(name)) else {
        return Ok(None);
    };
    let compiled = compile(&Grammar::Lark(grammar), app);
    compiled.map(Some).map_err(|e| ApiError::invalid(format_args!("\"tools\": {}", e.message)))
}

/// Returns the control tokens that mark the parts of an answer.
///
/// # Errors
/// If the model has no tokenizer.
pub fn markers(format: &Format, app: &App) -> Result<Vec<Token>, ApiError> {
    let tokenizer = app.tokenizer()?;
    Ok(format.markers().filter_map(|name| tokenizer.control(name)).collect())
}

fn compile(grammar: &Grammar, app: &App) -> Result<Constraint, ApiError> {
    let vocabulary = app.vocabulary.as_ref().map_err(ApiError::unsupported)?;
    // It may take a while: other requests go on meanwhile.
    let compiled = tokio::task::block_in_place(|| Constraint::new(vocabulary, grammar));
    compiled.map_err(ApiError::invalid)
}
