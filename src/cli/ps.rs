//! `rope-cpu ps` and `rope-cpu stop`: the models of a running server.

use std::{io::Write, net::IpAddr, net::SocketAddr, time::Duration};

use indicatif::HumanBytes;
use rope_cpu::json;
use serde_json::{Value as Json, json};
use ureq::Agent;

use super::{error::Error, note, open::reachable, table};

/// The server to ask.
#[derive(Clone, Debug, clap::Args)]
pub struct ServerArgs {
    /// Address of the server
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    pub host: IpAddr,

    /// Port of the server
    #[arg(long, value_name = "N", default_value_t = 8080)]
    pub port: u16,

    /// Key of the server
    #[arg(long, value_name = "KEY")]
    pub api_key: Option<String>,

    /// Key that permits to load and unload models
    ///
    /// The server's --manage-key, if it was started with one.
    #[arg(long, value_name = "KEY")]
    pub manage_key: Option<String>,
}

/// List the models that a server has loaded
#[derive(Debug, clap::Args)]
pub struct PsArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

/// Unload a model of a server
#[derive(Debug, clap::Args)]
pub struct StopArgs {
    /// Name of the model
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    server: ServerArgs,
}

/// How long a server may take to answer. Unloading waits for the step of an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Longer answers are refused.
const ANSWER_MAX: u64 = 4 << 20;

impl ServerArgs {
    /// Returns the address to connect to.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(reachable(self.host), self.port)
    }

    /// Sends a request to a path, with a body or without, and returns the answer.
    ///
    /// # Errors
    /// If no server answers within `patience`, or it answers with an error.
    pub fn ask(&self, path: &str, body: Option<Json>, patience: Duration) -> Result<Json, Error> {
        let address = self.address();
        let failed = |reason: &dyn std::fmt::Display| {
            Error::failed(format_args!(
                "no server answers at http://{address}: {reason}; start one with `rope-cpu serve`, \
                 or give its --host and --port"
            ))
        };
        let agent: Agent = Agent::config_builder()
            // The server is on this machine or in its network.
            .proxy(None)
            .http_status_as_error(false)
            .timeout_global(Some(patience))
            .build()
            .into();
        let url = format!("http://{address}{path}");
        let bearer = self.api_key.as_ref().map(|key| ("Authorization", format!("Bearer {key}")));
        let manage = self.manage_key.as_ref().map(|key| ("X-Manage-Key", key.clone()));
        let keys = [bearer, manage].into_iter().flatten();
        let answer = match body {
            None => keys.fold(agent.get(&url), |ask, (name, key)| ask.header(name, key)).call(),
            Some(body) => {
                let request = agent.post(&url).header("Content-Type", "application/json");
                let request = keys.fold(request, |ask, (name, key)| ask.header(name, key));
                request.send(body.to_string())
            }
        };
        let mut answer = answer.map_err(|error| failed(&error))?;
        let text = answer.body_mut().with_config().limit(ANSWER_MAX).read_to_string();
        let text = text.map_err(|error| failed(&error))?;
        // An error of ollama's interface is a text; others' are objects.
        let json: Json = json::parse(&text).unwrap_or_default();
        let error = &json["error"];
        let reason = error.as_str().or_else(|| error["message"].as_str());
        match (answer.status().is_success(), reason) {
            (true, None) => Ok(json),
            (_, Some(reason)) => Err(Error::failed(format_args!("http://{address}: {reason}"))),
            (false, None) => {
                Err(Error::failed(format_args!("http://{address} answers {}", answer.status())))
            }
        }
    }
}

/// Prints the models that a server has loaded.
///
/// # Errors
/// If no server answers, or `out` cannot be written.
pub fn ps(args: &PsArgs, out: &mut dyn Write) -> Result<(), Error> {
    let answer = args.server.ask("/api/ps", None, PATIENCE)?;
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &answer).map_err(std::io::Error::from)?;
        return Ok(writeln!(out)?);
    }
    let models = answer["models"].as_array().map(Vec::as_slice).unwrap_or_default();
    if models.is_empty() {
        note("no model is loaded");
    }
    let mut table = table::table(&["NAME", "SIZE", "CONTEXT", "UNTIL"], &[1, 2]);
    for model in models {
        let text = |key: &str| match &model[key] {
            Json::String(text) => text.escape_debug().to_string(),
            Json::Null => String::new(),
            other => other.to_string(),
        };
        let size = model["size"].as_u64().map(|bytes| HumanBytes(bytes).to_string());
        let until = text("expires_at");
        // The end of time.
        let until = if until.starts_with("9999") { "stopped".into() } else { until };
        table.add_row([text("name"), size.unwrap_or_default(), text("context_length"), until]);
    }
    Ok(table::section(out, None, &table)?)
}

/// Unloads a model of a server.
///
/// # Errors
/// If no server answers, or it does not have the model.
pub fn stop(args: &StopArgs) -> Result<(), Error> {
    let body = json!({ "model": args.name, "keep_alive": 0 });
    args.server.ask("/api/generate", Some(body), PATIENCE)?;
    note(format_args!("{} is unloaded", args.name));
    Ok(())
}
