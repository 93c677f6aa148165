//! A server with a tiny model on a free port, and requests to it.

use std::{
    io::{BufRead, BufReader, Lines, Read},
    path::Path,
    process::{Child, ChildStderr, Command, Stdio},
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use tempfile::NamedTempFile;
use ureq::{Agent, Body, http};

use rope_cpu_testing::reader::tiny_reader;

/// The longest time for anything that a test waits for.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A prompt in the vocabulary of the tiny model.
pub const PROMPT: &str = "the rain in the north";

/// A running server, which is killed when it is dropped.
pub struct Server {
    child: Child,
    /// The address that it listens on.
    pub address: String,
    stderr: Arc<Mutex<String>>,
    /// Collects stderr, until the server ends.
    collecting: Option<JoinHandle<()>>,
    /// Kept until the server ends.
    _model: Option<NamedTempFile>,
}

/// A complete answer.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: http::HeaderMap,
    pub text: String,
}

/// An answer that comes in parts: the data of its events.
pub struct Events(Lines<BufReader<Box<dyn Read + Send>>>);

/// Starts a server with the tiny model of [`tiny_reader`]. Its answers have no end of their own.
pub fn serve(options: &[&str]) -> Server {
    let model = tiny_reader(7, true);
    let mut server = Server::start(model.path(), options);
    server._model = Some(model);
    server
}

impl Server {
    /// Starts a server, and waits until it has loaded the model.
    pub fn start(model: &Path, options: &[&str]) -> Server {
        let command = Server::command(&["serve", "--port", "0"], model, options);
        Server::run(command, "listening on http://")
    }

    /// Returns the command that starts a server.
    pub fn command(first: &[&str], model: &Path, options: &[&str]) -> Command {
        let mut command = Server::bare(first);
        command.arg("-m").arg(model).args(options);
        command
    }

    /// Returns the command that starts a server without a model.
    pub fn bare(first: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rope-cpu"));
        let prefixes = ["ROPE_CPU_", "LLAMA_", "HF_", "HUGGINGFACE_"];
        for (name, _) in std::env::vars_os() {
            if prefixes.iter().any(|own| name.to_string_lossy().starts_with(own)) {
                command.env_remove(name);
            }
        }
        command.args(first).args(["-t", "2"]);
        command
    }

    /// Starts a server, and waits until it writes its address after `sign`.
    pub fn run(mut command: Command, sign: &str) -> Server {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let (stderr, collecting) = collect(child.stderr.take().unwrap());
        let began = Instant::now();
        let address = loop {
            let text = stderr.lock().unwrap().clone();
            if let Some((_, rest)) = text.split_once(sign) {
                // In a log of JSON, a quotation mark follows.
                let address = rest.split(['"', ' ', '\n']).next().unwrap();
                break address.trim_end_matches('/').to_string();
            }
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none() && began.elapsed() < PATIENCE, "{ended:?}: {text}");
            thread::sleep(Duration::from_millis(5));
        };
        Server { child, address, stderr, collecting: Some(collecting), _model: None }
    }

    /// Sends a request without a body.
    #[track_caller]
    pub fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], "")
    }

    /// Sends JSON.
    #[track_caller]
    pub fn post(&self, path: &str, body: Value) -> Reply {
        self.send("POST", path, &[], &body.to_string())
    }

    /// Sends any request.
    #[track_caller]
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut answer = self.open(method, path, headers, body);
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        Reply { status, headers, text: answer.body_mut().read_to_string().unwrap() }
    }

    /// Sends JSON, and returns the events of the answer as they come.
    #[track_caller]
    pub fn stream(&self, path: &str, mut body: Value) -> Events {
        body["stream"] = true.into();
        let answer = self.open("POST", path, &[], &body.to_string());
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        let body: Box<dyn Read + Send> = Box::new(answer.into_body().into_reader());
        Events(BufReader::new(body).lines())
    }

    /// Sends any request, and returns its answer before the body is read.
    pub fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> http::Response<Body> {
        open(&self.address, method, path, headers, body)
    }

    /// Returns a client of the server at an address, for another thread.
    pub fn at(address: &str) -> Client {
        Client(address.into())
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns what the server has written to stderr.
    pub fn stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    /// Waits until the server has closed stderr, and returns what it has written.
    pub fn stderr_to_end(&mut self) -> String {
        if let Some(collecting) = self.collecting.take() {
            collecting.join().unwrap();
        }
        self.stderr()
    }

    /// Returns a slot's state, of `/slots`.
    #[track_caller]
    pub fn slot(&self, id: usize) -> Value {
        self.get("/slots").json()[id].take()
    }

    /// Waits until `condition` holds.
    #[track_caller]
    pub fn wait_until(&self, mut condition: impl FnMut(&Server) -> bool) {
        let began = Instant::now();
        while !condition(self) {
            assert!(began.elapsed() < PATIENCE, "{}", self.stderr());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until no slot is in use.
    #[track_caller]
    pub fn wait_until_idle(&self) {
        self.wait_until(|server| {
            let slots = server.get("/slots").json();
            slots.as_array().unwrap().iter().all(|slot| slot["is_processing"] == false)
        });
    }

    /// Returns the identifier of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.id() as i32), signal).unwrap();
    }

    /// Waits until the server ends. Returns its exit code.
    #[track_caller]
    pub fn exit_code(&mut self) -> Option<i32> {
        let began = Instant::now();
        loop {
            match self.child.try_wait().unwrap() {
                Some(status) => return status.code(),
                None => assert!(began.elapsed() < PATIENCE, "{}", self.stderr()),
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A client of a server that another thread has.
pub struct Client(String);

impl Client {
    /// Sends JSON.
    #[track_caller]
    pub fn post(&self, path: &str, body: Value) -> Reply {
        let mut answer = open(&self.0, "POST", path, &[], &body.to_string());
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        Reply { status, headers, text: answer.body_mut().read_to_string().unwrap() }
    }
}

fn open(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> http::Response<Body> {
    let config = Agent::config_builder();
    let config = config.http_status_as_error(false).timeout_global(Some(PATIENCE));
    // A new connection for every request, which ends when the answer is dropped.
    let agent = config.proxy(None).max_idle_connections(0).build().new_agent();
    let mut request =
        http::Request::builder().method(method).uri(format!("http://{}{path}", address));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    match method {
        "GET" => agent.run(request.body(()).unwrap()).unwrap(),
        _ => agent.run(request.body(body.to_string()).unwrap()).unwrap(),
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Reply {
    /// Returns the JSON of a successful answer.
    #[track_caller]
    pub fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text);
        rope_cpu::json::parse(&self.text).unwrap()
    }

    /// Checks the status of an error, and that its message has these parts. Returns the error.
    #[track_caller]
    pub fn refused(&self, status: u16, parts: &[&str]) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        let error = rope_cpu::json::parse::<Value>(&self.text).unwrap()["error"].take();
        // OpenAI's form has a text or null in place of the status.
        assert!(error["code"] == status || error.get("param").is_some(), "{error}");
        let message = error["message"].as_str().unwrap();
        for part in parts {
            assert!(message.contains(part), "{part:?} is not in {message:?}");
        }
        error
    }

    /// Returns a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// The events as JSON, without those that are not: `[DONE]`.
impl Iterator for Events {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        loop {
            // An error means that the server has ended.
            let line = self.0.next()?.ok()?;
            match line.strip_prefix("data: ") {
                Some("[DONE]") | None => {}
                Some(data) => return Some(rope_cpu::json::parse(data).unwrap()),
            }
        }
    }
}

/// Collects what a program writes, so that it does not wait for a reader.
fn collect(from: ChildStderr) -> (Arc<Mutex<String>>, JoinHandle<()>) {
    let text = Arc::new(Mutex::new(String::new()));
    let collected = text.clone();
    let collecting = thread::spawn(move || {
        for line in BufReader::new(from).lines() {
            let Ok(line) = line else { return };
            let mut text = collected.lock().unwrap();
            *text += &line;
            text.push('\n');
        }
    });
    (text, collecting)
}
