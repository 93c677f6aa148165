//! The grammar that the answer to a request follows.

use rope_cpu::{
    Token,
    chat::{Format, Tool, ToolChoice, Tools},
    constraint::{self, Constraint, Grammar},
};

use super::{app::App, error::ApiError, fields::Fields};

/// A grammar of a request, with the field that contains it.
type Given = (String, Grammar);

/// Returns the constraint of `grammar` (GBNF, or Lark after `%llguidance`), `regex`, `json_schema` or
/// OpenAI's `response_format`.
///
/// # Errors
/// If more than one is given, or it is invalid.
pub fn of_fields(fields: &Fields, app: &App) -> Result<Option<Constraint>, ApiError> {
    match &given(fields)?[..] {
        [] => Ok(None),
        [(name, grammar)] => compile(grammar, app)
            .map(Some)
            .map_err(|e| ApiError::invalid(format_args!("\"{name}\": {}", e.message))),
        [(first, _), (second, _), ..] => Err(exclusive(first, second)),
    }
}

fn given(fields: &Fields) -> Result<Vec<Given>, ApiError> {
    let mut given = Vec::new();
    if let Some(text) = fields.text("grammar")?.filter(|text| !text.is_empty()) {
        given.push((fields.place("grammar"), Grammar::from_text(text)));
    }
    if let Some(pattern) = fields.text("regex")? {
        given.push((fields.place("regex"), Grammar::Regex(pattern.into())));
    }
    if let Some(schema) = fields.get("json_schema") {
        given.push((fields.place("json_schema"), Grammar::JsonSchema(schema.to_string())));
    }
    if let Some(format) = fields.within("response_format")? {
        let place = fields.place("response_format");
        given.extend(response_format(&format)?.map(|grammar| (place, grammar)));
    }
    Ok(given)
}

/// Returns an error for two fields that constrain an answer.
fn exclusive(first: &str, second: &str) -> ApiError {
    ApiError::invalid(format_args!(
        "\"{first}\" and \"{second}\" exclude each other: remove one of them"
    ))
}

fn response_format(format: &Fields) -> Result<Option<Grammar>, ApiError> {
    let schema = |schema: &serde_json::Value| Grammar::JsonSchema(schema.to_string());
    match format.text("type")? {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(format.get("schema").map_or(Grammar::JsonObject, schema))),
        Some("json_schema") => {
            // OpenAI's form has it within an object of this name.
            let inner = format.within("json_schema")?;
            let found = inner.as_ref().and_then(|inner| inner.get("schema")).map(schema);
            let found = found.or_else(|| format.get("schema").map(schema));
            let missing = || match &inner {
                Some(inner) => inner.error("schema", "a JSON schema"),
                None => format.error("json_schema", "an object with a \"schema\""),
            };
            found.map(Some).ok_or_else(missing)
        }
        _ => Err(format.error("type", "text, json_object or json_schema")),
    }
}

/// Returns the constraint by which the calls of an answer to a prompt are valid; `None` if there are
/// no tools to call.
///
/// # Errors
/// If a schema of a tool is invalid, or the fields of the request contain a grammar, too.
pub fn of_tools(
    format: &Format,
    prompt: &str,
    tools: &Tools,
    fields: &Fields,
    app: &App,
) -> Result<Option<Constraint>, ApiError> {
    let tokenizer = app.tokenizer()?;
    let Some(grammar) = format.grammar(prompt, tools, &|name| tokenizer.control(name)) else {
        return Ok(None);
    };
    if let Some((name, _)) = given(fields)?.first() {
        return Err(exclusive(name, "tools"));
    }
    compile(&Grammar::Lark(grammar), app).map(Some).map_err(|e| {
        let refused = (0..)
            .zip(tools.all())
            .find_map(|(index, tool)| Some((index, refusal(tool, format, prompt, app)?)));
        ApiError::invalid(match refused {
            Some((index, reason)) => format!("\"tools[{index}]\": the schema of {reason}"),
            None => format!("\"tools\": {}", e.message),
        })
    })
}

/// Returns the name of a tool with the error in its schema, if there is one.
fn refusal(tool: &Tool, format: &Format, prompt: &str, app: &App) -> Option<String> {
    let tokenizer = app.tokenizer().ok()?;
    let alone = Tools::new(vec![tool.clone()], ToolChoice::Auto, false).ok()?;
    let grammar = format.grammar(prompt, &alone, &|name| tokenizer.control(name))?;
    match Constraint::new(app.vocabulary().ok()?, &Grammar::Lark(grammar)) {
        // The position is in a grammar that the request does not have.
        Err(constraint::Error::Invalid { message, .. }) => {
            Some(format!("{:?}: {message}", tool.name))
        }
        _ => None,
    }
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
    let compiled = Constraint::new(app.vocabulary()?, grammar).map_err(ApiError::invalid)?;
    // Other answers wait for its steps.
    Ok(compiled.with_step_max(app.options.step_max))
}
