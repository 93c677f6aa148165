//! The state that all handlers of requests share.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{extract::FromRequestParts, http::request::Parts};
use rope_cpu::{
    Token,
    chat::Template,
    constraint::Vocabulary,
    model::{Model, Pooling, memory::Need},
    rope::Plan,
    sample::Settings,
    tokenizer::Tokenizer,
};
use tokio::sync::{mpsc::unbounded_channel, oneshot};

use super::{
    adapters::Scales,
    body,
    command::{Command, SlotAction, SlotResult},
    error::ApiError,
    job::Job,
    log::Record,
    parameters::Parameters,
    status::Status,
    updates::Updates,
    work::Work,
};

/// The settings of a server that do not depend on the model.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The API keys; empty for none.
    pub keys: Vec<String>,
    /// The names of hosts, besides addresses and localhost, that requests may be addressed to.
    pub hosts: Vec<String>,
    /// The web pages that may send requests: their origins, or `*`.
    pub origins: Vec<String>,
    /// The number of slots.
    pub slots: usize,
    /// The longest step while answers are generated.
    pub step_max: Duration,
    /// The most requests that wait for a slot.
    pub queue_max: usize,
    /// The longest time until a request has arrived, and for which a client reads nothing of an answer.
    pub timeout: Duration,
    /// The time after which a silent stream gets a sign of life; `None` for never.
    pub keep_alive: Option<Duration>,
    /// The largest body of a request in bytes; `None` for one that follows from the context.
    pub body_max: Option<usize>,
    /// The largest number of tokens of an answer whose request gives none; `None` for no limit except
    /// the context.
    pub predict_max: Option<usize>,
    /// The folder of saved slots.
    pub slot_folder: Option<PathBuf>,
    /// Whether the state of slots is shown.
    pub shows_slots: bool,
    /// Whether metrics are shown.
    pub shows_metrics: bool,
    /// Whether there is a web page.
    pub shows_page: bool,
    /// Whether the model may reason before it answers.
    pub reasoning: bool,
    /// The most tokens of reasoning of an answer whose request gives none; `None` for no limit.
    pub reasoning_max: Option<usize>,
    /// The names of the model.
    pub aliases: Vec<String>,
    /// Words that describe the model to clients.
    pub tags: Vec<String>,
    /// Whether answers in OpenAI's form have llama-server's form with them.
    pub verbose: bool,
    /// The form of reasoning in answers whose request gives none.
    pub reasoning_format: String,
    /// Whether calls of tools and reasoning stay in the text.
    pub skips_parsing: bool,
    /// The normalization of embeddings whose request gives none.
    pub normalization: i64,
    /// Whether parts of prompts that change at each request are kept.
    pub keeps_volatile: bool,
    /// Whether prompts are written to the log.
    pub logs_prompts: bool,
}

/// The state of a server: its options, and the model once it is loaded.
pub struct Server {
    /// The options.
    pub options: Options,
    /// Whether the server stops, and takes no more requests.
    pub stopping: AtomicBool,
    /// The threads on which requests are handled.
    pub work: Work,
    /// The memory of the bodies of requests.
    pub bodies: body::Memory,
    app: OnceLock<Arc<App>>,
}

impl Server {
    /// Creates the state of a server whose model is being loaded.
    ///
    /// # Errors
    /// If the threads on which requests are handled cannot be started.
    pub fn new(options: Options) -> io::Result<Self> {
        let (stopping, work, app) = (AtomicBool::new(false), Work::start()?, OnceLock::new());
        Ok(Server { options, stopping, work, bodies: body::Memory::default(), app })
    }

    /// Sets the model. A second call has no effect.
    pub fn loaded(&self, app: App) {
        let _ = self.app.set(Arc::new(app));
    }

    /// Returns whether answers wait or are generated.
    pub fn busy(&self) -> bool {
        self.app.get().is_some_and(|app| {
            let waiting = app.status.waiting.load(Relaxed) > 0;
            waiting || app.status.state().slots.iter().any(|slot| slot.busy)
        })
    }

    /// Returns the context of a slot in positions; 0 before the model is loaded.
    pub fn context(&self) -> usize {
        self.app.get().map_or(0, |app| app.context)
    }

    /// Returns the size of the largest body of a request in bytes.
    pub fn body_max(&self) -> usize {
        body::largest(self.options.body_max, self.context())
    }

    /// Returns the model.
    ///
    /// # Errors
    /// If it is not loaded.
    pub fn app(&self) -> Result<Arc<App>, ApiError> {
        self.app.get().cloned().ok_or_else(|| ApiError::unavailable("Loading model"))
    }
}

/// The model as an argument of a handler, which fails while it is being loaded.
pub struct Loaded(pub Arc<App>);

impl FromRequestParts<Arc<Server>> for Loaded {
    type Rejection = ApiError;

    async fn from_request_parts(_: &mut Parts, server: &Arc<Server>) -> Result<Self, ApiError> {
        server.app().map(Loaded)
    }
}

/// A loaded model, and the way to its scheduler.
pub struct App {
    /// The options of the server.
    pub options: Options,
    /// The model.
    pub model: Model,
    /// The chat template, or why there is none.
    pub template: Result<Template, String>,
    /// The vocabulary of grammars, or why there is none, once a request has a grammar: see
    /// [`App::vocabulary`].
    pub vocabulary: OnceLock<Result<Vocabulary, String>>,
    /// The source of the chat template.
    pub template_source: String,
    /// The name of the model in answers.
    pub alias: String,
    /// The sampler's settings of requests that give none.
    pub sampling: Settings,
    /// The scales of adapters in requests that give none.
    pub scales: Mutex<Scales>,
    /// The way from the embeddings of tokens to that of a text.
    pub pooling: Pooling,
    /// The context of a slot, in positions.
    pub context: usize,
    /// The number of tokens that a sequence can have.
    pub capacity: usize,
    /// The RoPE plan.
    pub plan: Plan,
    /// The description of the RoPE plan.
    pub rope: String,
    /// The warnings about the RoPE plan.
    pub warnings: Vec<String>,
    /// The memory that one full context needs.
    pub memory: Need,
    /// The fingerprint of the model, if slots can be saved.
    pub fingerprint: Option<u128>,
    /// When the model was loaded.
    pub loaded: SystemTime,
    /// The state of the scheduler.
    pub status: Arc<Status>,
    /// The commands to the scheduler.
    pub commands: mpsc::Sender<Command>,
}

impl App {
    /// Returns the tokenizer.
    ///
    /// # Errors
    /// If the model has none.
    pub fn tokenizer(&self) -> Result<&Tokenizer<'_>, ApiError> {
        self.model.tokenizer().map_err(ApiError::internal)
    }

    /// Returns the vocabulary of grammars. The first call prepares it, which takes time and memory that
    /// a server without grammars does not need.
    ///
    /// # Errors
    /// If the model's tokens cannot be used with a grammar.
    pub fn vocabulary(&self) -> Result<&Vocabulary, ApiError> {
        let tokenizer = self.tokenizer()?;
        let vocabulary =
            self.vocabulary.get_or_init(|| Vocabulary::new(tokenizer).map_err(|e| e.to_string()));
        vocabulary.as_ref().map_err(ApiError::unsupported)
    }

    /// Returns the scales of adapters in requests that give none.
    pub fn adapter_scales(&self) -> Scales {
        self.scales.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the scales of adapters in requests that give none, from now on.
    pub fn set_adapter_scales(&self, scales: Scales) {
        *self.scales.lock().unwrap_or_else(PoisonError::into_inner) = scales;
    }

    /// Returns the number of the model's parameters.
    pub fn parameters(&self) -> u64 {
        self.model.gguf().tensors().iter().map(|tensor| tensor.elements()).sum()
    }

    /// Returns when the model was loaded, in seconds since 1970.
    pub fn created(&self) -> u64 {
        self.loaded.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }

    /// Requests an answer to each prompt. The updates come with the index of the prompt.
    ///
    /// # Errors
    /// If a prompt is empty or too long, or too many requests wait.
    pub fn submit(
        &self,
        prompts: Vec<Vec<Token>>,
        parameters: &Parameters,
    ) -> Result<Updates, ApiError> {
        for prompt in &prompts {
            if prompt.is_empty() {
                return Err(ApiError::invalid("the prompt is empty: there is nothing to continue"));
            }
            if prompt.len() >= self.capacity {
                return Err(ApiError::context_exceeded(prompt.len(), self.context));
            }
        }
        // Requests of several prompts may exceed the limit: they are not divided.
        let waiting = self.status.waiting.fetch_add(prompts.len(), Relaxed);
        if waiting >= self.options.queue_max.max(1) {
            self.status.waiting.fetch_sub(prompts.len(), Relaxed);
            return Err(ApiError::busy(waiting));
        }
        if let Some(record) = Record::current()
            && let Ok(tokenizer) = self.tokenizer()
        {
            let text = |prompt: &[Token]| {
                String::from_utf8_lossy(&tokenizer.decode(prompt, true)).into_owned()
            };
            prompts.iter().for_each(|prompt| record.prompt(|| text(prompt)));
        }
        let (updates, receiver) = unbounded_channel();
        let receiver =
            Updates::new(receiver, prompts.len(), self.status.clone(), self.options.keep_alive);
        for (index, prompt) in prompts.into_iter().enumerate() {
            let Parameters {
                sampling,
                limits,
                reasoning,
                slot,
                reuse,
                drafts_max,
                probabilities,
                pooling,
                adapter_scales,
                time_max,
            } = parameters.clone();
            let updates = updates.clone();
            self.send(Command::Answer(Box::new(Job {
                prompt,
                sampling: Settings {
                    // Answers to the same prompt differ.
                    seed: sampling.seed.map(|seed| seed.wrapping_add(index as u32)),
                    ..sampling
                },
                limits,
                reasoning,
                slot,
                reuse,
                drafts_max,
                restored: false,
                probabilities,
                pooling,
                adapter_scales,
                time_max,
                index,
                updates,
            })))?;
        }
        Ok(receiver)
    }

    /// Does something with the sequence of a slot, when the step that is being computed has ended.
    ///
    /// # Errors
    /// If there is no such slot, if it is in use, or if the file cannot be read or written.
    pub async fn act(&self, id: usize, action: SlotAction) -> Result<SlotResult, ApiError> {
        let (reply, result) = oneshot::channel();
        self.send(Command::Slot { id, action, reply })?;
        result.await.map_err(|_| stopped())?
    }

    fn send(&self, command: Command) -> Result<(), ApiError> {
        self.commands.send(command).map_err(|_| stopped())
    }
}

fn stopped() -> ApiError {
    ApiError::unavailable("the scheduler has stopped")
}
