//! `rope-cpu launch`: serves a model, or finds a server of it, and starts an agent that uses it.

mod running;

use std::{
    env,
    ffi::OsString,
    fs::{self, File},
    io::{self, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
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
use rope_cpu::platform::interrupt;
use running::Running;

/// Serve a model, and start an agent that uses it
///
/// The server listens at a free port of this machine while the agent runs. Its context has 32,768
/// tokens, since agents send long prompts. If the model was trained for fewer, a RoPE method
/// extends it, as --rope-scaling auto does. Arguments after `--` are the agent's. The log on the
/// terminal has errors only; with --log-file, the file has the requests.
///
/// With the name of a model and no options for it, the agent uses a rope-cpu server that already runs
/// at --port (8080 by default), if it serves this model with such a context.
#[derive(Debug, clap::Args)]
#[command(override_usage = "rope-cpu launch AGENT MODEL [OPTIONS] [-- ARGUMENT...]")]
#[command(mut_arg("port", |port| port.default_value("0")))]
#[command(mut_arg("context", |context| context.default_value("32k")))]
#[command(mut_arg("log_verbosity", |level| level.default_value("1")))]
#[command(after_help = "\
Examples:
  rope-cpu launch codex Qwen2.5-Coder
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

/// The name of the model for a server of one model, which ignores it.
const ANY_MODEL: &str = "any";

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

    /// Returns the setup for a model of a server at a URL, with its key and the size of its context.
    fn setup(self, url: &str, model: &str, key: String, context: usize) -> Setup {
        let openai = format!("{url}/v1");
        match self {
            Agent::Aider => {
                let metadata = serde_json::json!({ format!("openai/{model}"): {
                    "litellm_provider": "openai",
                    "mode": "chat",
                    "max_input_tokens": context,
                    "max_output_tokens": context / 4,
                    "input_cost_per_token": 0,
                    "output_cost_per_token": 0,
                } });
                Setup {
                    arguments: vec!["--model".into(), format!("openai/{model}")],
                    variables: vec![("OPENAI_API_BASE", openai), ("OPENAI_API_KEY", key)],
                    file: Some(("--model-metadata-file", metadata)),
                }
            }
            Agent::Claude => Setup {
                arguments: Vec::new(),
                variables: vec![
                    ("ANTHROPIC_BASE_URL", url.into()),
                    ("ANTHROPIC_AUTH_TOKEN", key),
                    ("ANTHROPIC_MODEL", model.into()),
                    ("ANTHROPIC_DEFAULT_HAIKU_MODEL", model.into()),
                    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".into()),
                ],
                file: None,
            },
            Agent::Codex => {
                let settings = [
                    format!("model=\"{model}\""),
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
                        "models": { model: { "limit": { "context": context, "output": output } } },
                    } },
                    "model": format!("rope-cpu/{model}"),
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
                    ("OPENAI_MODEL", model.into()),
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
    if !args.serve.model.is_given() {
        return Err(Error::usage(
            "launch needs a model: add its name (rope-cpu list), -m FILE or -hf USER/MODEL",
        ));
    }
    // Looked for before the model is loaded, which may take long.
    let (name, install) = args.agent.program();
    let program = which::which(name)
        .map_err(|_| Error::usage(format_args!("{name} is not installed: {install}")))?;
    let key = args.serve.keys()?.into_iter().next();
    match Running::find(&args.serve, key.clone()) {
        Some(running) => run_beside(args, &program, &running, key),
        None => run_with_server(args, &program, key),
    }
}

/// Runs the agent with a server that runs already.
fn run_beside(
    args: &Args,
    program: &Path,
    running: &Running,
    key: Option<String>,
) -> Result<ExitStatus, Error> {
    // Ctrl-C is for the agent.
    let cannot = |e| Error::failed(format_args!("cannot handle Ctrl-C: {e}"));
    interrupt::install_with(false, || {}).map_err(cannot)?;
    let Running { url, model, context } = running;
    let (child, _file) = args.start(program, url, model, key, *context)?;
    note(format_args!("{} uses {model} of the server at {url}/v1", args.agent.program().0));
    Ok(wait(child, interrupt::terminated)?)
}

/// Starts a server, and runs the agent with it.
fn run_with_server(args: &Args, program: &Path, key: Option<String>) -> Result<ExitStatus, Error> {
    let mut serve = args.serve.clone();
    if serve.rope.is_default() {
        serve.rope = RopeArgs::auto();
    }
    let (exited, stop) = oneshot::channel::<()>();
    let stopped = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut agent = None;
        let stop = serve::Stop::OnMessage(stop);
        let served = serve::serve(&serve, stop, |addresses, context| {
            let Some(address) = addresses.first() else { return Ok(()) };
            let address = SocketAddr::new(reachable(address.ip()), address.port());
            let url = format!("http://{address}");
            note(format_args!("{} uses {url}/v1", args.agent.program().0));
            let (child, file) = args.start(program, &url, ANY_MODEL, key, context)?;
            let stopped = &stopped;
            agent = Some(scope.spawn(move || {
                let status = wait(child, || stopped.load(Relaxed));
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

impl Args {
    /// Starts the agent for a model of a server, whose context has so many tokens.
    fn start(
        &self,
        program: &Path,
        url: &str,
        model: &str,
        key: Option<String>,
        context: usize,
    ) -> Result<(Child, Option<TemporaryFile>), Error> {
        let setup = self.agent.setup(url, model, key.unwrap_or(ANY_KEY.into()), context);
        let mut command = Command::new(program);
        command.args(setup.arguments).envs(setup.variables);
        let file = setup.file.map(|(option, json)| {
            let name = format!("{}.json", self.agent.program().0);
            let file = TemporaryFile::new(&name, &json.to_string())?;
            command.arg(option).arg(&file.0);
            Ok::<_, Error>(file)
        });
        let file = file.transpose()?;
        command.args(&self.arguments);
        let failed = |e| Error::failed(format_args!("cannot start {}: {e}", program.display()));
        Ok((command.spawn().map_err(failed)?, file))
    }
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

/// Waits for a program, which is killed once `stopped` returns true.
fn wait(mut child: Child, stopped: impl Fn() -> bool) -> io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if stopped() {
            child.kill()?;
        }
        thread::sleep(Duration::from_millis(20));
    }
}
