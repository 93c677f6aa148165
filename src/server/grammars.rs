//! Grammar that constrains the answer to a request.

use rope_cpu::{
    Token,
    chat::{Format, Tool, ToolChoice, Tools},
    constraint::{self, Constraint, Grammar},
};

use serde::Deserializer;
use serde_json::Value;

use super::{
    app::App,
    error::ApiError,
    parameters::Shared,
    read::{Entry, Failure, Read, Treatment},
};

/// Why the name of a schema has no effect.
pub const SCHEMA_NAME: Treatment = Treatment::Ignored("the model does not see it");

/// Why `strict` has no effect.
pub const STRICT: Treatment = Treatment::Ignored("schemas are always enforced");

/// A grammar of a request, with the field that contains it.
#[derive(Clone, Debug)]
pub struct Given {
    /// The place of the field.
    pub place: String,
    /// The grammar that the answer must match.
    pub grammar: Grammar,
}

impl Given {
    /// Returns the grammar of any JSON object, for a field.
    pub fn json_object(place: impl Into<String>) -> Self {
        Given { place: place.into(), grammar: Grammar::JsonObject }
    }

    /// Returns a JSON schema in a field.
    pub fn schema(place: impl Into<String>, schema: &Value) -> Self {
        Given { place: place.into(), grammar: Grammar::JsonSchema(schema.to_string()) }
    }
}

/// The grammar of OpenAI's `response_format`; `None` for plain text.
#[derive(Clone, Debug, Default)]
pub struct ResponseFormat(Option<Grammar>);

crate::object! {
    struct GivenFormat {
        /// `text`, `json_object` or `json_schema`.
        kind ["type"]: Option<String>,
        /// The object with the schema.
        json_schema: Option<JsonSchema>,
        /// A JSON schema of the answer.
        schema: Option<Value>,
    }
}

crate::object! {
    struct JsonSchema {
        /// A JSON schema of the answer.
        schema: Option<Value>,
    }
    others {
        "description": SCHEMA_NAME,
        "name": SCHEMA_NAME,
        "strict": STRICT,
    }
}

impl Read for ResponseFormat {
    const ENTRIES: &'static [Entry] = GivenFormat::ENTRIES;

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let given = GivenFormat::read(deserializer)?;
        given.grammar().map(ResponseFormat).map_err(Failure::into_error)
    }
}

impl GivenFormat {
    fn grammar(self) -> Result<Option<Grammar>, Failure> {
        let schema = |schema: Value| Grammar::JsonSchema(schema.to_string());
        match self.kind.as_deref() {
            Some("text") => Ok(None),
            Some("json_object") => Ok(Some(self.schema.map_or(Grammar::JsonObject, schema))),
            Some("json_schema") => {
                // OpenAI nests the schema in an object of this name.
                let is_nested = self.json_schema.is_some();
                let found = self.json_schema.and_then(|inner| inner.schema).or(self.schema);
                found.map(schema).map(Some).ok_or_else(|| match is_nested {
                    true => Failure::missing("json_schema.schema", "a JSON schema"),
                    false => Failure::missing("json_schema", "an object with a \"schema\""),
                })
            }
            kind => Err(Failure::unless_one_of("type", "text, json_object or json_schema", kind)),
        }
    }
}

/// Returns the grammars of a request: `grammar` (GBNF, or Lark after `%llguidance`), `regex`,
/// `json_schema`, OpenAI's `response_format`, and the fields of vLLM and SGLang.
pub fn given(shared: &Shared) -> Vec<Given> {
    let grammar = shared.grammar.as_deref().filter(|text| !text.is_empty());
    let format = shared.response_format.as_ref().and_then(|format| format.0.clone());
    let given = [
        ("grammar", grammar.map(Grammar::from_text)),
        ("regex", shared.regex.clone().map(Grammar::Regex)),
        ("json_schema", shared.json_schema.as_ref().map(|s| Grammar::JsonSchema(s.to_string()))),
        ("response_format", format),
    ];
    let given = given.into_iter().filter_map(|(place, grammar)| Some((place, grammar?)));
    let given = given.map(|(place, grammar)| Given { place: shared.place.of(place), grammar });
    given.chain(shared.guided.given(shared.place)).collect()
}

/// Returns the constraint of a grammar.
///
/// # Errors
/// If there is more than one, or it is invalid.
pub fn of_given(given: &[Given], app: &App) -> Result<Option<Constraint>, ApiError> {
    match given {
        [] => Ok(None),
        [Given { place, grammar }] => {
            compiled(grammar, app)?.map(Some).map_err(|e| Failure::of(place, e).into())
        }
        [first, second, ..] => Err(exclusive(&first.place, &second.place)),
    }
}

/// Returns an error for two fields that both constrain an answer.
fn exclusive(first: &str, second: &str) -> ApiError {
    let message = format!("\"{first}\" and \"{second}\" exclude each other: remove one of them");
    ApiError { field: Some(second.into()), ..ApiError::invalid(message) }
}

/// Returns the constraint that makes an answer's tool calls valid; `None` without tools. With a
/// JSON schema in `given`, the answer is a call or follows the schema.
///
/// # Errors
/// If a schema is invalid, or the request has a grammar that is not a schema.
pub fn of_tools(
    format: &Format,
    prompt: &str,
    tools: &Tools,
    given: &[Given],
    app: &App,
) -> Result<Option<Constraint>, ApiError> {
    let tokenizer = app.tokenizer()?;
    let schema = given.first().and_then(|given| given.grammar.schema());
    let schema = schema.transpose().map_err(ApiError::invalid)?;
    let token = |name: &str| tokenizer.special(name);
    let Some(grammar) = format.grammar(prompt, tools, schema.as_ref(), &token) else {
        return Ok(None);
    };
    if let Some(given) = given.first().filter(|_| schema.is_none()) {
        return Err(exclusive(&given.place, "tools"));
    }
    compiled(&Grammar::Lark(grammar), app)?.map(Some).map_err(|error| {
        let refused = match error {
            constraint::Error::Invalid { .. } => refused(tools.all(), format, prompt, app),
            _ => None,
        };
        match refused {
            Some((index, reason)) => {
                Failure::of(&format!("tools[{index}]"), format_args!("the schema of {reason}"))
            }
            None => Failure::of("tools", error),
        }
        .into()
    })
}

/// Returns the index of a tool with an invalid schema, and its name with the error; `None` if every
/// schema is valid alone. Compiles one half of the list after another, not each tool.
fn refused(tools: &[Tool], format: &Format, prompt: &str, app: &App) -> Option<(usize, String)> {
    let tokenizer = app.tokenizer().ok()?;
    let error = |tools: &[Tool]| {
        let tools = Tools::new(tools.to_vec(), ToolChoice::Auto, false).ok()?;
        let grammar = format.grammar(prompt, &tools, None, &|name| tokenizer.special(name))?;
        match compiled(&Grammar::Lark(grammar), app).ok()? {
            // The position is left out: it refers to a generated grammar.
            Err(constraint::Error::Invalid { message, .. }) => Some(message),
            _ => None,
        }
    };
    let (mut index, mut rest) = (0, tools);
    while rest.len() > 1 {
        let (first, second) = rest.split_at(rest.len() / 2);
        rest = match error(first) {
            Some(_) => first,
            None => {
                index += first.len();
                second
            }
        };
    }
    let [tool] = rest else { return None };
    Some((index, format!("{:?}: {}", tool.name, error(rest)?)))
}

/// Returns the tokens that separate the parts of an answer.
///
/// # Errors
/// If the model has no tokenizer.
pub fn markers(format: &Format, app: &App) -> Result<Vec<Token>, ApiError> {
    let tokenizer = app.tokenizer()?;
    Ok(format.markers().filter_map(|name| tokenizer.special(name)).collect())
}

/// Compiles a grammar when it is its turn.
///
/// # Errors
/// If too many wait, or the model has no vocabulary for grammars.
fn compiled(
    grammar: &Grammar,
    app: &App,
) -> Result<Result<Constraint, constraint::Error>, ApiError> {
    let vocabulary = app.vocabulary()?;
    app.compiling.run(grammar.len(), || Constraint::new(vocabulary, grammar))
}
