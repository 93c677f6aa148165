//! A server that runs already, for an agent.

use std::{fmt::Display, time::Duration};

use serde_json::{Value, json};

use crate::cli::{note, ps::ServerArgs, serve, shell::is_plain, typed_entry, typed_options};

/// The port of a server without `--port`.
const PORT: u16 = 8080;

/// How long a server may take to list its models. It is looked for before each start.
const LIST: Duration = Duration::from_secs(2);

/// How long it may take to open a model.
const OPEN: Duration = Duration::from_secs(600);

/// The options that say where a server is, or which model it has.
const OF_SERVERS: [&str; 7] =
    ["api-key", "api-key-file", "host", "model", "models-dir", "port", "presets"];

/// A server that serves the model of the command line.
pub struct Running {
    /// Its address.
    pub url: String,
    /// The name of the model.
    pub model: String,
    /// The context in tokens.
    pub context: usize,
}

impl Running {
    /// Looks for a server that serves the typed name of a model, with the context of `args` or more.
    /// `None` if another option is typed, since it may need another server.
    pub fn find(args: &serve::Args, key: Option<String>) -> Option<Self> {
        let is_of_server = |option: &String| OF_SERVERS.contains(&option.as_str());
        if !typed_options().iter().all(is_of_server) {
            return None;
        }
        let model =
            typed_entry().map(|entry| entry.name).filter(|name| name.chars().all(is_plain))?;
        let server = ServerArgs {
            host: *args.listen.host.first()?,
            port: if args.listen.port == 0 { PORT } else { args.listen.port },
            api_key: key,
            manage_key: None,
        };
        let path = format!("/v1/models/{model}");
        // Without a server, or without the model, there is nothing to say.
        let found = server.ask(&path, None, LIST).ok().filter(|found| serves(found, &model))?;
        let url = format!("http://{}", server.address());
        let unused = |reason: &dyn Display| {
            note(format_args!("note: the server at {url} is not used: {reason}"));
        };
        let context = match context(&found) {
            Some(context) => Ok(context),
            // Counting the tokens of an empty text opens the model.
            None => server
                .ask("/tokenize", Some(json!({ "model": model, "content": "" })), OPEN)
                .and_then(|_| server.ask(&path, None, LIST))
                .map(|found| context(&found).unwrap_or_default()),
        };
        match context {
            Ok(context) if context >= args.memory.context => Some(Running { url, model, context }),
            Ok(context) => {
                let least = args.memory.context;
                unused(&format_args!(
                    "{model} has a context of {context} tokens there, and an agent needs {least}; \
                     start it with -c {least}"
                ));
                None
            }
            Err(error) => {
                unused(&error);
                None
            }
        }
    }
}

/// Returns whether an answer is rope-cpu's, about this model.
fn serves(found: &Value, model: &str) -> bool {
    found["owned_by"] == "rope-cpu" && found["id"] == model
}

/// Returns the context of an open model.
fn context(found: &Value) -> Option<usize> {
    let context = found["meta"]["n_ctx"].as_u64()?;
    usize::try_from(context).ok()
}
