//! The grammar of a request, which constrains its answer.

use rope_cpu::{
    chat_answer::{ChatAnswer, Error, Origin},
    constraint::{self, Constraint, Grammar},
    generate::Limits,
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

/// Returns the only grammar of a request.
///
/// # Errors
/// If there is more than one.
pub fn one(given: &[Given]) -> Result<Option<&Given>, ApiError> {
    match given {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        [first, second, ..] => Err(exclusive(&first.place, &second.place)),
    }
}

/// Returns an error for two fields that both constrain an answer.
fn exclusive(first: &str, second: &str) -> ApiError {
    let message = format!("\"{first}\" and \"{second}\" exclude each other: remove one of them");
    ApiError { field: Some(second.into()), ..ApiError::invalid(message) }
}

/// Returns the constraint of a grammar.
///
/// # Errors
/// If there is more than one, or it is invalid.
pub fn of_given(given: &[Given], app: &App) -> Result<Option<Constraint>, ApiError> {
    one(given)?.map(|given| of_one(given, app)).transpose()
}

fn of_one(Given { place, grammar }: &Given, app: &App) -> Result<Constraint, ApiError> {
    compiled(grammar, app)?.map_err(|e| Failure::of(place, e).into())
}

/// Adds the requirements of the conversation and of the request's grammar to the limits of an
/// answer.
///
/// # Errors
/// If a grammar or the schema of a tool is invalid, or the grammar excludes the tools.
pub fn limit(
    limits: &mut Limits,
    answer: &ChatAnswer,
    given: Option<&Given>,
    app: &App,
) -> Result<(), ApiError> {
    let mut compile = |origin, grammar: &Grammar| match (origin, given) {
        (Origin::Request, Some(given)) => of_one(given, app),
        _ => compiled(grammar, app)?.map_err(|error| of_tools(error, answer, app)),
    };
    let grammar = given.map(|given| &given.grammar);
    answer.limit(limits, app.tokenizer()?, grammar, &mut compile).map_err(|error| match error {
        Error::Compile(error) => error,
        Error::GrammarAndTools => exclusive(given.map_or("grammar", |given| &given.place), "tools"),
        Error::Schema(error) => ApiError::invalid(error),
        Error::NoEnd { end } => ApiError::unsupported(format_args!(
            "\"reasoning_budget_tokens\": the model has no tokens for {end:?}, which ends its reasoning: \
             remove the limit"
        )),
    })
}

/// Returns the error for tools whose grammar cannot be compiled. It names the tool.
fn of_tools(error: constraint::Error, answer: &ChatAnswer, app: &App) -> ApiError {
    let mut refused = |grammar: &Grammar| match compiled(grammar, app).ok()? {
        // Omit the position: it refers to a generated grammar.
        Err(constraint::Error::Invalid { message, .. }) => Some(message),
        _ => None,
    };
    let tokenizer =
        app.tokenizer().ok().filter(|_| matches!(error, constraint::Error::Invalid { .. }));
    match tokenizer.and_then(|tokenizer| answer.refused_tool(tokenizer, &mut refused)) {
        Some((index, reason)) => {
            Failure::of(&format!("tools[{index}]"), format_args!("the schema of {reason}"))
        }
        None => Failure::of("tools", error),
    }
    .into()
}

/// Compiles a grammar when its turn comes.
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
