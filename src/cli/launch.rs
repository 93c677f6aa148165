//! `rope-cpu launch`: serves a model and starts an agent that uses it.

use std::{
    env,
    ffi::OsString,
    fs::{self, File},
    io::{self, Write},
    net::SocketAddr,
    path::PathBuf,
    process::{self, Child, Command, ExitStatus},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use clap::ValueEnum;
use tokio::sync::oneshot;

use super::{
    args::{LogArgs, RopeArgs},
    error::Error,
    note,
    open::reachable,
    serve,
};

/// Serve a model, and start an agent that uses it
///
/// The server listens at a free port of this machine while the agent runs. Its context has 32,768
/// tokens, since agents send long prompts. If the model was trained for fewer, a RoPE method
/// extends it, as --rope-scaling auto does. Arguments after `--` are the agent's. The log on the
/// terminal has errors only; with --log-file, the file has the requests.
#[derive(Debug, clap::Args)]
#[command(override_usage = "rope-cpu launch AGENT -m FILE [OPTIONS] [-- ARGUMENT...]")]
#[command(mut_arg("port", |port| port.default_value("0")))]
#[command(mut_arg("context", |context| context.default_value("32k")))]
#[command(mut_arg("log_verbosity", |level| level.default_value("1")))]
#[command(after_help = "\
Examples:
  rope-cpu launch codex -m model.gguf
  rope-cpu launch opencode -m model.gguf -c 64k -ctk q8_0 -ctv q8_0
  rope-cpu launch aider -m model.gguf -- --message 'Add a test' src/lib.rs")]
pub struct Args {
    /// Agent to start
    #[arg(value_name = "AGENT", help_heading = "Agent")]
    agent: Agent,
    #[command(flatten)]
    pub serve: serve::Args,
    /// Arguments of the agent
    #[arg(last = true, value_name = "ARGUMENT", help_heading = "Agent")]
    arguments: Vec<OsString>,
}

impl Args {
    /// Returns the options of the log. The terminal is the agent's, but a file has the requests.
    pub fn log(&self) -> LogArgs {
        let log = self.serve.log.clone();
        match log.log_file.is_some() && log.log_verbosity <= ON_TERMINAL {
            true => LogArgs { log_verbosity: IN_FILE, only_errors_on_stderr: true, ..log },
            false => log,
        }
    }
}

/// An agent that can be started.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Agent {
    Aider,
    Claude,
    Codex,
    Opencode,
    Qwen,
}

/// The settings with which an agent uses a server.
struct Setup {
    arguments: Vec<String>,
    variables: Vec<(&'static str, String)>,
    /// An option that takes the path of a JSON file, and its contents.
    file: Option<(&'static str, serde_json::Value)>,
}

/// The default verbosity of the log on the terminal: errors.
const ON_TERMINAL: u8 = 1;

/// The least verbosity of the log in a file: requests.
const IN_FILE: u8 = 3;

/// The key that an agent sends to a server without keys. Most of them insist on one.
const ANY_KEY: &str = "none";

impl Agent {
    /// Returns the agent's program, and how to install it.
    fn program(self) -> (&'static str, &'static str) {
        match self {
            Agent::Aider => ("aider", "pipx install aider-chat"),
            Agent::Claude => ("claude", "npm install -g @anthropic-ai/claude-code"),
            Agent::Codex => ("codex", "npm install -g @openai/codex"),
            Agent::Opencode => ("opencode", "npm install -g opencode-ai"),
            Agent::Qwen => ("qwen", "npm install -g @qwen-code/qwen-code"),
        }
    }

    /// Returns the setup for a server at a URL, with its key and the size of its context.
    fn setup(self, url: &str, key: String, context: usize) -> Setup {
        let openai = format!("{url}/v1");
        match self {
            Agent::Aider => {
                let metadata = serde_json::json!({ "openai/any": {
                    "litellm_provider": "openai",
                    "mode": "chat",
                    "max_input_tokens": context,
                    "max_output_tokens": context / 4,
                    "input_cost_per_token": 0,
                    "output_cost_per_token": 0,
                } });
                Setup {
                    arguments: ["--model", "openai/any"].map(String::from).into(),
                    variables: vec![("OPENAI_API_BASE", openai), ("OPENAI_API_KEY", key)],
                    file: Some(("--model-metadata-file", metadata)),
                }
            }
            Agent::Claude => Setup {
                arguments: Vec::new(),
                variables: vec![
                    ("ANTHROPIC_BASE_URL", url.into()),
                    ("ANTHROPIC_AUTH_TOKEN", key),
                    ("ANTHROPIC_MODEL", "any".into()),
                    ("ANTHROPIC_DEFAULT_HAIKU_MODEL", "any".into()),
                    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".into()),
                ],
                file: None,
            },
            Agent::Codex => {
                let settings = [
                    "model=\"any\"".into(),
                    format!("model_context_window={context}"),
                    "model_provider=\"rope-cpu\"".into(),
                    format!(
                        "model_providers.rope-cpu={{name=\"rope-cpu\",base_url=\"{openai}\",\
                         wire_api=\"responses\",env_key=\"ROPE_CPU_KEY\"}}"
                    ),
                ];
                Setup {
                    arguments: settings.into_iter().flat_map(|one| ["-c".into(), one]).collect(),
                    variables: vec![("ROPE_CPU_KEY", key)],
                    file: None,
                }
            }
            Agent::Opencode => {
                let output = context / 4;
                let configuration = serde_json::json!({
                    "provider": { "rope-cpu": {
                        "npm": "@ai-sdk/openai-compatible",
                        "options": { "baseURL": openai, "apiKey": key },
                        "models": { "any": { "limit": { "context": context, "output": output } } },
                    } },
                    "model": "rope-cpu/any",
                });
                Setup {
                    arguments: Vec::new(),
                    variables: vec![("OPENCODE_CONFIG_CONTENT", configuration.to_string())],
                    file: None,
                }
            }
            Agent::Qwen => Setup {
                arguments: ["--auth-type", "openai"].map(String::from).into(),
                variables: vec![
                    ("OPENAI_BASE_URL", openai),
                    ("OPENAI_API_KEY", key),
                    ("OPENAI_MODEL", "any".into()),
                ],
                file: None,
            },
        }
    }
}

/// Runs the command, until the agent exits or SIGTERM. Returns the agent's exit status.
///
/// # Errors
/// As for [`serve::run`], and if the agent cannot be started.
pub fn run(args: &Args) -> Result<ExitStatus, Error> {
    let mut serve = args.serve.clone();
    if serve.rope.is_default() {
        serve.rope = RopeArgs::auto();
    }
    if !serve.model.is_given() {
        return Err(Error::usage("launch needs a model: add -m FILE or -hf USER/MODEL"));
    }
    // Looked for before the model is loaded, which may take long.
    let (name, install) = args.agent.program();
    let program = which::which(name)
        .map_err(|_| Error::usage(format_args!("{name} is not installed: {install}")))?;
    let key = serve.keys()?.into_iter().next().unwrap_or(ANY_KEY.into());
    let (exited, stop) = oneshot::channel::<()>();
    let stopped = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut agent = None;
        let stop = serve::Stop::OnMessage(stop);
        let served = serve::serve(&serve, stop, |addresses, context| {
            let Some(address) = addresses.first() else { return Ok(()) };
            let address = SocketAddr::new(reachable(address.ip()), address.port());
            let setup = args.agent.setup(&format!("http://{address}"), key, context);
            note(format_args!("{name} uses http://{address}/v1"));
            let mut command = Command::new(&program);
            command.args(setup.arguments).envs(setup.variables);
            let file = setup.file.map(|(option, json)| {
                let file = TemporaryFile::new(&format!("{name}.json"), &json.to_string())?;
                command.arg(option).arg(&file.0);
                Ok::<_, Error>(file)
            });
            let file = file.transpose()?;
            command.args(&args.arguments);
            let failed = |e| Error::failed(format_args!("cannot start {}: {e}", program.display()));
            let child = command.spawn().map_err(failed)?;
            let stopped = &stopped;
            agent = Some(scope.spawn(move || {
                let status = wait(child, stopped);
                drop(file);
                let _ = exited.send(());
                status
            }));
            Ok(())
        });
        stopped.store(true, Relaxed);
        served?;
        match agent.map(thread::ScopedJoinHandle::join) {
            Some(Ok(status)) => Ok(status?),
            _ => Ok(ExitStatus::default()),
        }
    })
}

/// A file in the system's folder for them, until the value is dropped.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    /// Creates a file with a name of this process, which ends in `name`.
    fn new(name: &str, text: &str) -> Result<Self, Error> {
        let path = env::temp_dir().join(format!("rope-cpu-{}-{name}", process::id()));
        let failed = |e| Error::failed(format_args!("cannot write {}: {e}", path.display()));
        // Never a file that somebody else has put there.
        let mut file = File::create_new(&path).map_err(failed)?;
        let written = file.write_all(text.as_bytes()).map_err(failed);
        let file = TemporaryFile(path.clone());
        written.map(|()| file)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Waits for a program. Ends it if the server has stopped.
fn wait(mut child: Child, stopped: &AtomicBool) -> io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if stopped.load(Relaxed) {
            child.kill()?;
        }
        thread::sleep(Duration::from_millis(20));
    }
}
